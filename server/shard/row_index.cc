#include "server/shard/row_index.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"

namespace pawl {
namespace {

// The largest load, in quarters of the homes. A search at this load visits two or three slots.
constexpr uint64_t kMaxLoad = 3;
// A map grows by an eighth. That copies each entry eight times, one after another, but leaves few
// slots empty.
constexpr uint64_t kGrowth = 8;
constexpr uint64_t kLeastHomes = 6;
// Enough at kMaxLoad for most maps; the others get more.
constexpr uint64_t kOverflow = 12;
// Smaller indexes use one map, because there are many partitions and tables.
constexpr uint64_t kMaxRowsOfOneMap = 8192;
constexpr uint32_t kSplitBits = 6;

}  // namespace

// Abseil's hash differs from process to process.
const uint64_t RowIndex::kSeed = absl::Hash<uint64_t>{}(0);

RowIndex::RowIndex() {
  // Searched and never written.
  static Slot empty[kAhead];
  maps_.emplace_back().slots = empty;
}

void RowIndex::Insert(Map& map, Slot* slot, uint64_t hash, uint32_t row) {
  const bool is_full = 4 * (map.size + 1) > kMaxLoad * map.homes;
  Slot* empty = slot;
  while (empty->row != kNone) ++empty;
  if (is_full || empty == map.slots + map.slot_count - kAhead) {
    const uint64_t overflow = map.slot_count - map.homes;
    if (is_full) {
      Resize(map, std::max(kLeastHomes, map.homes + map.homes / kGrowth + 1), overflow);
    } else {
      Resize(map, map.homes, 2 * overflow);
    }
    return Insert(map, FirstNotBefore(map, hash), hash, row);
  }
  std::move_backward(slot, empty, empty + 1);
  *slot = Slot{hash, row};
  ++map.size;
  if (map_bits_ == 0 && map.size == kMaxRowsOfOneMap) Split();
}

void RowIndex::Resize(Map& map, uint64_t homes, uint64_t overflow) {
  Map grown;
  grown.homes = homes;
  grown.size = map.size;
  grown.slot_count = homes + std::max(overflow, kOverflow);
  grown.memory = std::make_unique<Slot[]>(grown.slot_count);
  grown.slots = grown.memory.get();
  uint64_t next = 0;
  for (const Slot* slot = map.slots; slot != map.slots + map.slot_count; ++slot) {
    if (slot->row == kNone) continue;
    next = std::max(next, Home(grown, slot->hash));
    if (next == grown.slot_count - kAhead) return Resize(map, homes, 2 * overflow);
    grown.slots[next++] = *slot;
  }
  map = std::move(grown);
}

void RowIndex::Split() {
  const Map whole = std::move(maps_.front());
  const RowIndex none;
  map_bits_ = kSplitBits;
  maps_.resize(size_t{1} << kSplitBits);
  for (Map& map : maps_) {
    map = Map();
    map.slots = none.maps_.front().slots;
  }
  for (const Slot* slot = whole.slots; slot != whole.slots + whole.slot_count; ++slot) {
    if (slot->row == kNone) continue;
    Map& map = MapOf(slot->hash);
    Insert(map, FirstNotBefore(map, slot->hash), slot->hash, slot->row);
  }
}

}  // namespace pawl
