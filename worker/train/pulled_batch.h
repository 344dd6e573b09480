// A batch together with the parameters that it needs.
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
#include "worker/dense/dense_source.h"
#include "worker/model/training_model.h"
#include "worker/process/interrupt.h"
#include "worker/train/batch_stream.h"

namespace pawl {

// The time that a rank waits for others. Used by the rank's thread.
struct WaitingTime {
  double seconds = 0;

  // Runs `call`, which waits for others, and adds its duration.
  template <typename Call>
  absl::Status Measure(Call call) {
    const MonotonicTime begin = Clock::Real().Now();
    absl::Status status = call();
    seconds += Seconds(Clock::Real().Now() - begin);
    return status;
  }
};

// For each dense table of `tables`, its number among the dense tables; indexed by table.
std::vector<size_t> DensePlaces(const std::vector<Table>& tables);

// Holds one batch after another while its parameters arrive. A rank cycles through a few of these.
// Used by the rank's thread.
class PulledBatch {
 public:
  // Outlives the batch.
  struct Context {
    // The model's tables, in the model's order.
    const std::vector<Table>& tables;
    const std::vector<size_t>& dense_places;
    const TrainingModel& model;
    LogicalWorker& session;
    // Ends all waits.
    const Interrupt& leave;
    // Timeout of a pull.
    MonotonicDuration timeout;
    WaitingTime& waiting;
  };
  explicit PulledBatch(const Context& context)
      : context_(context), values_(context.tables.size()) {}

  // Takes the stream's next batch and starts its pull for `step`. The dense tables come from
  // `dense`; if that is null, they are pulled with the others. REQUIRES: Release since the last
  // Start.
  absl::Status Start(BatchStream& stream, uint64_t step, DenseSource* dense);
  // Waits for the pull and sets *parameters to the spans for the model. REQUIRES: called once after
  // a successful Start.
  absl::Status Await(std::vector<absl::Span<const float>>* parameters);
  // Pulls the parameters of the batch once more and waits for them; `values` by table. REQUIRES:
  // Await returned OK, and there is no DenseSource.
  absl::Status PullAgain(uint64_t step, std::vector<std::vector<float>>& values);
  // Waits until the table's span is readable, which may be later with a DenseSource. REQUIRES:
  // Await returned OK.
  absl::Status AwaitTable(size_t table);
  // REQUIRES: Start returned OK.
  const Batch& batch() const { return *batch_; }
  // Returns the batch to its stream, if there is one, and drops the parameters.
  void Release();

  // Whether no call borrows its memory.
  bool IsIdle() const;

 private:
  // Starts a pull of everything that has no DenseSource, unless that is nothing.
  void StartPull(uint64_t step, std::vector<std::vector<float>>& values);
  bool IsShared(size_t table) const { return dense_ != nullptr && context_.tables[table].dense(); }

  const Context context_;
  BatchStream* stream_ = nullptr;
  Batch* batch_ = nullptr;
  // Null if values_ has the dense tables too.
  std::unique_ptr<DenseView> dense_;
  // By table.
  std::vector<std::vector<float>> values_;
  // Not valid unless a pull was started.
  std::future<absl::Status> pulled_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_PULLED_BATCH_H_
