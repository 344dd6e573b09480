// The index of a RowStore: row numbers by key.
#ifndef PAWL_SERVER_SHARD_ROW_INDEX_H_
#define PAWL_SERVER_SHARD_ROW_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "client_lib/base/compiler.h"

namespace pawl {

// A hash table that grows by an eighth instead of doubling: an entry takes 24 bytes at the worst
// size, and 39 in absl::flat_hash_map. tests/perf/README.md compares their speed ("SYNC steps on
// sparse tables"). Not thread-safe.
//
// Invariants:
// 1. The entries of a map are sorted by hash, with empty slots between them. A hash maps to one
//    slot, its home. An entry lies at or after its home, and no slot between the two is empty. So
//    a search ends at the first slot whose hash is not smaller, whether or not the key exists.
// 2. The last kAhead slots of a map are empty.
// 3. A map has at least four homes for every three entries. An insertion copies at most one map.
class RowIndex {
 public:
  // No row. Rows have smaller numbers.
  static constexpr uint32_t kNone = UINT32_MAX;

  RowIndex();

  // Prefetches what the functions below read for this key.
  void Prefetch(uint64_t key) const {
    const uint64_t hash = HashOf(key);
    const Map& map = MapOf(hash);
    const Slot* const slot = map.slots + Home(map, hash);
    pawl::Prefetch(slot);
    pawl::Prefetch(slot + kAhead - 1);
  }

  // The row of the key, or kNone.
  uint32_t Find(uint64_t key) const {
    const uint64_t hash = HashOf(key);
    const Slot& slot = *FirstNotBefore(MapOf(hash), hash);
    return slot.hash == hash ? slot.row : kNone;
  }

  // Returns the row of the key. A key without one gets `row`.
  uint32_t FindOrInsert(uint64_t key, uint32_t row) {
    const uint64_t hash = HashOf(key);
    Map& map = MapOf(hash);
    Slot* const slot = FirstNotBefore(map, hash);
    if (slot->hash == hash && slot->row != kNone) return slot->row;
    Insert(map, slot, hash, row);
    return row;
  }

 private:
  struct Slot {
    uint64_t hash = UINT64_MAX;
    uint32_t row = kNone;  // kNone: the slot is empty
    uint32_t reserved = 0;
  };
  static_assert(sizeof(Slot) == 16);
  static const uint64_t kSeed;
  // The slots that every search reads.
  static constexpr size_t kAhead = 4;
  struct Map {
    Slot* slots;
    uint64_t homes = 0;  // the entries' homes are the first slots
    uint64_t slot_count =
        kAhead;  // including those for entries that the last homes have no room for
    uint64_t size = 0;
    std::unique_ptr<Slot[]> memory;
  };

  // Distinct keys have distinct hashes: each operation is invertible. The seed of this process
  // keeps a sender from choosing keys that all have the same home.
  static uint64_t HashOf(uint64_t key) {
    key ^= kSeed;
    key ^= key >> 32;
    key *= 0xd6e8feb86659fd93u;
    key ^= key >> 32;
    key *= 0x9e3779b97f4a7c15u;
    return key;
  }
  // The upper bits of a hash select the map, and the next ones the home.
  const Map& MapOf(uint64_t hash) const { return maps_[(hash >> 1) >> (63 - map_bits_)]; }
  Map& MapOf(uint64_t hash) { return maps_[(hash >> 1) >> (63 - map_bits_)]; }
  uint64_t Home(const Map& map, uint64_t hash) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(hash << map_bits_) * map.homes) >>
                                 64);
  }
  Slot* FirstNotBefore(const Map& map, uint64_t hash) const {
    Slot* slot = map.slots + Home(map, hash);
    // Counts without branches: a processor that mispredicts one waits for the slot's memory.
    size_t smaller = 0;
    for (size_t i = 0; i < kAhead; ++i) smaller += slot[i].hash < hash;
    slot += smaller;
    while (slot->hash < hash) ++slot;
    return slot;
  }

  void Insert(Map& map, Slot* slot, uint64_t hash, uint32_t row);
  // Moves the entries to a map with `homes` homes and at least `overflow` slots after them.
  void Resize(Map& map, uint64_t homes, uint64_t overflow);
  void Split();

  uint32_t map_bits_ = 0;
  std::vector<Map> maps_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_ROW_INDEX_H_
