#include "server/shard/snapshot/partition_loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/shard/snapshot/partition_fields.h"
#include "server/shard/snapshot/partition_format_2.h"
#include "server/shard/snapshot/partition_snapshot.h"

namespace pawl {
namespace {

using format_2::Kind;

constexpr int kEndStage = 11;

// The order of the sections: a section never has an earlier stage than its predecessor.
int StageOf(Kind kind) {
  switch (kind) {
    case Kind::kJob:
      return 1;
    case Kind::kState:
    case Kind::kTerms:
      return 2;
    case Kind::kRanks:
      return 3;
    case Kind::kClients:
      return 4;
    case Kind::kTable:
    case Kind::kRows:
    case Kind::kBest:
      return 5;
    case Kind::kStep:
      return 6;
    case Kind::kSums:
      return 7;
    case Kind::kEarly:
      return 8;
    case Kind::kRates:
      return 9;
    case Kind::kSquares:
      return 10;
    case Kind::kEnd:
      return kEndStage;
  }
  return 0;
}

template <typename T>
T NumberAt(const char* bytes) {
  T number;
  std::memcpy(&number, bytes, sizeof(number));
  return number;
}

}  // namespace

// The loader for format 2.
class PartitionLoader::Sections : public Fields {
 public:
  Sections(uint32_t index, const PartitionOptions& options)
      : Fields(index, options, /*body=*/{}, format_2::kHeaderBytes) {}

  using Fields::Damaged;

  // Loads the whole sections at the start of `bytes` and returns their size.
  absl::StatusOr<size_t> Take(absl::string_view bytes) {
    size_t taken = 0;
    while (bytes.size() - taken >= format_2::kSectionHeaderBytes) {
      const char* const header = bytes.data() + taken;
      const uint8_t kind = NumberAt<uint8_t>(header);
      const uint8_t flags = NumberAt<uint8_t>(header + 1);
      const uint32_t length = NumberAt<uint32_t>(header + 4);
      if (stage_ == kEndStage) return Damaged("bytes follow the end");
      if (length > kMaxSnapshotSectionBytes)
        return Damaged(absl::StrCat("a section of ", length, " bytes"));
      if (flags > format_2::kSkippable || NumberAt<uint16_t>(header + 2) != 0)
        return Damaged("unknown flags");
      if (bytes.size() - taken - format_2::kSectionHeaderBytes < length) break;
      body_ = bytes.substr(taken + format_2::kSectionHeaderBytes, length);
      position_ += format_2::kSectionHeaderBytes;
      PAWL_RETURN_IF_ERROR(Section(kind, flags));
      taken += format_2::kSectionHeaderBytes + length;
    }
    return taken;
  }

  absl::StatusOr<Partition> Finish() {
    if (stage_ != kEndStage) return Damaged("the snapshot is truncated");
    PAWL_RETURN_IF_ERROR(FitClocks(has_squares_));
    return std::move(partition_);
  }

