#include "server/shard/snapshot/partition_snapshot.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "server/shard/snapshot/partition_format_2.h"
#include "server/shard/snapshot/partition_loader.h"

namespace pawl {

using format_2::Kind;

struct HeldSnapshot::State {
  struct Sum {
    std::shared_ptr<const TableSchema> table;
    HeldRows rows;
  };
  struct Early {
    uint32_t rank;
    uint64_t ordinal;
    uint32_t table;
    Gradient gradient;
  };
  // The part that Read emits next.
  enum class Part { kHead, kTables, kStep, kSums, kEarly, kEnd, kOver };

  // The header and the sections before the tables, and the range of its bytes that holds the terms.
  std::string head;
  size_t terms_begin = 0;
  size_t terms_end = 0;
  std::vector<HeldTable> tables;
  bool is_sync = false;
  uint64_t key_count = 0;
  // The body of the section of learning rates.
  std::string rates;
  // The body of the section of squares; empty: none.
  std::string squares;
  std::vector<Sum> sums;
  std::vector<Early> early;

  Part part = Part::kHead;
  uint64_t sections = 0;
  uint64_t rows = 0;
  // The position within the part: the table, sum or gradient; its subset; and the slab, block or
  // offset.
  size_t item = 0;
  enum class TableStage { kSpec, kRows, kBest } stage = TableStage::kSpec;
  size_t position = 0;
};

namespace {

void AppendFloats(std::string& out, const float* floats, size_t count) {
  out.append(reinterpret_cast<const char*>(floats), count * sizeof(float));
}

void AppendWindow(std::string& out, const PushWindow& window) {
  AppendNumber<uint64_t>(out, window.contiguous());
  uint64_t ahead = window.count() - window.contiguous();
  AppendNumber<uint16_t>(out, ahead);
  for (uint16_t distance = 1; ahead > 0; ++distance) {
    if (window.Look(window.contiguous() + distance) != PushWindow::Answer::kDuplicate) continue;
    AppendNumber<uint16_t>(out, distance);
    --ahead;
  }
}

// The hash of one row of a table or of one of its other row sets.
uint64_t HashRow(Kind kind, uint32_t table, uint64_t key, const float* row, size_t floats) {
  const std::array<uint64_t, 2> name = {static_cast<uint64_t>(kind) << 32 | table, key};
  return XXH3_64bits_withSeed(row, floats * sizeof(float), XXH3_64bits(name.data(), sizeof(name)));
}

// Writes a section whose body grows at the end of `out`.
class Section {
 public:
  Section(std::string& out, uint64_t& sections, Kind kind) : out_(out), begin_(out.size()) {
    ++sections;
    AppendNumber<uint8_t>(out_, static_cast<uint8_t>(kind));
    AppendNumber<uint8_t>(out_, 0);
    AppendNumber<uint16_t>(out_, 0);
    AppendNumber<uint32_t>(out_, 0);
  }
  ~Section() {
    const uint32_t bytes = static_cast<uint32_t>(body_bytes());
    std::memcpy(out_.data() + begin_ + 4, &bytes, sizeof(bytes));
  }
  size_t body_bytes() const { return out_.size() - begin_ - format_2::kSectionHeaderBytes; }
  bool IsFull() const { return body_bytes() >= format_2::kSectionBytes; }

 private:
  std::string& out_;
  const size_t begin_;
};

}  // namespace

// Holds, writes and hashes partitions. The state has the order of the document.
class PartitionSaver {
 public:
  using State = HeldSnapshot::State;

  explicit PartitionSaver(State& state) : state_(state) {}

  void Hold(const Partition& partition) {
    state_.is_sync = partition.options_.consistency.mode() == SYNC;
    Head(partition);
    state_.tables.reserve(partition.tables_.size());
    for (const auto& [id, part] : partition.tables_) state_.tables.push_back(part.Hold());
    Rates(partition);
    Squares(partition);
    if (!state_.is_sync) return;
    const StepSum& sum = partition.step_sum_;
    state_.key_count = sum.key_count_;
    for (const auto& [id, table_sum] : sum.sums_)
      state_.sums.push_back({table_sum.table(), table_sum.Hold()});
    for (const auto& [number, rank] : sum.open_) {
      for (const auto& [ordinal, staged] : rank.early) {
        state_.early.push_back({number, ordinal, staged.table->id(), staged.gradient});
      }
    }
  }

