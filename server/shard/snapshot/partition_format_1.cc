#include "server/shard/snapshot/partition_format_1.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "server/shard/snapshot/partition_snapshot.h"

namespace pawl {
namespace {

constexpr char kMagic[8] = {'P', 'A', 'W', 'L', 'P', 'A', 'R', 'T'};
constexpr uint32_t kFormat = 1;
constexpr uint64_t kMaxContiguous = uint64_t{1} << 63;

}  // namespace

class PartitionFormat1Loader {
 public:
  PartitionFormat1Loader(uint32_t index, const PartitionOptions& options, const ByteView& bytes)
      : partition_(index, options),
        fragments_(bytes.fragments()),
        left_(bytes.size()),
        size_(bytes.size()) {}

  absl::StatusOr<Partition> Load() {
    PAWL_RETURN_IF_ERROR(Header());
    PAWL_RETURN_IF_ERROR(Workers());
    PAWL_RETURN_IF_ERROR(Clients());
    PAWL_RETURN_IF_ERROR(Tables());
    if (options().consistency.mode() == SYNC) PAWL_RETURN_IF_ERROR(Sum());
    if (left_ > 0) return Damaged("bytes follow the end of the snapshot");
    return std::move(partition_);
  }

 private:
  const PartitionOptions& options() const { return partition_.options_; }

  absl::Status Damaged(absl::string_view problem) const {
    return absl::DataLossError(absl::StrCat("snapshot of partition ", partition_.index_, ", byte ",
                                            size_ - left_, " of ", size_, ": ", problem));
  }

  // DATA_LOSS unless the remaining bytes can hold `count` items of at least `bytes` each.
  absl::Status Expect(uint64_t count, size_t bytes, absl::string_view what) const {
    if (count <= left_ / bytes) return absl::OkStatus();
    return Damaged(
        absl::StrCat(count, " ", what, " of ", bytes, " bytes or more exceed the remaining bytes"));
  }

  // REQUIRES: that many bytes are left.
  void Take(void* out, size_t size) {
    char* end = static_cast<char*>(out);
    left_ -= size;
    while (size > 0) {
      if (fragment_.empty()) {
        fragment_ = fragments_.front();
        fragments_.remove_prefix(1);
      }
      const size_t count = std::min(size, fragment_.size());
      std::memcpy(end, fragment_.data(), count);
      fragment_.remove_prefix(count);
      end += count;
      size -= count;
    }
  }