 private:
  absl::Status Section(uint8_t number, uint8_t flags) {
    const Kind kind = static_cast<Kind>(number);
    const int stage = StageOf(kind);
    if (stage == 0) {
      if ((flags & format_2::kSkippable) == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("snapshot of partition ", partition_.index_, ", byte ", position_,
                         ": a section of kind ", number,
                         ", which is unknown to this version; read it with the version that wrote "
                         "it, or a later one"));
      }
      position_ += body_.size();
      ++sections_;
      return absl::OkStatus();
    }
    if (flags != 0) return Damaged("a section that must not be skipped is marked as skippable");
    if (stage < stage_) return Damaged(absl::StrCat("a section of kind ", number, " out of order"));
    // Sections that appear once, and sections that must have appeared.
    const bool is_unique = stage != 3 && stage != 4 && stage != 5 && stage != 7 && stage != 8;
    if (is_unique && stage == stage_ && number <= last_number_)
      return Damaged(absl::StrCat("a second section of kind ", number));
    if (stage > 1 && stage_ < 1) return Damaged("it does not start with the job");
    if (stage > 2 && stage_ < 2) return Damaged("the state is missing");
    if (stage > 3 && stage_ <= 3) PAWL_RETURN_IF_ERROR(CheckRanks());
    if (stage > 5 && stage_ <= 5 && is_sync() != (stage == 6))
      return Damaged("the step section is unexpected or missing");
    if (stage > 8) PAWL_RETURN_IF_ERROR(CheckStaged());
    if (kind == Kind::kTerms &&
        (last_number_ != static_cast<uint8_t>(Kind::kState) || body_.empty())) {
      return Damaged("the terms do not follow the state, or are empty");
    }
    stage_ = stage;
    last_number_ = number;
    if (kind != Kind::kBest) FinishBest();
    switch (kind) {
      case Kind::kJob:
        PAWL_RETURN_IF_ERROR(Job());
        break;
      case Kind::kState:
        PAWL_RETURN_IF_ERROR(State());
        break;
      case Kind::kTerms:
        PAWL_RETURN_IF_ERROR(Terms());
        break;
      case Kind::kRanks:
        PAWL_RETURN_IF_ERROR(Ranks());
        break;
      case Kind::kClients:
        PAWL_RETURN_IF_ERROR(Clients());
        break;
      case Kind::kTable:
        PAWL_RETURN_IF_ERROR(Table());
        break;
      case Kind::kRows:
        PAWL_RETURN_IF_ERROR(Rows());
        break;
      case Kind::kBest:
        PAWL_RETURN_IF_ERROR(Best());
        break;
      case Kind::kStep:
        PAWL_RETURN_IF_ERROR(Number(partition_.step_sum_.key_count_, "key_count"));
        break;
      case Kind::kSums:
        PAWL_RETURN_IF_ERROR(Sums());
        break;
      case Kind::kEarly:
        PAWL_RETURN_IF_ERROR(Early());
        break;
      case Kind::kRates:
        PAWL_RETURN_IF_ERROR(Rates());
        break;
      case Kind::kSquares:
        PAWL_RETURN_IF_ERROR(Squares());
        break;
      case Kind::kEnd:
        PAWL_RETURN_IF_ERROR(End());
        break;
    }
    if (!body_.empty()) return Damaged("a section is longer than its content");
    ++sections_;
    return absl::OkStatus();
  }

  absl::Status Terms() {
    size_t runs = 0;
    while (!body_.empty()) {
      TermRun run;
      PAWL_RETURN_IF_ERROR(Number(run.first_index, "first_index"));
      PAWL_RETURN_IF_ERROR(Number(run.term, "term"));
      if (run.first_index == 0 || run.first_index > partition_.log_index_)
        return Damaged("a term without a change");
      if (!partition_.terms_.Begin(run.first_index, run.term)) return Damaged("terms out of order");
      if (partition_.terms_.runs().size() != ++runs)
        return Damaged("a term twice, without changes, or too many of them");
    }
    return absl::OkStatus();
  }

  absl::Status Ranks() {
    uint32_t first;
    PAWL_RETURN_IF_ERROR(Number(first, "the first rank"));
    if (first != ranks_) return Damaged(absl::StrCat("rank ", first, " out of order"));
    while (!body_.empty()) {
      if (ranks_ == options().logical_workers) return Damaged("more ranks than the job has");
      PAWL_RETURN_IF_ERROR(Rank(ranks_++));
    }
    return absl::OkStatus();
  }

  absl::Status Rank(uint32_t rank) {
    Partition::Worker& worker = partition_.workers_[rank];
    uint8_t flags;
    PAWL_RETURN_IF_ERROR(Number(flags, "flags"));
    if (flags >= 2 * format_2::kNextOrdinal) return Damaged("unknown flags of a rank");
    worker.released = (flags & format_2::kReleased) != 0;
    PAWL_RETURN_IF_ERROR(Number(worker.incarnation, "incarnation"));
    PAWL_RETURN_IF_ERROR(Number(worker.clock, "clock"));
    if ((flags & format_2::kCountsFrom) != 0) {
      uint64_t counts_from;
      PAWL_RETURN_IF_ERROR(Number(counts_from, "counts_from"));
      if (counts_from > partition_.min_clock_) return Damaged("counts_from is beyond min_clock");
      worker.counts_from = counts_from;
    }
    if ((flags & format_2::kWindow) != 0) PAWL_RETURN_IF_ERROR(Window(worker));
    if (is_sync() && (worker.released || worker.counts_from > 0))
      return Damaged("a released logical worker in SYNC");
    if ((flags & format_2::kNextOrdinal) == 0) return absl::OkStatus();
    if (!is_sync()) return Damaged("a rank has summed gradients, and the job is not SYNC");
    uint64_t next_ordinal;
    PAWL_RETURN_IF_ERROR(Number(next_ordinal, "next_ordinal"));
    if (next_ordinal > 0) partition_.step_sum_.open_[rank].next_ordinal = next_ordinal;
    return absl::OkStatus();
  }

