// A batch and the parameters that it needs.
#ifndef PAWL_WORKER_TRAIN_PULLED_BATCH_H_
#define PAWL_WORKER_TRAIN_PULLED_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/client.h"
#include "worker/data/batch.h"
#include "worker/model/training_model.h"
#include "worker/process/interrupt.h"
#include "worker/train/batch_stream.h"
#include "worker/train/dense_source.h"
#include "worker/train/waiting_time.h"

namespace pawl {

// By table: of dense ones the place among these.
std::vector<size_t> DensePlaces(const std::vector<Table>& tables);

// One batch after the other, with its parameters on their way or here. A rank has a few, in turn.
// For the rank's thread.
class PulledBatch {
 public:
  // Outlives it.
  struct Context {
    // The model's, in its order.
    const std::vector<Table>& tables;
    const std::vector<size_t>& dense_places;
    const TrainingModel& model;
    LogicalWorker& session;
    // Ends all waiting.
    const Interrupt& leave;
    // Of the pull.
    MonotonicDuration timeout;
    WaitingTime& waiting;
  };
  explicit PulledBatch(const Context& context)
      : context_(context), values_(context.tables.size()) {}

  // Takes the stream's next batch and sends off its pull for `step`, with the dense tables from
  // `dense` or, if that is null, with the others. REQUIRES: Release since the last one.
  absl::Status Start(BatchStream& stream, uint64_t step, DenseSource* dense);
  // Waits for the pull; *parameters are then the spans for the model. REQUIRES: Start was OK, once.
  absl::Status Await(std::vector<absl::Span<const float>>* parameters);
  // Waits until the table's span may be read, which of a DenseSource may be later. REQUIRES: Await
  // was OK.
  absl::Status AwaitTable(size_t table);
  // REQUIRES: Start was OK.
  const Batch& batch() const { return *batch_; }
  // Gives the batch back, if there is one, and lets the parameters go.
  void Release();

  // No call borrows its memory.
  bool Idle() const;

 private:
  bool IsShared(size_t table) const { return dense_ != nullptr && context_.tables[table].dense(); }

  const Context context_;
  BatchStream* stream_ = nullptr;
  Batch* batch_ = nullptr;
  // Null: the dense tables are in values_ too.
  std::unique_ptr<DenseView> dense_;
  // By table.
  std::vector<std::vector<float>> values_;
  // Not valid where nothing was called.
  std::future<absl::Status> pulled_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_PULLED_BATCH_H_
