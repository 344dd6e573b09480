#include "worker/data/stream/rank_stream.h"

#include <algorithm>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/futures.h"
#include "spdlog/spdlog.h"
#include "worker/data/sample_format.h"

namespace pawl {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

bool Covers(const std::optional<StreamWindow>& window, const SamplePosition& position) {
  return window.has_value() && window->epoch == position.epoch &&
         window->first_step <= position.step && position.step < window->end_step;
}

}  // namespace

RankStream::Slot::Slot(const FieldLookup& lookup)
    : store(kNoLimit, /*interns=*/false), assembler(store, lookup) {}

RankStream::RankStream(const StreamedData& data, const Sampler& sampler, uint32_t rank,
                       uint64_t end_step, const FieldLookup& lookup)
    : data_(data),
      sampler_(sampler),
      rank_(rank),
      end_step_(end_step),
      order_(sampler, data.spec_.window_samples()),
      slots_{std::make_unique<Slot>(lookup), std::make_unique<Slot>(lookup)},
      current_(slots_[0].get()),
      next_(slots_[1].get()),
      blocks_(data.files_, ending_),
      passed_over_(kNoLimit, /*interns=*/false) {
  passed_over_.shape = data.shape();
}

RankStream::~RankStream() {
  ending_ = true;
  if (loading_.valid()) loading_.wait();
  for (const auto& slot : slots_) data_.Account(slot->accounted_bytes, 0).IgnoreError();
  data_.Account(accounted_reader_bytes_, 0).IgnoreError();
}

bool RankStream::IsIdle() const { return !loading_.valid() || IsReady(loading_); }

absl::Status RankStream::Assemble(uint64_t step, Batch* batch) {
  const SamplePosition position = sampler_.epochs().PositionOf(step);
  if (!Covers(current_->window, position)) {
    PAWL_RETURN_IF_ERROR(Advance(position));
    const StreamWindow next = order_.Next(order_.WindowOf(position));
    if (sampler_.epochs().FirstStepOf(next.epoch) + next.first_step < end_step_)
      ReadAhead(WindowFrom({next.epoch, next.first_step}));
  }
  order_.Indices(*current_->window, position.step, rank_, &indices_);
  return current_->assembler.Assemble(indices_, batch);
}

StreamWindow RankStream::WindowFrom(const SamplePosition& position) const {
  StreamWindow window = order_.WindowOf(position);
  // Otherwise the permutation is one of the whole window.
  if (!sampler_.options().keep_order) return window;
  const uint64_t before = sampler_.epochs().FirstStepOf(window.epoch);
  window.first_step = position.step;
  window.end_step = std::min(window.end_step, std::max(end_step_, before) - before);
  return window;
}

absl::Status RankStream::Advance(const SamplePosition& position) {
  const MonotonicTime begin = Clock::Real().Now();
  absl::Status status;
  if (loading_.valid()) {
    status = loading_.get();
    if (status.ok()) next_->window = loading_window_;
    // Another attempt would hide a limit that was exceeded.
    if (!status.ok() && Covers(loading_window_, position)) return status;
  }
  if (Covers(next_->window, position)) {
    std::swap(current_, next_);
  } else {
    const StreamWindow window = WindowFrom(position);
    status = Load(window, current_);
    if (status.ok()) current_->window = window;
  }
  const MutexLock lock(data_.mu_);
  data_.counts_.waited_s += Seconds(Clock::Real().Now() - begin);
  return status;
}

void RankStream::ReadAhead(const StreamWindow& window) {
  loading_window_ = window;
  next_->window.reset();
  try {
    loading_ = std::async(std::launch::async, [this, window] { return Load(window, next_); });
  } catch (const std::system_error& error) {
    // Advance reads the window when it is needed.
    spdlog::warn("cannot start a thread that reads data ahead: {}", error.what());
  }
}

absl::Status RankStream::Load(const StreamWindow& window, Slot* slot) {
  const MonotonicTime begin = Clock::Real().Now();
  SampleStore* const store = &slot->store;
  slot->window.reset();
  store->Clear();
  store->shape = data_.shape();
  // The thread of Assemble does not touch the order while this one runs.
  const std::shared_ptr<const EpochOrder> order = data_.OrderOf(sampler_, window.epoch);
  const std::vector<SampleRange> ranges = order_.PositionsOf(window, rank_);
  absl::Status status = Reserve(ranges, slot);
  for (const SampleRange& range : ranges) {
    if (status.ok()) status = AppendRange(*order, range, slot);
  }
  if (!status.ok()) {
    // Where the reader stands is unknown.
    reader_.reset();
    return status;
  }
  const MutexLock lock(data_.mu_);
  ++data_.counts_.windows;
  data_.counts_.samples += store->size();
  data_.counts_.read_s += Seconds(Clock::Real().Now() - begin);
  return absl::OkStatus();
}

absl::Status RankStream::Charge(uint64_t bytes, Slot* slot) {
  const uint64_t rank_limit = data_.options_.max_rank_bytes;
  if (rank_limit != 0 && bytes > rank_limit / 2) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a window takes at least ", bytes, " bytes, and a rank holds two; the limit is ",
        rank_limit, "; reduce data.window_samples or raise --max_rank_data_bytes"));
  }
  PAWL_RETURN_IF_ERROR(data_.Account(slot->accounted_bytes, bytes));
  slot->accounted_bytes = bytes;
  return absl::OkStatus();
}