  absl::Status CheckRanks() {
    if (ranks_ != options().logical_workers) return Damaged("ranks are missing");
    partition_.CountAll();
    if (is_sync()) FindFirstOpenRank();
    return absl::OkStatus();
  }

  absl::Status Clients() {
    while (!body_.empty()) PAWL_RETURN_IF_ERROR(Client());
    return absl::OkStatus();
  }

  absl::Status Table() {
    if (partition_.tables_.size() >= kMaxTablesOfPartition) {
      return Damaged(absl::StrCat("a job has at most ", kMaxTablesOfPartition, " tables"));
    }
    if (body_.size() > kMaxTableSpecBytes)
      return Damaged(absl::StrCat("a spec of ", body_.size(), " bytes"));
    return TableOfSpec(body_.size());
  }

  // The header of a section of rows.
  absl::Status RowsHeader(uint32_t& table) {
    uint32_t flags;
    PAWL_RETURN_IF_ERROR(Number(table, "table"));
    PAWL_RETURN_IF_ERROR(Number(flags, "flags"));
    if (flags == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("snapshot of partition ", partition_.index_, ", byte ", position_,
                     ": rows with flags ", flags,
                     ", which are unknown to this version; read it with the version that wrote it, "
                     "or a later one"));
  }

  // The table of the last kTable section.
  absl::StatusOr<TablePart*> CurrentTable() {
    uint32_t id;
    PAWL_RETURN_IF_ERROR(RowsHeader(id));
    if (partition_.tables_.empty() || partition_.tables_.rbegin()->first != id) {
      return Damaged(absl::StrCat("rows of table ", id, " do not follow its spec"));
    }
    return &partition_.tables_.rbegin()->second;
  }

  // Reads the section's keys, each followed by `floats(key)` floats, which go to `place(key,
  // floats)`; that is null for a repeated key. `rows`: where `place` looks up the keys of a sparse
  // table.
  template <typename Floats, typename Place>
  absl::Status EachRow(const TableSchema& table, Floats floats, const RowStore* rows, Place place) {
    constexpr size_t kRowsAhead = 16;
    const size_t ahead =
        table.is_dense() ? 0 : kRowsAhead * (sizeof(uint64_t) + floats(0) * sizeof(float));
    while (!body_.empty()) {
      if (ahead > 0 && body_.size() >= ahead + sizeof(uint64_t))
        rows->Prefetch(NumberAt<uint64_t>(body_.data() + ahead));
      uint64_t key;
      PAWL_RETURN_IF_ERROR(Number(key, "key"));
      PAWL_RETURN_IF_ERROR(CheckKey(table, key));
      const size_t count = floats(key);
      if (body_.size() < count * sizeof(float)) return Damaged("the section ends within a row");
      float* const row = place(key, count);
      if (row == nullptr && count > 0) return Damaged(absl::StrCat("key ", key, " twice"));
      if (count > 0) std::memcpy(row, body_.data(), count * sizeof(float));
      Skip(count * sizeof(float));
      ++rows_;
    }
    return absl::OkStatus();
  }

  static float* NewRow(RowStore& rows, uint64_t key, size_t floats) {
    bool inserted = false;
    if (rows.size() == std::numeric_limits<uint32_t>::max()) return nullptr;
    float* const row = rows.FindOrInsert(key, floats, inserted);
    return inserted ? row : nullptr;
  }