  uint64_t ApproximateBytes() const {
    uint64_t bytes = state_.head.size();
    const auto rows = [](uint64_t count, uint64_t floats) {
      return count * (sizeof(uint64_t) + floats * sizeof(float));
    };
    for (const HeldTable& table : state_.tables) {
      const uint64_t width = table.table->MaxRowWidth();
      bytes += rows(table.row_count(), width + table.StateFloats(0));
      if (table.best != nullptr)
        bytes += rows(table.best->rows.size() + table.best->blocks.size(), width);
    }
    for (const State::Sum& sum : state_.sums)
      bytes += rows(sum.rows.size(), sum.table->MaxRowWidth());
    for (const State::Early& early : state_.early) {
      bytes += early.gradient.keys.size() + early.gradient.values.size();
    }
    return bytes;
  }

  // Appends one or more sections.
  void ReadSome(std::string& out) {
    switch (state_.part) {
      case State::Part::kHead:
        out.append(state_.head);
        return Next(State::Part::kTables, !state_.tables.empty());
      case State::Part::kTables:
        Table(out, state_.tables[state_.item]);
        return;
      case State::Part::kStep: {
        if (state_.is_sync) {
          const Section section(out, state_.sections, Kind::kStep);
          AppendNumber<uint64_t>(out, state_.key_count);
        }
        return Next(State::Part::kSums, !state_.sums.empty());
      }
      case State::Part::kSums:
        Sum(out, state_.sums[state_.item]);
        return;
      case State::Part::kEarly:
        Early(out, state_.early[state_.item]);
        return;
      case State::Part::kEnd: {
        if (!state_.rates.empty()) {
          const Section section(out, state_.sections, Kind::kRates);
          out.append(state_.rates);
        }
        if (!state_.squares.empty()) {
          const Section section(out, state_.sections, Kind::kSquares);
          out.append(state_.squares);
        }
        const uint64_t sections = state_.sections;
        const Section section(out, state_.sections, Kind::kEnd);
        AppendNumber<uint64_t>(out, sections);
        AppendNumber<uint64_t>(out, state_.rows);
        state_.part = State::Part::kOver;
        return;
      }
      case State::Part::kOver:
        return;
    }
  }

  uint64_t Fingerprint() const {
    XXH3_state_t* const ordered = XXH3_createState();
    XXH3_64bits_reset(ordered);
    const auto update = [&](const void* data, size_t size) {
      XXH3_64bits_update(ordered, data, size);
    };
    const auto number = [&](uint64_t value) { update(&value, sizeof(value)); };
    update(state_.head.data(), state_.terms_begin);
    update(state_.head.data() + state_.terms_end, state_.head.size() - state_.terms_end);
    uint64_t rows = 0;
    for (const HeldTable& table : state_.tables) {
      const uint32_t id = table.table->id();
      const std::string spec = table.table->spec().SerializeAsString();
      number(spec.size());
      update(spec.data(), spec.size());
      number(table.best != nullptr);
      const auto width = [&](uint64_t key) { return table.table->RowWidth(key); };
      table.rows.ForEach([&](uint64_t key, const float* row) {
        rows += HashRow(Kind::kRows, id, key, row, width(key) + table.StateFloats(key));
      });
      for (const HeldTable::Block& block : table.blocks) {
        number(block.key);
        update(block.weights.data(), block.weights.size() * sizeof(float));
        update(block.state.data(), block.state.size() * sizeof(float));
      }
      if (table.best == nullptr) continue;
      table.best->rows.ForEach([&](uint64_t key, const float* row) {
        rows += HashRow(Kind::kBest, id, key, row, width(key));
      });
      for (const auto& [key, weights] : table.best->blocks) {
        number(key);
        update(weights.data(), weights.size() * sizeof(float));
      }
    }
    number(state_.key_count);
    for (const State::Sum& sum : state_.sums) {
      sum.rows.ForEach([&](uint64_t key, const float* row) {
        rows += HashRow(Kind::kSums, sum.table->id(), key, row, sum.table->RowWidth(key));
      });
    }
    for (const State::Early& early : state_.early) {
      number(early.rank);
      number(early.ordinal);
      number(early.table);
      number(early.gradient.keys.size());
      for (const ByteView* view : {&early.gradient.keys, &early.gradient.values}) {
        for (const ByteView::Fragment& fragment : view->fragments())
          update(fragment.data(), fragment.size());
      }
    }
    update(state_.rates.data(), state_.rates.size());
    update(state_.squares.data(), state_.squares.size());
    number(rows);
    const uint64_t fingerprint = XXH3_64bits_digest(ordered);
    XXH3_freeState(ordered);
    return fingerprint;
  }

