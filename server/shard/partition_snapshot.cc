#include "server/shard/partition_snapshot.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are saved as they lie in memory");

constexpr char kMagic[8] = {'P', 'A', 'W', 'L', 'P', 'A', 'R', 'T'};
constexpr uint32_t kFormat = 1;
// Small pieces are put together in chunks of this size; longer runs of a lent block stay where they are.
constexpr size_t kChunkBytes = 64 << 10;
constexpr size_t kMinLentBytes = 4096;
constexpr uint64_t kMaxContiguous = uint64_t{1} << 63;

using Row = std::pair<uint64_t, const float*>;

std::vector<Row> SortedRows(const RowStore& store) {
  std::vector<Row> rows;
  rows.reserve(store.size());
  store.ForEach([&](uint64_t key, const float* row) { rows.emplace_back(key, row); });
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace

class PartitionSaver {
 public:
  // The bytes of a run stay as they are while its owner lives.
  using Sink = absl::FunctionRef<void(const char* data, size_t size, const std::shared_ptr<const void>& owner)>;

  explicit PartitionSaver(Sink sink) : sink_(sink) {}

  void Save(const Partition& partition) {
    const PartitionOptions& options = partition.options_;
    Bytes(kMagic, sizeof(kMagic));
    Number<uint32_t>(kFormat);
    Number<uint32_t>(partition.index_);
    Number<uint32_t>(options.partitions);
    Number<uint32_t>(options.logical_workers);
    Number<uint32_t>(options.consistency.mode());
    Number<uint32_t>(options.consistency.staleness());
    Number<uint32_t>(options.consistency.backup_workers());
    Number<uint64_t>(options.job_seed);
    Number<uint64_t>(partition.log_index_);
    Number<uint64_t>(partition.restored_at_);
    Number<uint64_t>(partition.best_step_);
    Number<uint64_t>(partition.version_);
    Number<uint64_t>(partition.min_clock_);
    Number<uint64_t>(partition.counters_.pushes_applied);
    Number<uint64_t>(partition.counters_.pushes_late);
    Number<uint64_t>(partition.counters_.keys_pushed);
    for (const Partition::Worker& worker : partition.workers_) {
      Number<uint64_t>(worker.incarnation);
      Number<uint64_t>(worker.clock);
      Number<uint64_t>(worker.counts_from);
      Number<uint8_t>(worker.released);
      Window(partition.WindowOf(worker));
    }
    Number<uint32_t>(partition.clients_.size());
    for (const auto& [number, client] : partition.clients_) {
      Number<uint32_t>(number);
      Number<uint64_t>(client.incarnation);
      Window(client.window);
    }
    Number<uint32_t>(partition.tables_.size());
    for (const auto& [id, part] : partition.tables_) Table(part);
    if (options.consistency.mode() == SYNC) Sum(partition.step_sum_);
    Flush();
  }

 private:
  template <typename T>
  void Number(T value) {
    Bytes(&value, sizeof(value));
  }

  void Bytes(const void* data, size_t size) {
    const char* rest = static_cast<const char*>(data);
    while (size > 0) {
      if (filled_ == kChunkBytes || chunk_ == nullptr) {
        Flush();
        chunk_ = std::make_shared_for_overwrite<char[]>(kChunkBytes);
        filled_ = flushed_ = 0;
      }
      const size_t count = std::min(size, kChunkBytes - filled_);
      std::memcpy(chunk_.get() + filled_, rest, count);
      filled_ += count;
      rest += count;
      size -= count;
    }
  }

  // Of the chunk, what comes after goes on being used.
  void Flush() {
    if (filled_ > flushed_) sink_(chunk_.get() + flushed_, filled_ - flushed_, chunk_);
    flushed_ = filled_;
  }

  void Lent(const std::shared_ptr<const BlockLoan>& loan) {
    const size_t size = loan->size() * sizeof(float);
    const char* data = reinterpret_cast<const char*>(loan->data());
    if (size < kMinLentBytes) return Bytes(data, size);
    Flush();
    sink_(data, size, loan);
  }

  void Fragments(const ByteView& bytes) {
    for (const ByteView::Fragment& fragment : bytes.fragments()) Bytes(fragment.data(), fragment.size());
  }

  void Window(const PushWindow& window) {
    Number<uint64_t>(window.contiguous());
    uint64_t ahead = window.count() - window.contiguous();
    Number<uint16_t>(ahead);
    for (uint16_t distance = 1; ahead > 0; ++distance) {
      if (window.Look(window.contiguous() + distance) != PushWindow::Answer::kDuplicate) continue;
      Number<uint16_t>(distance);
      --ahead;
    }
  }

  void Table(const TablePart& part) {
    const TableSchema& table = part.table();
    const std::string spec = table.spec().SerializeAsString();
    Number<uint32_t>(spec.size());
    Bytes(spec.data(), spec.size());
    Number<uint64_t>(part.row_count());
    if (table.is_dense()) {
      for (const auto& [key, block] : part.blocks_) {
        Number<uint64_t>(key);
        Lent(std::make_shared<const BlockLoan>(block.weights.Lend()));
        Lent(std::make_shared<const BlockLoan>(block.state.Lend()));
      }
    } else {
      const size_t row_bytes = (table.MaxRowWidth() + part.StateFloats(table.MaxRowWidth())) * sizeof(float);
      Rows(part.rows_, row_bytes);
    }
    Number<uint8_t>(part.best_ != nullptr);
    if (part.best_ == nullptr) return;
    const TablePart::Best& best = *part.best_;
    Number<uint64_t>(best.keys.size());
    for (size_t i = 0; i < best.keys.size(); ++i) {
      Number<uint64_t>(best.keys[i]);
      if (table.is_dense()) {
        Lent(best.blocks[i]);
      } else {
        Bytes(&best.weights[i * table.MaxRowWidth()], table.MaxRowWidth() * sizeof(float));
      }
    }
  }

  void Rows(const RowStore& store, size_t row_bytes) {
    for (const auto& [key, row] : SortedRows(store)) {
      Number<uint64_t>(key);
      Bytes(row, row_bytes);
    }
  }

  void Sum(const StepSum& sum) {
    Number<uint64_t>(sum.key_count_);
    const StepSum::Rank none;
    for (uint32_t number = 0; number < sum.ranks_; ++number) {
      const auto open = sum.open_.find(number);
      const StepSum::Rank& rank = open == sum.open_.end() ? none : open->second;
      Number<uint64_t>(rank.next_ordinal);
      Number<uint32_t>(rank.early.size());
      for (const auto& [ordinal, staged] : rank.early) {
        Number<uint64_t>(ordinal);
        Number<uint32_t>(staged.table->id());
        Number<uint64_t>(staged.gradient.keys.size() / sizeof(uint64_t));
        Fragments(staged.gradient.keys);
        Fragments(staged.gradient.values);
      }
    }
    Number<uint32_t>(sum.sums_.size());
    for (const auto& [id, table_sum] : sum.sums_) {
      Number<uint32_t>(id);
      Number<uint64_t>(table_sum.rows.size());
      for (const auto& [key, row] : SortedRows(table_sum.rows)) {
        Number<uint64_t>(key);
        Bytes(row, table_sum.table->RowWidth(key) * sizeof(float));
      }
    }
  }

  const Sink sink_;
  std::shared_ptr<char[]> chunk_;
  size_t filled_ = 0;
  size_t flushed_ = 0;
};

class PartitionLoader {
 public:
  PartitionLoader(uint32_t index, const PartitionOptions& options, const ByteView& bytes)
      : partition_(index, options), fragments_(bytes.fragments()), left_(bytes.size()), size_(bytes.size()) {}

  absl::StatusOr<Partition> Load() {
    PAWL_RETURN_IF_ERROR(Header());
    PAWL_RETURN_IF_ERROR(Workers());
    PAWL_RETURN_IF_ERROR(Clients());
    PAWL_RETURN_IF_ERROR(Tables());
    if (options().consistency.mode() == SYNC) PAWL_RETURN_IF_ERROR(Sum());
    if (left_ > 0) return Damaged("the snapshot ends before the bytes do");
    return std::move(partition_);
  }

 private:
  const PartitionOptions& options() const { return partition_.options_; }

  absl::Status Damaged(absl::string_view problem) const {
    return absl::DataLossError(
        absl::StrCat("snapshot of partition ", partition_.index_, ", byte ", size_ - left_, " of ", size_, ": ", problem));
  }

  // Whether `count` things of at least `bytes` each can be there.
  absl::Status Expect(uint64_t count, size_t bytes, absl::string_view what) const {
    if (count <= left_ / bytes) return absl::OkStatus();
    return Damaged(absl::StrCat(count, " ", what, " of ", bytes, " bytes or more do not fit what is left"));
  }

  // REQUIRES: so much is left.
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
    return absl::InvalidArgumentError(
        absl::StrCat("snapshot of partition ", partition_.index_, ": its ", what, " is ", number, ", not ", expected));
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
    if (std::memcmp(magic, kMagic, sizeof(kMagic)) != 0) return Damaged("it does not begin as a snapshot does");
    PAWL_RETURN_IF_ERROR(SameAsJob<uint32_t>(kFormat, "format"));
    PAWL_RETURN_IF_ERROR(SameAsJob<uint32_t>(partition_.index_, "partition"));
    PAWL_RETURN_IF_ERROR(SameAsJob<uint32_t>(options().partitions, "number of partitions"));
    PAWL_RETURN_IF_ERROR(SameAsJob<uint32_t>(options().logical_workers, "number of logical workers"));
    PAWL_RETURN_IF_ERROR(SameAsJob<uint32_t>(options().consistency.mode(), "consistency.mode"));
    PAWL_RETURN_IF_ERROR(SameAsJob<uint32_t>(options().consistency.staleness(), "consistency.staleness"));
    PAWL_RETURN_IF_ERROR(SameAsJob<uint32_t>(options().consistency.backup_workers(), "consistency.backup_workers"));
    PAWL_RETURN_IF_ERROR(SameAsJob<uint64_t>(options().job_seed, "seed"));
    PAWL_RETURN_IF_ERROR(Number(partition_.log_index_, "log_index"));
    PAWL_RETURN_IF_ERROR(Number(partition_.restored_at_, "restored_at"));
    if (partition_.restored_at_ > partition_.log_index_) return Damaged("restored_at is beyond log_index");
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
      if (distance <= previous || distance >= kPushWindow) return Damaged("ordinals out of order or beyond the window");
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
      if (counts_from > partition_.min_clock_) return Damaged("a clock counts from beyond min_clock");
      worker.counts_from = counts_from;
      worker.released = released;
      if (is_sync && (worker.released || worker.counts_from > 0)) return Damaged("a released logical worker in SYNC");
      ahead += worker.clock > partition_.version_;
      PushWindow window;
      PAWL_RETURN_IF_ERROR(Window(window));
      if (window.count() > 0) worker.window = std::make_unique<PushWindow>(window);
    }
    partition_.CountAll();
    // The rest of the partition relies on both.
    if (is_sync ? ahead >= partition_.NeededWorkers() : partition_.version_ > 0) {
      return Damaged("the version is not that of the clocks");
    }
    if (partition_.LowestClock().value_or(partition_.min_clock_) != partition_.min_clock_) {
      return Damaged("min_clock is not that of the clocks");
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
      if (number >= kMaxClients || number <= previous) return Damaged("clients out of order or beyond their limit");
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
      if (spec_bytes > kMaxTableSpecBytes) return Damaged(absl::StrCat("a spec of ", spec_bytes, " bytes"));
      PAWL_RETURN_IF_ERROR(Expect(spec_bytes, 1, "bytes of a spec"));
      std::string bytes(spec_bytes, '\0');
      Take(bytes.data(), spec_bytes);
      TableSpec spec;
      if (!spec.ParseFromString(bytes) || spec.SerializeAsString() != bytes) {
        return Damaged("a spec that is not as protobuf writes it");
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

  // Reads one key of `table`, which comes after `previous`.
  absl::Status Key(const TableSchema& table, std::optional<uint64_t>& previous, uint64_t& key) {
    PAWL_RETURN_IF_ERROR(Number(key, "key"));
    if (key <= previous) return Damaged(absl::StrCat("key ", key, " out of order"));
    previous = key;
    if (table.is_dense() && key >= table.BlockCount()) return Damaged(absl::StrCat("there is no block ", key));
    if (PartitionOf(table.id(), key, options().partitions) != partition_.index_) {
      return Damaged(absl::StrCat("key ", key, " belongs to another partition"));
    }
    return absl::OkStatus();
  }

  // Reads keys, each followed by `floats(key)` floats that go to where `place(key, floats)` points.
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
    part.best_ = std::make_unique<TablePart::Best>();
    TablePart::Best& best = *part.best_;
    return Rows(table, width, [&](uint64_t key, size_t floats) {
      best.keys.push_back(key);
      if (table.is_dense()) {
        SharedBlock block(floats);
        TakeFloats(block);
        best.blocks.push_back(std::make_shared<const BlockLoan>(block.Lend()));
      } else {
        best.weights.resize(best.weights.size() + floats);
        Take(&best.weights[best.weights.size() - floats], floats * sizeof(float));
      }
    });
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
      if (rank.next_ordinal > 0 || !rank.early.empty()) sum.open_.emplace_hint(sum.open_.end(), number, std::move(rank));
    }
    if (!sum.sum_at_close_) {
      while (sum.first_open_rank_ < sum.ranks_ && partition_.HasEnded(sum.first_open_rank_)) ++sum.first_open_rank_;
    }
    uint32_t tables;
    PAWL_RETURN_IF_ERROR(Number(tables, "number of sums"));
    std::optional<uint32_t> previous;
    for (; tables > 0; --tables) {
      uint32_t id;
      PAWL_RETURN_IF_ERROR(Number(id, "table"));
      const TablePart* const part = partition_.FindTable(id);
      if (part == nullptr || id <= previous) return Damaged(absl::StrCat("a sum of table ", id, " out of order"));
      previous = id;
      const TableSchema& table = part->table();
      RowStore rows(table.is_dense() ? 0 : table.MaxRowWidth());
      PAWL_RETURN_IF_ERROR(Rows(
          table, [&](uint64_t key) { return table.RowWidth(key); },
          [&](uint64_t key, size_t floats) {
            bool inserted;
            Take(rows.FindOrInsert(key, floats, inserted), floats * sizeof(float));
          }));
      sum.sums_.emplace(id, StepSum::Sum{part->shared_table(), std::move(rows)});
    }
    return absl::OkStatus();
  }

  absl::Status Early(StepSum& sum, StepSum::Rank& rank) {
    uint64_t ordinal;
    uint32_t id;
    uint64_t keys;
    PAWL_RETURN_IF_ERROR(Number(ordinal, "ordinal"));
    if (ordinal < rank.next_ordinal || (!rank.early.empty() && ordinal <= rank.early.rbegin()->first)) {
      return Damaged(absl::StrCat("an early gradient with ordinal ", ordinal, " out of order"));
    }
    PAWL_RETURN_IF_ERROR(Number(id, "table"));
    const TablePart* const part = partition_.FindTable(id);
    if (part == nullptr) return Damaged(absl::StrCat("an early gradient of table ", id, ", which does not exist"));
    PAWL_RETURN_IF_ERROR(Number(keys, "number of keys"));
    PAWL_RETURN_IF_ERROR(Expect(keys, sizeof(uint64_t), "keys"));
    const size_t key_bytes = keys * sizeof(uint64_t);
    std::shared_ptr<char[]> key_memory = std::make_shared_for_overwrite<char[]>(key_bytes);
    Take(key_memory.get(), key_bytes);
    const ByteView key_view(key_memory.get(), key_bytes);
    size_t value_bytes;
    absl::Status status = part->table().CheckKeys(key_view, partition_.index_, options().partitions, value_bytes);
    if (!status.ok()) return Damaged(status.message());
    PAWL_RETURN_IF_ERROR(Expect(value_bytes, 1, "bytes of values"));
    const auto memory = std::make_shared_for_overwrite<char[]>(key_bytes + value_bytes);
    key_view.CopyTo(memory.get());
    Take(memory.get() + key_bytes, value_bytes);
    const Gradient gradient{ByteView(memory.get(), key_bytes), ByteView(memory.get() + key_bytes, value_bytes), memory};
    status = part->table().CheckGradient(part->table().spec().element_type(), /*exponent=*/0, gradient.keys, gradient.values,
                                         partition_.index_, options().partitions);
    if (!status.ok()) return Damaged(status.message());
    sum.staged_bytes_ += key_bytes + value_bytes;
    rank.early.emplace_hint(rank.early.end(), ordinal, StepSum::Staged{part->shared_table(), gradient});
    return absl::OkStatus();
  }

  Partition partition_;
  absl::Span<const ByteView::Fragment> fragments_;
  ByteView::Fragment fragment_;  // what is left of the present one
  size_t left_;
  const size_t size_;
};

void SavePartition(const Partition& partition, absl::FunctionRef<void(const void* data, size_t size)> sink) {
  PartitionSaver([&](const char* data, size_t size, const std::shared_ptr<const void>&) {
    sink(data, size);
  }).Save(partition);
}

HeldSnapshot HoldSnapshot(const Partition& partition) {
  HeldSnapshot snapshot;
  snapshot.log_index = partition.log_index();
  PartitionSaver([&](const char* data, size_t size, const std::shared_ptr<const void>& owner) {
    snapshot.bytes.Append(data, size);
    if (snapshot.owners.empty() || snapshot.owners.back() != owner) snapshot.owners.push_back(owner);
  }).Save(partition);
  return snapshot;
}

absl::StatusOr<Partition> LoadPartition(uint32_t index, const PartitionOptions& options, const ByteView& bytes) {
  return PartitionLoader(index, options, bytes).Load();
}

uint32_t Fingerprint(const Partition& partition) {
  uint32_t crc = 0;
  SavePartition(partition, [&](const void* data, size_t size) { crc = Crc32c(crc, data, size); });
  return crc;
}

}  // namespace pawl