  absl::Status Rows() {
    PAWL_ASSIGN_OR_RETURN(TablePart* const part, CurrentTable());
    if (best_ != nullptr) PAWL_RETURN_IF_ERROR(NoBestOf(part->table().id()));
    const TableSchema& table = part->table();
    const auto floats = [&](uint64_t key) {
      const size_t width = table.RowWidth(key);
      return width + part->StateFloats(width);
    };
    if (!table.is_dense()) {
      return EachRow(table, floats, &part->rows_,
                     [&](uint64_t key, size_t count) { return NewRow(part->rows_, key, count); });
    }
    // A block's state does not follow its weights.
    std::vector<float> row;
    uint64_t block_key = 0;
    bool is_open = false;
    const auto close = [&] {
      if (!std::exchange(is_open, false)) return;
      const size_t width = table.RowWidth(block_key);
      TablePart::Block block{SharedBlock(width), SharedBlock(row.size() - width)};
      std::copy(row.begin(), row.begin() + static_cast<ptrdiff_t>(width), block.weights.Mutable());
      std::copy(row.begin() + static_cast<ptrdiff_t>(width), row.end(), block.state.Mutable());
      part->blocks_.emplace(block_key, std::move(block));
      part->block_floats_ += row.size();
    };
    absl::Status status =
        EachRow(table, floats, nullptr, [&](uint64_t key, size_t count) -> float* {
          close();
          if (part->blocks_.contains(key)) return nullptr;
          block_key = key;
          is_open = true;
          row.resize(count);
          return row.data();
        });
    if (status.ok()) close();
    return status;
  }

  absl::Status NoBestOf(uint32_t table) const {
    if (best_table_ != table) return absl::OkStatus();
    return Damaged("rows after the best weights of the table");
  }

  absl::Status Best() {
    PAWL_ASSIGN_OR_RETURN(TablePart* const part, CurrentTable());
    const TableSchema& table = part->table();
    if (best_ == nullptr || best_table_ != table.id()) {
      best_table_ = table.id();
      best_ = std::make_shared<HeldTable::Best>();
      best_rows_.emplace(table.is_dense() ? 0 : table.MaxRowWidth());
      part->best_ = best_;
    }
    return EachRow(
        table, [&](uint64_t key) { return table.RowWidth(key); },
        best_rows_.has_value() ? &*best_rows_ : nullptr,
        [&](uint64_t key, size_t floats) -> float* {
          if (!table.is_dense()) return NewRow(*best_rows_, key, floats);
          if (!best_->blocks.empty() && key <= best_->blocks.back().first) return nullptr;
          SharedBlock block(floats);
          float* const memory = block.Mutable();
          best_->blocks.emplace_back(key, block.Lend());
          return memory;
        });
  }

  void FinishBest() {
    if (best_rows_.has_value()) best_->rows = best_rows_->Hold();
    best_rows_.reset();
  }

  absl::Status Sums() {
    if (!is_sync()) return Damaged("sums of gradients, and the job is not SYNC");
    uint32_t id;
    PAWL_RETURN_IF_ERROR(RowsHeader(id));
    const TablePart* const part = partition_.FindTable(id);
    auto& sums = partition_.step_sum_.sums_;
    if (part == nullptr || (!sums.empty() && id < sums.rbegin()->first)) {
      return Damaged(absl::StrCat("a sum of table ", id, " out of order"));
    }
    const TableSchema& table = part->table();
    RowStore& rows = sums.try_emplace(id, part->shared_table()).first->second.rows_;
    return EachRow(
        table, [&](uint64_t key) { return table.RowWidth(key); }, &rows,
        [&](uint64_t key, size_t floats) { return NewRow(rows, key, floats); });
  }

  // An early gradient whose bytes are still arriving.
  struct Staged {
    uint32_t rank = 0;
    uint64_t ordinal = 0;
    const TablePart* part = nullptr;
    size_t key_bytes = 0;
    size_t value_bytes = 0;
    std::shared_ptr<std::string> bytes;
  };

  absl::Status CheckStaged() const {
    return staged_.bytes == nullptr ? absl::OkStatus() : Damaged("an early gradient is incomplete");
  }