 private:
  // Continues with the next part, or with the one after it if the next one is empty.
  void Next(State::Part part, bool has_any) {
    state_.part = part;
    state_.item = 0;
    state_.position = 0;
    if (has_any) return;
    if (part == State::Part::kTables) Next(State::Part::kStep, true);
    if (part == State::Part::kSums) Next(State::Part::kEarly, !state_.early.empty());
    if (part == State::Part::kEarly) Next(State::Part::kEnd, true);
  }
  void NextItem(State::Part after, size_t items, bool has_any_after) {
    state_.position = 0;
    if (++state_.item == items) Next(after, has_any_after);
  }

  void Head(const Partition& partition) {
    std::string& out = state_.head;
    const PartitionOptions& options = partition.options_;
    out.append(format_2::kMagic, sizeof(format_2::kMagic));
    AppendNumber<uint32_t>(out, format_2::kFormat);
    {
      const Section section(out, state_.sections, Kind::kJob);
      AppendNumber<uint32_t>(out, partition.index_);
      AppendNumber<uint32_t>(out, options.partitions);
      AppendNumber<uint32_t>(out, options.logical_workers);
      AppendNumber<uint32_t>(out, options.consistency.mode());
      AppendNumber<uint32_t>(out, options.consistency.staleness());
      AppendNumber<uint32_t>(out, options.consistency.backup_workers());
      AppendNumber<uint64_t>(out, options.job_seed);
    }
    {
      const Section section(out, state_.sections, Kind::kState);
      AppendNumber<uint64_t>(out, partition.log_index_);
      AppendNumber<uint64_t>(out, partition.restored_at_);
      AppendNumber<uint64_t>(out, partition.best_step_);
      AppendNumber<uint64_t>(out, partition.version_);
      AppendNumber<uint64_t>(out, partition.min_clock_);
      AppendNumber<uint64_t>(out, partition.counters_.pushes_applied);
      AppendNumber<uint64_t>(out, partition.counters_.pushes_late);
      AppendNumber<uint64_t>(out, partition.counters_.keys_pushed);
    }
    state_.terms_begin = out.size();
    if (!partition.terms_.runs().empty() &&
        partition.terms_.runs().front().first_index <= partition.log_index_) {
      const Section section(out, state_.sections, Kind::kTerms);
      for (const TermRun& run : partition.terms_.runs()) {
        // The last run may have no entries yet.
        if (run.first_index > partition.log_index_) break;
        AppendNumber<uint64_t>(out, run.first_index);
        AppendNumber<uint64_t>(out, run.term);
      }
    }
    state_.terms_end = out.size();
    for (uint32_t rank = 0; rank < options.logical_workers;) {
      const Section section(out, state_.sections, Kind::kRanks);
      AppendNumber<uint32_t>(out, rank);
      for (; rank < options.logical_workers && !section.IsFull(); ++rank) Rank(partition, rank);
    }
    for (auto client = partition.clients_.begin(); client != partition.clients_.end();) {
      const Section section(out, state_.sections, Kind::kClients);
      for (; client != partition.clients_.end() && !section.IsFull(); ++client) {
        AppendNumber<uint32_t>(out, client->first);
        AppendNumber<uint64_t>(out, client->second.incarnation);
        AppendWindow(out, client->second.window);
      }
    }
  }

  void Rank(const Partition& partition, uint32_t rank) {
    std::string& out = state_.head;
    const Partition::Worker& worker = partition.workers_[rank];
    const PushWindow& window = partition.WindowOf(worker);
    const auto open = partition.step_sum_.open_.find(rank);
    const uint64_t next_ordinal =
        open == partition.step_sum_.open_.end() ? 0 : open->second.next_ordinal;
    uint8_t flags = 0;
    if (worker.released) flags |= format_2::kReleased;
    if (worker.counts_from != 0) flags |= format_2::kCountsFrom;
    if (window.count() != 0) flags |= format_2::kWindow;
    if (next_ordinal != 0) flags |= format_2::kNextOrdinal;
    AppendNumber<uint8_t>(out, flags);
    AppendNumber<uint64_t>(out, worker.incarnation);
    AppendNumber<uint64_t>(out, worker.clock);
    if (worker.counts_from != 0) AppendNumber<uint64_t>(out, worker.counts_from);
    if (window.count() != 0) AppendWindow(out, window);
    if (next_ordinal != 0) AppendNumber<uint64_t>(out, next_ordinal);
  }