  template <typename T>
  absl::Status Number(T& number, absl::string_view what) {
    if (left_ < sizeof(T)) return Damaged(absl::StrCat("the bytes end before ", what));
    Take(&number, sizeof(T));
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status SameAsJob(T expected, absl::string_view what) {
    T number;
    PAWL_RETURN_IF_ERROR(Number(number, what));
    if (number == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("snapshot of partition ", partition_.index_,
                                                   ": its ", what, " is ", number, ", not ",
                                                   expected));
  }

  absl::Status Flag(bool& flag, absl::string_view what) {
    uint8_t number;
    PAWL_RETURN_IF_ERROR(Number(number, what));
    if (number > 1) return Damaged(absl::StrCat(what, " is ", number, ", neither 0 nor 1"));
    flag = number == 1;
    return absl::OkStatus();
  }

  absl::Status Header() {
    char magic[sizeof(kMagic)];
    PAWL_RETURN_IF_ERROR(Number(magic, "beginning"));
    if (std::memcmp(magic, kMagic, sizeof(kMagic)) != 0)
      return Damaged("it does not start with a snapshot header");
    PAWL_RETURN_IF_ERROR(SameAsJob<uint32_t>(kFormat, "format"));
    PAWL_RETURN_IF_ERROR(SameAsJob<uint32_t>(partition_.index_, "partition"));
    PAWL_RETURN_IF_ERROR(SameAsJob<uint32_t>(options().partitions, "number of partitions"));
    PAWL_RETURN_IF_ERROR(
        SameAsJob<uint32_t>(options().logical_workers, "number of logical workers"));
    PAWL_RETURN_IF_ERROR(SameAsJob<uint32_t>(options().consistency.mode(), "consistency.mode"));
    PAWL_RETURN_IF_ERROR(
        SameAsJob<uint32_t>(options().consistency.staleness(), "consistency.staleness"));
    PAWL_RETURN_IF_ERROR(
        SameAsJob<uint32_t>(options().consistency.backup_workers(), "consistency.backup_workers"));
    PAWL_RETURN_IF_ERROR(SameAsJob<uint64_t>(options().job_seed, "seed"));
    PAWL_RETURN_IF_ERROR(Number(partition_.log_index_, "log_index"));
    PAWL_RETURN_IF_ERROR(Number(partition_.restored_at_, "restored_at"));
    if (partition_.restored_at_ > partition_.log_index_)
      return Damaged("restored_at is beyond log_index");
    PAWL_RETURN_IF_ERROR(Number(partition_.best_step_, "best_step"));
    PAWL_RETURN_IF_ERROR(Number(partition_.version_, "version"));
    PAWL_RETURN_IF_ERROR(Number(partition_.min_clock_, "min_clock"));
    PAWL_RETURN_IF_ERROR(Number(partition_.counters_.pushes_applied, "pushes_applied"));
    PAWL_RETURN_IF_ERROR(Number(partition_.counters_.pushes_late, "pushes_late"));
    return Number(partition_.counters_.keys_pushed, "keys_pushed");
  }

  absl::Status Window(PushWindow& window) {
    uint64_t contiguous;
    uint16_t ahead;
    PAWL_RETURN_IF_ERROR(Number(contiguous, "contiguous"));
    PAWL_RETURN_IF_ERROR(Number(ahead, "ahead"));
    if (contiguous > kMaxContiguous) return Damaged("more ordinals than a sender can have pushed");
    window = PushWindow(contiguous);
    uint16_t previous = 0;
    for (; ahead > 0; --ahead) {
      uint16_t distance;
      PAWL_RETURN_IF_ERROR(Number(distance, "distance"));
      if (distance <= previous || distance >= kPushWindow)
        return Damaged("ordinals out of order or beyond the window");
      window.Take(contiguous + distance);
      previous = distance;
    }
    return absl::OkStatus();
  }

  absl::Status Workers() {
    const bool is_sync = options().consistency.mode() == SYNC;
    size_t ahead = 0;
    for (Partition::Worker& worker : partition_.workers_) {
      PAWL_RETURN_IF_ERROR(Number(worker.incarnation, "incarnation"));
      PAWL_RETURN_IF_ERROR(Number(worker.clock, "clock"));
      uint64_t counts_from;
      bool released;
      PAWL_RETURN_IF_ERROR(Number(counts_from, "counts_from"));
      PAWL_RETURN_IF_ERROR(Flag(released, "released"));
      if (counts_from > partition_.min_clock_) return Damaged("counts_from is beyond min_clock");
      worker.counts_from = counts_from;
      worker.released = released;
      if (is_sync && (worker.released || worker.counts_from > 0))
        return Damaged("a released logical worker in SYNC");
      ahead += worker.clock > partition_.version_;
      PushWindow window;
      PAWL_RETURN_IF_ERROR(Window(window));
      if (window.count() > 0) worker.window = std::make_unique<PushWindow>(window);
    }
    partition_.CountAll();
    // The rest of the partition relies on both.
    if (is_sync ? ahead >= partition_.NeededWorkers() : partition_.version_ > 0) {
      return Damaged("the version contradicts the clocks");
    }
    if (partition_.LowestClock().value_or(partition_.min_clock_) != partition_.min_clock_) {
      return Damaged("min_clock contradicts the clocks");
    }
    return absl::OkStatus();
  }

  absl::Status Clients() {
    uint32_t count;
    PAWL_RETURN_IF_ERROR(Number(count, "number of clients"));
    std::optional<uint32_t> previous;
    for (; count > 0; --count) {
      uint32_t number;
      Partition::Client client;
      PAWL_RETURN_IF_ERROR(Number(number, "client"));
      if (number >= kMaxClients || number <= previous)
        return Damaged("clients out of order or beyond their limit");
      PAWL_RETURN_IF_ERROR(Number(client.incarnation, "incarnation"));
      PAWL_RETURN_IF_ERROR(Window(client.window));
      partition_.clients_.emplace_hint(partition_.clients_.end(), number, client);
      previous = number;
    }
    return absl::OkStatus();
  }

  absl::Status Tables() {
    uint32_t count;
    PAWL_RETURN_IF_ERROR(Number(count, "number of tables"));
    if (count > kMaxTablesOfPartition) {
      return Damaged(absl::StrCat(count, " tables; a job has at most ", kMaxTablesOfPartition));
    }
    std::optional<uint32_t> previous;
    for (; count > 0; --count) {
      uint32_t spec_bytes;
      PAWL_RETURN_IF_ERROR(Number(spec_bytes, "length of a spec"));
      if (spec_bytes > kMaxTableSpecBytes)
        return Damaged(absl::StrCat("a spec of ", spec_bytes, " bytes"));
      PAWL_RETURN_IF_ERROR(Expect(spec_bytes, 1, "bytes of a spec"));
      std::string bytes(spec_bytes, '\0');
      Take(bytes.data(), spec_bytes);
      TableSpec spec;
      if (!spec.ParseFromString(bytes) || spec.SerializeAsString() != bytes) {
        return Damaged("a spec that is not in protobuf's canonical form");
      }
      if (spec.id() <= previous) return Damaged("tables out of order");
      previous = spec.id();
      const auto schema = TableSchema::Create(spec, options().job_seed);
      if (!schema.ok()) return Damaged(schema.status().message());
      TablePart part(*schema);
      PAWL_RETURN_IF_ERROR(Annotate(Table(part), absl::StrCat("table '", spec.name(), "'")));
      partition_.tables_.emplace(spec.id(), std::move(part));
    }
    return absl::OkStatus();
  }

  // Reads one key of `table`, which must follow `previous`.
  absl::Status Key(const TableSchema& table, std::optional<uint64_t>& previous, uint64_t& key) {
    PAWL_RETURN_IF_ERROR(Number(key, "key"));
    if (key <= previous) return Damaged(absl::StrCat("key ", key, " out of order"));
    previous = key;
    if (table.is_dense() && key >= table.BlockCount())
      return Damaged(absl::StrCat("no block ", key));
    if (PartitionOf(table.id(), key, options().partitions) != partition_.index_) {
      return Damaged(absl::StrCat("key ", key, " belongs to another partition"));
    }
    return absl::OkStatus();
  }

  // Reads keys, each followed by `floats(key)` floats, which go to `place(key, floats)`.
  template <typename Floats, typename Place>
  absl::Status Rows(const TableSchema& table, Floats floats, Place place) {
    uint64_t count;
    PAWL_RETURN_IF_ERROR(Number(count, "number of rows"));
    PAWL_RETURN_IF_ERROR(Expect(count, sizeof(uint64_t), "rows"));
    std::optional<uint64_t> previous;
    for (; count > 0; --count) {
      uint64_t key;
      PAWL_RETURN_IF_ERROR(Key(table, previous, key));
      const size_t size = floats(key);
      PAWL_RETURN_IF_ERROR(Expect(size, sizeof(float), "elements"));
      place(key, size);
    }
    return absl::OkStatus();
  }

  void TakeFloats(SharedBlock& block) {
    if (block.size() > 0) Take(block.Mutable(), block.size() * sizeof(float));
  }

  absl::Status Table(TablePart& part) {
    const TableSchema& table = part.table();
    const auto width = [&](uint64_t key) { return table.RowWidth(key); };
    PAWL_RETURN_IF_ERROR(Rows(
        table, [&](uint64_t key) { return width(key) + part.StateFloats(width(key)); },
        [&](uint64_t key, size_t floats) {
          if (table.is_dense()) {
            TablePart::Block block{SharedBlock(width(key)), SharedBlock(floats - width(key))};
            TakeFloats(block.weights);
            TakeFloats(block.state);
            part.blocks_.emplace_hint(part.blocks_.end(), key, std::move(block));
            part.block_floats_ += floats;
          } else {
            bool inserted;
            Take(part.rows_.FindOrInsert(key, floats, inserted), floats * sizeof(float));
          }
        }));
    bool has_best;
    PAWL_RETURN_IF_ERROR(Flag(has_best, "has_best"));
    if (!has_best) return absl::OkStatus();
    auto best = std::make_shared<HeldTable::Best>();
    RowStore rows(table.is_dense() ? 0 : table.MaxRowWidth());
    PAWL_RETURN_IF_ERROR(Rows(table, width, [&](uint64_t key, size_t floats) {
      if (table.is_dense()) {
        SharedBlock block(floats);
        TakeFloats(block);
        best->blocks.emplace_back(key, block.Lend());
      } else {
        bool inserted;
        Take(rows.FindOrInsert(key, floats, inserted), floats * sizeof(float));
      }
    }));
    best->rows = rows.Hold();
    part.best_ = std::move(best);
    return absl::OkStatus();
  }

  absl::Status Sum() {
    StepSum& sum = partition_.step_sum_;
    PAWL_RETURN_IF_ERROR(Number(sum.key_count_, "key_count"));
    for (uint32_t number = 0; number < sum.ranks_; ++number) {
      StepSum::Rank rank;
      uint32_t early;
      PAWL_RETURN_IF_ERROR(Number(rank.next_ordinal, "next_ordinal"));
      PAWL_RETURN_IF_ERROR(Number(early, "number of early gradients"));
      for (; early > 0; --early) PAWL_RETURN_IF_ERROR(Early(sum, rank));
      if (rank.next_ordinal > 0 || !rank.early.empty())
        sum.open_.emplace_hint(sum.open_.end(), number, std::move(rank));
    }
    if (!sum.sum_at_close_) {
      while (sum.first_open_rank_ < sum.ranks_ && partition_.HasEnded(sum.first_open_rank_))
        ++sum.first_open_rank_;
    }
    uint32_t tables;
    PAWL_RETURN_IF_ERROR(Number(tables, "number of sums"));
    std::optional<uint32_t> previous;
    for (; tables > 0; --tables) {
      uint32_t id;
      PAWL_RETURN_IF_ERROR(Number(id, "table"));
      const TablePart* const part = partition_.FindTable(id);
      if (part == nullptr || id <= previous)
        return Damaged(absl::StrCat("a sum of table ", id, " out of order"));
      previous = id;
      const TableSchema& table = part->table();
      RowStore& rows = sum.sums_.try_emplace(id, part->shared_table()).first->second.rows_;
      PAWL_RETURN_IF_ERROR(Rows(
          table, [&](uint64_t key) { return table.RowWidth(key); },
          [&](uint64_t key, size_t floats) {
            bool inserted;
            Take(rows.FindOrInsert(key, floats, inserted), floats * sizeof(float));
          }));
    }
    return absl::OkStatus();
  }

  absl::Status Early(StepSum& sum, StepSum::Rank& rank) {
    uint64_t ordinal;
    uint32_t id;
    uint64_t keys;
    PAWL_RETURN_IF_ERROR(Number(ordinal, "ordinal"));
    if (ordinal < rank.next_ordinal ||
        (!rank.early.empty() && ordinal <= rank.early.rbegin()->first)) {
      return Damaged(absl::StrCat("an early gradient with ordinal ", ordinal, " out of order"));
    }
    PAWL_RETURN_IF_ERROR(Number(id, "table"));
    const TablePart* const part = partition_.FindTable(id);
    if (part == nullptr)
      return Damaged(absl::StrCat("an early gradient of table ", id, ", which does not exist"));
    PAWL_RETURN_IF_ERROR(Number(keys, "number of keys"));
    PAWL_RETURN_IF_ERROR(Expect(keys, sizeof(uint64_t), "keys"));
    const size_t key_bytes = keys * sizeof(uint64_t);
    std::shared_ptr<char[]> key_memory = std::make_shared_for_overwrite<char[]>(key_bytes);
    Take(key_memory.get(), key_bytes);
    const ByteView key_view(key_memory.get(), key_bytes);
    size_t value_bytes;
    absl::Status status =
        part->table().CheckKeys(key_view, partition_.index_, options().partitions, value_bytes);
    if (!status.ok()) return Damaged(status.message());
    PAWL_RETURN_IF_ERROR(Expect(value_bytes, 1, "bytes of values"));
    const auto memory = std::make_shared_for_overwrite<char[]>(key_bytes + value_bytes);
    key_view.CopyTo(memory.get());
    Take(memory.get() + key_bytes, value_bytes);
    const Gradient gradient{ByteView(memory.get(), key_bytes),
                            ByteView(memory.get() + key_bytes, value_bytes), memory};
    status = part->table().CheckGradient(part->table().spec().element_type(), /*exponent=*/0,
                                         gradient.keys, gradient.values, partition_.index_,
                                         options().partitions);
    if (!status.ok()) return Damaged(status.message());
    sum.staged_bytes_ += key_bytes + value_bytes;
    rank.early.emplace_hint(rank.early.end(), ordinal,
                            StepSum::Staged{part->shared_table(), gradient});
    return absl::OkStatus();
  }

  Partition partition_;
  absl::Span<const ByteView::Fragment> fragments_;
  ByteView::Fragment fragment_;  // the unread rest of the present one
  size_t left_;
  const size_t size_;
};

absl::StatusOr<Partition> LoadFormat1(uint32_t index, const PartitionOptions& options,
                                      const ByteView& bytes) {
  return PartitionFormat1Loader(index, options, bytes).Load();
}

}  // namespace pawl
