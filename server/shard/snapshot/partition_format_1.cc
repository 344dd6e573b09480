#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/shard/snapshot/partition_fields.h"
#include "server/shard/snapshot/partition_format_2.h"
#include "server/shard/snapshot/partition_loader.h"
#include "server/shard/snapshot/partition_snapshot.h"

namespace pawl {

// The loader for format 1 (partition_format_1.md). The header is that of format 2.
class PartitionLoader::Format1 : public Fields {
 public:
  Format1(uint32_t index, const PartitionOptions& options, absl::string_view bytes)
      : Fields(index, options, bytes.substr(format_2::kHeaderBytes), format_2::kHeaderBytes) {}

  absl::StatusOr<Partition> Load() {
    PAWL_RETURN_IF_ERROR(Job());
    PAWL_RETURN_IF_ERROR(State());
    PAWL_RETURN_IF_ERROR(Workers());
    PAWL_RETURN_IF_ERROR(Clients());
    PAWL_RETURN_IF_ERROR(Tables());
    if (is_sync()) PAWL_RETURN_IF_ERROR(Sum());
    if (!body_.empty()) return Damaged("bytes follow the end of the snapshot");
    PAWL_RETURN_IF_ERROR(FitClocks(/*clips=*/false));
    return std::move(partition_);
  }

 private:
  // DATA_LOSS unless the remaining bytes can hold `count` items of at least `bytes` each.
  absl::Status Expect(uint64_t count, size_t bytes, absl::string_view what) const {
    if (count <= body_.size() / bytes) return absl::OkStatus();
    return Damaged(
        absl::StrCat(count, " ", what, " of ", bytes, " bytes or more exceed the remaining bytes"));
  }

  // REQUIRES: that many bytes are left.
  void Take(void* out, size_t size) {
    std::memcpy(out, body_.data(), size);
    Skip(size);
  }

  absl::Status Flag(bool& flag, absl::string_view what) {
    uint8_t number;
    PAWL_RETURN_IF_ERROR(Number(number, what));
    if (number > 1) return Damaged(absl::StrCat(what, " is ", number, ", neither 0 nor 1"));
    flag = number == 1;
    return absl::OkStatus();
  }

  absl::Status Workers() {
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
      if (is_sync() && (worker.released || worker.counts_from > 0))
        return Damaged("a released logical worker in SYNC");
      PAWL_RETURN_IF_ERROR(Window(worker));
    }
    partition_.CountAll();
    // The format is older than clip_global_norm.
    return CheckClocks(/*clips=*/false);
  }

  absl::Status Clients() {
    uint32_t count;
    PAWL_RETURN_IF_ERROR(Number(count, "number of clients"));
    for (; count > 0; --count) PAWL_RETURN_IF_ERROR(Client());
    return absl::OkStatus();
  }

  absl::Status Tables() {
    uint32_t count;
    PAWL_RETURN_IF_ERROR(Number(count, "number of tables"));
    if (count > kMaxTablesOfPartition) {
      return Damaged(absl::StrCat(count, " tables; a job has at most ", kMaxTablesOfPartition));
    }
    for (; count > 0; --count) {
      uint32_t spec_bytes;
      PAWL_RETURN_IF_ERROR(Number(spec_bytes, "length of a spec"));
      if (spec_bytes > kMaxTableSpecBytes)
        return Damaged(absl::StrCat("a spec of ", spec_bytes, " bytes"));
      PAWL_RETURN_IF_ERROR(Expect(spec_bytes, 1, "bytes of a spec"));
      PAWL_RETURN_IF_ERROR(TableOfSpec(spec_bytes));
      TablePart& part = partition_.tables_.rbegin()->second;
      PAWL_RETURN_IF_ERROR(
          Annotate(Table(part), absl::StrCat("table '", part.table().spec().name(), "'")));
    }
    return absl::OkStatus();
  }

  // Reads one key of `table`, which must follow `previous`.
  absl::Status Key(const TableSchema& table, std::optional<uint64_t>& previous, uint64_t& key) {
    PAWL_RETURN_IF_ERROR(Number(key, "key"));
    if (key <= previous) return Damaged(absl::StrCat("key ", key, " out of order"));
    previous = key;
    return CheckKey(table, key);
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
    FindFirstOpenRank();
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
    sum.staged_bytes_ += StepSum::StagedBytes(gradient);
    rank.early.emplace_hint(rank.early.end(), ordinal,
                            StepSum::Staged{part->shared_table(), gradient});
    return absl::OkStatus();
  }
};

absl::StatusOr<Partition> PartitionLoader::LoadFormat1(uint32_t index,
                                                       const PartitionOptions& options,
                                                       absl::string_view bytes) {
  return Format1(index, options, bytes).Load();
}

}  // namespace pawl
