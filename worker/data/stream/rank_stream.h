// The batches of one rank from streamed data.
#ifndef PAWL_WORKER_DATA_STREAM_RANK_STREAM_H_
#define PAWL_WORKER_DATA_STREAM_RANK_STREAM_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "worker/data/batch_assembler.h"
#include "worker/data/sample_store.h"
#include "worker/data/stream/block_reader.h"
#include "worker/data/stream/streamed_data.h"

namespace pawl {

class RankStream final : public RankBatches {
 public:
  RankStream(const StreamedData& data, const Sampler& sampler, uint32_t rank, uint64_t end_step,
             const FieldLookup& lookup);
  // Waits until the thread that reads ahead notices it, at the end of a block.
  ~RankStream() override;
  void Cancel() override { ending_ = true; }
  bool IsIdle() const override;

  absl::Status Assemble(uint64_t step, Batch* batch) override;

 private:
  struct Slot {
    explicit Slot(const FieldLookup& lookup);

    // Not set: the slot has no complete window.
    std::optional<StreamWindow> window;
    SampleStore store;
    BatchAssembler assembler;
    uint64_t accounted_bytes = 0;
  };

  // The window of a step, without the steps that this stream does not need: samples in the order of
  // the files are read only from the first step that is asked for, up to the end.
  StreamWindow WindowFrom(const SamplePosition& position) const;
  // Makes *current_ the slot with the window of this step.
  absl::Status Advance(const SamplePosition& position);
  void ReadAhead(const StreamWindow& window);

  // The rest is used by one thread at a time: that of Assemble, or the one that reads ahead.
  absl::Status Load(const StreamWindow& window, Slot* slot);
  // Counts the slot's memory. RESOURCE_EXHAUSTED beyond the limits of rank and process.
  absl::Status Charge(uint64_t bytes, Slot* slot);
  // Makes room for the samples, so that the store does not grow beyond what it needs.
  absl::Status Reserve(const std::vector<SampleRange>& ranges, Slot* slot);
  // Appends samples [range.begin, range.end) of the epoch's order.
  absl::Status AppendRange(const EpochOrder& order, SampleRange range, Slot* slot);
  // Appends `count` samples of the unit.
  absl::Status AppendFromUnit(size_t unit, uint64_t first, uint64_t count, Slot* slot);
  // Reads the block, unless it is open and stands at or before its sample `first`, and passes over
  // the samples before that one.
  absl::Status OpenBlockAt(size_t file, size_t block, uint64_t first);
  absl::Status PassOver(uint64_t count, uint64_t bad_samples);

  const StreamedData& data_;
  const Sampler& sampler_;
  const uint32_t rank_;
  const uint64_t end_step_;
  const StreamOrder order_;
  std::array<std::unique_ptr<Slot>, 2> slots_;
  Slot* current_;
  Slot* next_;
  std::vector<uint64_t> indices_;

  // Reads *next_ while valid.
  std::future<absl::Status> loading_;
  std::optional<StreamWindow> loading_window_;
  std::atomic<bool> ending_{false};

  BlockReader blocks_;
  uint64_t accounted_reader_bytes_ = 0;
  // The open block, if there is a reader.
  size_t file_ = 0;
  size_t block_ = 0;
  uint64_t passed_ = 0;  // good samples
  std::unique_ptr<MemorySource> source_;
  std::unique_ptr<SampleReader> reader_;
  SampleStore passed_over_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_STREAM_RANK_STREAM_H_