  void Rates(const Partition& partition) {
    const auto add = [&](uint32_t table, bool is_pending, uint64_t ordinal, float rate) {
      AppendNumber<uint32_t>(state_.rates, table);
      AppendNumber<uint32_t>(state_.rates, is_pending);
      AppendNumber<uint64_t>(state_.rates, ordinal);
      AppendFloats(state_.rates, &rate, 1);
    };
    for (const auto& [id, part] : partition.tables_) {
      if (part.base_rate() != 0) add(id, false, 0, part.base_rate());
    }
    for (const auto& [id, pending] : partition.pending_rates_)
      add(id, true, pending.ordinal, pending.rate);
  }

  void Squares(const Partition& partition) {
    if (!partition.ClipsGlobalNorm()) return;
    AppendNumber<double>(state_.squares, partition.closed_squares_);
    if (partition.HaveAllEnded(partition.version_))
      AppendNumber<double>(state_.squares, partition.open_squares_);
  }

  // One row of a section.
  void Row(std::string& out, uint64_t key, const float* row, size_t floats) {
    ++state_.rows;
    AppendNumber<uint64_t>(out, key);
    AppendFloats(out, row, floats);
  }

  // Writes a section with the rows of whole slabs, starting at state_.position, and releases them
  // if `release` is not null.
  void Slabs(std::string& out, Kind kind, uint32_t table, const HeldRows& rows, HeldRows* release,
             absl::FunctionRef<size_t(uint64_t key)> floats) {
    const Section section(out, state_.sections, kind);
    AppendNumber<uint32_t>(out, table);
    AppendNumber<uint32_t>(out, 0);
    while (state_.position < rows.slab_count() && !section.IsFull()) {
      rows.ForEachInSlab(state_.position,
                         [&](uint64_t key, const float* row) { Row(out, key, row, floats(key)); });
      if (release != nullptr) release->Release(state_.position);
      ++state_.position;
    }
  }

  void Table(std::string& out, HeldTable& held) {
    const TableSchema& table = *held.table;
    const auto width = [&](uint64_t key) { return table.RowWidth(key); };
    switch (state_.stage) {
      case State::TableStage::kSpec: {
        const Section section(out, state_.sections, Kind::kTable);
        out.append(table.spec().SerializeAsString());
        state_.stage = State::TableStage::kRows;
        return;
      }
      case State::TableStage::kRows: {
        if (state_.position < held.rows.slab_count()) {
          return Slabs(out, Kind::kRows, table.id(), held.rows, &held.rows,
                       [&](uint64_t key) { return width(key) + held.StateFloats(key); });
        }
        if (state_.position < held.blocks.size()) {
          const Section section(out, state_.sections, Kind::kRows);
          AppendNumber<uint32_t>(out, table.id());
          AppendNumber<uint32_t>(out, 0);
          while (state_.position < held.blocks.size() && !section.IsFull()) {
            HeldTable::Block& block = held.blocks[state_.position++];
            Row(out, block.key, block.weights.data(), block.weights.size());
            AppendFloats(out, block.state.data(), block.state.size());
            const HeldTable::Block read = std::move(block);
          }
          return;
        }
        state_.position = 0;
        state_.stage = State::TableStage::kBest;
        return;
      }
      case State::TableStage::kBest: {
        const HeldTable::Best* const best = held.best.get();
        const size_t size = best == nullptr ? 0 : best->rows.slab_count() + best->blocks.size();
        if (best != nullptr && !best->blocks.empty()) {
          const Section section(out, state_.sections, Kind::kBest);
          AppendNumber<uint32_t>(out, table.id());
          AppendNumber<uint32_t>(out, 0);
          while (state_.position < size && !section.IsFull()) {
            const auto& [key, weights] = best->blocks[state_.position++];
            Row(out, key, weights.data(), weights.size());
          }
        } else if (best != nullptr) {
          // An empty section is also written, to show that weights are kept.
          Slabs(out, Kind::kBest, table.id(), best->rows, nullptr, width);
        }
        if (state_.position < size) return;
        state_.stage = State::TableStage::kSpec;
        return NextItem(State::Part::kStep, state_.tables.size(), true);
      }
    }
  }