  absl::Status Early() {
    if (!is_sync()) return Damaged("an early gradient, and the job is not SYNC");
    Staged next;
    uint32_t id;
    uint64_t key_bytes;
    uint64_t value_bytes;
    uint64_t offset;
    PAWL_RETURN_IF_ERROR(Number(next.rank, "rank"));
    PAWL_RETURN_IF_ERROR(Number(id, "table"));
    PAWL_RETURN_IF_ERROR(Number(next.ordinal, "ordinal"));
    PAWL_RETURN_IF_ERROR(Number(key_bytes, "bytes of keys"));
    PAWL_RETURN_IF_ERROR(Number(value_bytes, "bytes of values"));
    PAWL_RETURN_IF_ERROR(Number(offset, "offset"));
    if (staged_.bytes == nullptr) {
      next.part = partition_.FindTable(id);
      if (next.part == nullptr)
        return Damaged(absl::StrCat("an early gradient of table ", id, ", which does not exist"));
      StepSum& sum = partition_.step_sum_;
      if (next.rank >= sum.ranks_) return Damaged("an early gradient of an unknown rank");
      const auto open = sum.open_.find(next.rank);
      if (open != sum.open_.end() &&
          (next.ordinal < open->second.next_ordinal ||
           (!open->second.early.empty() && next.ordinal <= open->second.early.rbegin()->first))) {
        return Damaged(
            absl::StrCat("an early gradient with ordinal ", next.ordinal, " out of order"));
      }
      next.key_bytes = key_bytes;
      next.value_bytes = value_bytes;
      next.bytes = std::make_shared<std::string>();
      staged_ = std::move(next);
    } else if (next.rank != staged_.rank || id != staged_.part->table().id() ||
               next.ordinal != staged_.ordinal || key_bytes != staged_.key_bytes ||
               value_bytes != staged_.value_bytes) {
      return Damaged("an early gradient is incomplete");
    }
    if (offset != staged_.bytes->size())
      return Damaged("a piece of an early gradient out of order");
    // A claimed size is never allocated before its bytes arrive.
    if (staged_.key_bytes > std::numeric_limits<uint32_t>::max() ||
        staged_.value_bytes > std::numeric_limits<uint32_t>::max() ||
        offset + body_.size() > staged_.key_bytes + staged_.value_bytes ||
        (body_.empty() && offset > 0)) {
      return Damaged("an early gradient is longer than stated");
    }
    staged_.bytes->append(body_.data(), body_.size());
    Skip(body_.size());
    if (staged_.bytes->size() < staged_.key_bytes + staged_.value_bytes) return absl::OkStatus();
    return AddEarly(std::exchange(staged_, Staged()));
  }

  absl::Status AddEarly(const Staged& staged) {
    const std::shared_ptr<const std::string> memory = staged.bytes;
    const Gradient gradient{ByteView(memory->data(), staged.key_bytes),
                            ByteView(memory->data() + staged.key_bytes, staged.value_bytes),
                            memory};
    const TableSchema& table = staged.part->table();
    const absl::Status status =
        table.CheckGradient(table.spec().element_type(), /*exponent=*/0, gradient.keys,
                            gradient.values, partition_.index_, options().partitions);
    if (!status.ok()) return Damaged(status.message());
    StepSum& sum = partition_.step_sum_;
    auto& early = sum.open_[staged.rank].early;
    sum.staged_bytes_ += StepSum::StagedBytes(gradient);
    early.emplace_hint(early.end(), staged.ordinal,
                       StepSum::Staged{staged.part->shared_table(), gradient});
    return absl::OkStatus();
  }