absl::Status RankStream::Reserve(const std::vector<SampleRange>& ranges, Slot* slot) {
  SampleStore* const store = &slot->store;
  uint64_t samples = 0;
  for (const SampleRange& range : ranges) samples += range.size();
  const SampleLayout& layout = data_.layout_;
  const DataShape& shape = store->shape;
  // How many entries there are only reading finds out.
  const uint64_t entries = layout.has_ragged_entries ? 0 : samples * shape.field_count;
  const uint64_t bytes =
      samples * (shape.label_count + shape.numeric_count + layout.has_weights) * sizeof(float) +
      entries * sizeof(uint64_t) + (layout.has_ragged_entries ? samples * sizeof(uint64_t) : 0) +
      (layout.has_lists ? samples * shape.field_count * sizeof(uint16_t) : 0);
  PAWL_RETURN_IF_ERROR(Charge(std::max(bytes, store->memory_bytes()), slot));
  store->labels.reserve(samples * shape.label_count);
  store->numerics.reserve(samples * shape.numeric_count);
  store->entry_keys.reserve(entries);
  if (layout.has_weights) store->sample_weights.reserve(samples);
  if (layout.has_lists) store->field_counts.reserve(samples * shape.field_count);
  if (layout.has_ragged_entries) {
    store->sample_begin.reserve(samples + 1);
    store->sample_begin.push_back(0);
  }
  return absl::OkStatus();
}

absl::Status RankStream::AppendRange(const EpochOrder& order, SampleRange range, Slot* slot) {
  while (range.begin < range.end) {
    const EpochOrder::Place place = order.At(range.begin);
    const uint64_t count = std::min(place.left, range.size());
    PAWL_RETURN_IF_ERROR(AppendFromUnit(place.unit, place.sample, count, slot));
    range.begin += count;
  }
  return absl::OkStatus();
}

absl::Status RankStream::AppendFromUnit(size_t unit_number, uint64_t first, uint64_t count,
                                        Slot* slot) {
  SampleStore* const store = &slot->store;
  const StreamedData::Unit& unit = data_.units_[unit_number];
  const std::vector<DataBlock>& blocks = data_.files_[unit.file].index.blocks;
  for (uint32_t block = unit.first_block; block < unit.end_block && count > 0; ++block) {
    const uint64_t samples = blocks[block].samples;
    if (first >= samples) {
      first -= samples;
      continue;
    }
    if (ending_) return absl::CancelledError("the rank has ended");
    PAWL_RETURN_IF_ERROR(OpenBlockAt(unit.file, block, first));
    const uint64_t here = std::min(samples - first, count);
    for (uint64_t taken = 0; taken < here;) {
      const absl::StatusOr<bool> more = reader_->Next(store);
      if (!more.ok() && !reader_->IsAtSample()) return more.status();
      if (!more.ok() && blocks[block].bad_samples > 0) continue;
      if (!more.ok() || !*more) {
        return absl::DataLossError(absl::StrCat(data_.files_[unit.file].path, ": the block at ",
                                                blocks[block].offset,
                                                " has other samples than its index says"));
      }
      ++taken;
    }
    passed_ += here;
    count -= here;
    first = 0;
    PAWL_RETURN_IF_ERROR(Charge(store->memory_bytes(), slot));
    const uint64_t reader_bytes = blocks_.memory_bytes() + reader_->memory_bytes();
    PAWL_RETURN_IF_ERROR(data_.Account(accounted_reader_bytes_, reader_bytes));
    accounted_reader_bytes_ = reader_bytes;
  }
  return absl::OkStatus();
}

absl::Status RankStream::OpenBlockAt(size_t file, size_t block, uint64_t first) {
  const IndexedFile& indexed = data_.files_[file];
  const DataBlock& info = indexed.index.blocks[block];
  if (reader_ == nullptr || file_ != file || block_ != block || passed_ > first) {
    reader_.reset();
    PAWL_ASSIGN_OR_RETURN(const absl::string_view bytes, blocks_.Read(file, block));
    source_ = std::make_unique<MemorySource>(bytes);
    PAWL_ASSIGN_OR_RETURN(reader_,
                          OpenSamplesBehind(data_.spec_, indexed.index.head, *source_, indexed.path,
                                            {info.offset, info.lines_before}));
    file_ = file;
    block_ = block;
    passed_ = 0;
  }
  const uint64_t count = first - passed_;
  passed_ = first;
  return PassOver(count, info.bad_samples);
}

absl::Status RankStream::PassOver(uint64_t count, uint64_t bad_samples) {
  while (count > 0) {
    absl::StatusOr<bool> more = false;
    if (bad_samples == 0) {
      more = reader_->Skip();
    } else {
      // Only parsing finds out which samples are malformed.
      passed_over_.Clear();
      more = reader_->Next(&passed_over_);
      if (!more.ok() && reader_->IsAtSample()) continue;
    }
    if (!more.ok()) return more.status();
    if (!*more) return absl::DataLossError("a block has fewer samples than its index says");
    --count;
  }
  return absl::OkStatus();
}

}  // namespace pawl