  void Sum(std::string& out, State::Sum& sum) {
    Slabs(out, Kind::kSums, sum.table->id(), sum.rows, &sum.rows,
          [&](uint64_t key) { return sum.table->RowWidth(key); });
    if (state_.position == sum.rows.slab_count()) {
      NextItem(State::Part::kEarly, state_.sums.size(), !state_.early.empty());
    }
  }

  // The keys and then the values, in sections that state which part they hold.
  void Early(std::string& out, State::Early& early) {
    const Gradient& gradient = early.gradient;
    const size_t size = gradient.keys.size() + gradient.values.size();
    const Section section(out, state_.sections, Kind::kEarly);
    AppendNumber<uint32_t>(out, early.rank);
    AppendNumber<uint32_t>(out, early.table);
    AppendNumber<uint64_t>(out, early.ordinal);
    AppendNumber<uint64_t>(out, gradient.keys.size());
    AppendNumber<uint64_t>(out, gradient.values.size());
    AppendNumber<uint64_t>(out, state_.position);
    size_t begin = 0;
    for (const ByteView* view : {&gradient.keys, &gradient.values}) {
      for (const ByteView::Fragment& fragment : view->fragments()) {
        const size_t end = begin + fragment.size();
        if (state_.position < end && !section.IsFull()) {
          const size_t offset = state_.position - begin;
          const size_t count = std::min(fragment.size() - offset, format_2::kSectionBytes);
          out.append(fragment.data() + offset, count);
          state_.position += count;
          if (offset + count < fragment.size()) return;
        }
        begin = end;
      }
    }
    if (state_.position < size) return;
    early.gradient = Gradient();
    NextItem(State::Part::kEnd, state_.early.size(), true);
  }

  State& state_;
};

HeldSnapshot::HeldSnapshot() = default;
HeldSnapshot::HeldSnapshot(HeldSnapshot&&) noexcept = default;
HeldSnapshot& HeldSnapshot::operator=(HeldSnapshot&&) noexcept = default;
HeldSnapshot::~HeldSnapshot() = default;

bool HeldSnapshot::at_end() const {
  return state_ == nullptr || state_->part == State::Part::kOver;
}

void HeldSnapshot::Read(size_t bytes, std::string& out) {
  const size_t begin = out.size();
  out.reserve(begin + std::min<uint64_t>(bytes + format_2::kSectionBytes,
                                         approximate_bytes_ + format_2::kSectionBytes));
  while (!at_end() && out.size() - begin < bytes) PartitionSaver(*state_).ReadSome(out);
}

uint64_t HeldSnapshot::Fingerprint() const { return PartitionSaver(*state_).Fingerprint(); }

HeldSnapshot HoldSnapshot(const Partition& partition) {
  HeldSnapshot snapshot;
  snapshot.state_ = std::make_unique<HeldSnapshot::State>();
  PartitionSaver saver(*snapshot.state_);
  saver.Hold(partition);
  snapshot.log_index_ = partition.log_index();
  snapshot.approximate_bytes_ = saver.ApproximateBytes();
  return snapshot;
}

void SavePartition(const Partition& partition,
                   absl::FunctionRef<void(const void* data, size_t size)> sink) {
  HeldSnapshot snapshot = HoldSnapshot(partition);
  while (!snapshot.at_end()) {
    std::string piece;
    snapshot.Read(format_2::kSectionBytes, piece);
    sink(piece.data(), piece.size());
  }
}

absl::StatusOr<Partition> LoadPartition(uint32_t index, const PartitionOptions& options,
                                        const ByteView& bytes) {
  PartitionLoader loader(index, options);
  for (const ByteView::Fragment& fragment : bytes.fragments()) {
    if (absl::Status status = loader.Append({fragment.data(), fragment.size()}); !status.ok())
      return status;
  }
  return loader.Finish();
}

uint64_t Fingerprint(const Partition& partition) { return HoldSnapshot(partition).Fingerprint(); }

}  // namespace pawl