  absl::Status Rates() {
    if (body_.empty()) return Damaged("no learning rates");
    // In ascending order, those that are pending after the others.
    std::optional<std::pair<uint32_t, uint32_t>> previous;
    while (!body_.empty()) {
      uint32_t table;
      uint32_t is_pending;
      uint64_t ordinal;
      float rate;
      PAWL_RETURN_IF_ERROR(Number(table, "table"));
      PAWL_RETURN_IF_ERROR(Number(is_pending, "pending"));
      PAWL_RETURN_IF_ERROR(Number(ordinal, "ordinal"));
      PAWL_RETURN_IF_ERROR(Number(rate, "learning rate"));
      const std::pair place(is_pending, table);
      const auto part = partition_.tables_.find(table);
      if (part == partition_.tables_.end() || is_pending > (is_sync() ? 1u : 0u) ||
          (previous.has_value() && place <= *previous) || !(rate > 0) || !std::isfinite(rate)) {
        return Damaged(absl::StrCat("learning rate ", rate, " of table ", table));
      }
      previous = place;
      if (is_pending != 0) {
        partition_.pending_rates_[table] = {ordinal, rate};
      } else {
        part->second.set_base_rate(rate);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Squares() {
    if (!is_sync()) return Damaged("squares of gradients, and the job is not SYNC");
    has_squares_ = true;
    has_open_squares_ = body_.size() > sizeof(double);
    PAWL_RETURN_IF_ERROR(Square(partition_.closed_squares_));
    if (has_open_squares_) PAWL_RETURN_IF_ERROR(Square(partition_.open_squares_));
    // A job without clip_global_norm that evaluates a checkpoint of one with it.
    if (!partition_.ClipsGlobalNorm()) partition_.closed_squares_ = 0;
    return absl::OkStatus();
  }

  absl::Status Square(double& squares) {
    PAWL_RETURN_IF_ERROR(Number(squares, "the sum of squares"));
    // A sum of gradients may be infinite, or infinity less infinity.
    return squares < 0 ? Damaged("a negative sum of squares") : absl::OkStatus();
  }

  absl::Status End() {
    PAWL_RETURN_IF_ERROR(CheckClocks(has_squares_));
    // Otherwise the step would close with the factor of other gradients.
    if (has_open_squares_ != (has_squares_ && partition_.HaveAllEnded(partition_.version_)))
      return Damaged("the squares of the open step contradict the clocks");
    uint64_t sections;
    uint64_t rows;
    PAWL_RETURN_IF_ERROR(Number(sections, "the number of sections"));
    PAWL_RETURN_IF_ERROR(Number(rows, "the number of rows"));
    if (sections != sections_ || rows != rows_) {
      return Damaged(absl::StrCat("there are ", sections_, " sections and ", rows_, " rows, not ",
                                  sections, " and ", rows));
    }
    return absl::OkStatus();
  }

  int stage_ = 0;
  uint8_t last_number_ = 0;
  uint32_t ranks_ = 0;
  uint64_t sections_ = 0;
  uint64_t rows_ = 0;
  bool has_squares_ = false;
  bool has_open_squares_ = false;
  uint32_t best_table_ = 0;
  std::shared_ptr<HeldTable::Best> best_;
  std::optional<RowStore> best_rows_;
  Staged staged_;
};

PartitionLoader::PartitionLoader(uint32_t index, const PartitionOptions& options)
    : index_(index), options_(options) {}
PartitionLoader::PartitionLoader(PartitionLoader&&) noexcept = default;
PartitionLoader::~PartitionLoader() = default;

absl::Status PartitionLoader::Append(absl::string_view bytes) {
  if (status_.ok()) status_ = Take(bytes);
  return status_;
}

absl::Status PartitionLoader::Take(absl::string_view bytes) {
  if (!buffer_.empty() || format_ != format_2::kFormat) {
    // Buffer no more than completes the present section, whose size is known to be small.
    buffer_.append(bytes.data(), bytes.size());
    bytes = buffer_;
  }
  size_t taken = 0;
  if (format_ == 0) {
    if (bytes.size() < format_2::kHeaderBytes) return absl::OkStatus();
    if (std::memcmp(bytes.data(), format_2::kMagic, sizeof(format_2::kMagic)) != 0) {
      return absl::DataLossError(absl::StrCat(
          "snapshot of partition ", index_, ", byte 0: it does not start with a snapshot header"));
    }
    const uint32_t format = NumberAt<uint32_t>(bytes.data() + sizeof(format_2::kMagic));
    if (format != 1 && format != format_2::kFormat) {
      return absl::InvalidArgumentError(
          absl::StrCat("snapshot of partition ", index_, ": its format is ", format,
                       "; this version reads formats 1 and ", format_2::kFormat));
    }
    format_ = format;
    if (format_ == format_2::kFormat) {
      sections_ = std::make_unique<Sections>(index_, options_);
      taken = format_2::kHeaderBytes;
    }
  }
  if (format_ == 1) return absl::OkStatus();
  PAWL_ASSIGN_OR_RETURN(const size_t sections, sections_->Take(bytes.substr(taken)));
  taken += sections;
  if (buffer_.empty()) {
    buffer_.assign(bytes.data() + taken, bytes.size() - taken);
  } else {
    buffer_.erase(0, taken);
  }
  return absl::OkStatus();
}

absl::StatusOr<Partition> PartitionLoader::Finish() {
  PAWL_RETURN_IF_ERROR(status_);
  if (format_ == 1) return LoadFormat1(index_, options_, buffer_);
  if (sections_ == nullptr || !buffer_.empty()) {
    const absl::string_view problem = "the snapshot is truncated";
    if (sections_ != nullptr) return sections_->Damaged(problem);
    return absl::DataLossError(
        absl::StrCat("snapshot of partition ", index_, ", byte ", buffer_.size(), ": ", problem));
  }
  return sections_->Finish();
}

}  // namespace pawl
