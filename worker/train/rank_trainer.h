// The training of one logical worker.
#ifndef PAWL_WORKER_TRAIN_RANK_TRAINER_H_
#define PAWL_WORKER_TRAIN_RANK_TRAINER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/client.h"
#include "proto/job.pb.h"
#include "worker/data/batch.h"
#include "worker/data/batch_assembler.h"
#include "worker/dense/dense_store.h"
#include "worker/model/training_model.h"
#include "worker/process/interrupt.h"
#include "worker/train/batch_stream.h"
#include "worker/train/loss_scale_watch.h"
#include "worker/train/micro_batches.h"
#include "worker/train/pulled_batch.h"
#include "worker/train/rank_dense.h"
#include "worker/train/rank_evaluation.h"
#include "worker/train/rank_shared.h"
#include "worker/train/waiting_time.h"

namespace pawl {

// By what the gradients of the sum of a rank's losses are multiplied before the push.
//
// SYNC: logical_workers / step_samples, rounded to float once. The servers divide the sum over
// the ranks by their number, so that the step is taken along the mean over all its samples.
// Else: 1 / rank_samples, each push being a step of its own.
// REQUIRES: step_samples and rank_samples above 0.
float GradientScale(ConsistencyMode mode, uint32_t logical_workers, uint64_t step_samples,
                    uint64_t rank_samples);

// Takes one rank through its steps: batch, pull, gradients, push, end of the step; and through its
// share of the evaluations. The pull of the next step is on its way while this one is computed (in
// SYNC the servers suspend it until its version is there); in the other modes the push of the one
// before, too.
//
// With a replica the dense gradients go there, table by table while the backward pass goes on, and
// the dense parameters come from there, table by table while the forward pass does. A step ends
// when the rank has handed its gradients in, but where the dense parameters are written back: that
// belongs to the step, and waits for those of all ranks. After such a step the rank gives no
// gradients before the servers have its end: until then its successor would write back the same
// again.
//
// What a rank pushes depends on the job, the data, the rank, the step and what it pulls, not on
// what else the process hosts or on when it began: a successor takes the rank up at its session's
// step, an evaluation that is due there included, whether the predecessor has done that or not.
//
// Used by one thread. Owns the memory that its calls borrow: unless it is Idle it must outlive the
// client of its session.
class RankTrainer {
 public:
  // All of it outlives the trainer; `interrupts`: the rank's. REQUIRES: the rank is on the progress
  // board.
  RankTrainer(const RankShared& shared, Interrupts interrupts, LogicalWorker& session,
              std::unique_ptr<TrainingModel> model);
  ~RankTrainer();
  RankTrainer(const RankTrainer&) = delete;
  RankTrainer& operator=(const RankTrainer&) = delete;

  // From the session's step to the end of the job, or until an evaluation says stop, or until it is
  // to leave: then it returns the reason. To be called once. An error leaves calls under way.
  absl::Status Run();

  // After Run: no call borrows its memory any more, so that it may go before the client does.
  bool Idle() const;

 private:
  // The calls of a step, and what they borrow.
  struct StepCalls {
    // By table; not of those that dense_ takes.
    std::vector<std::vector<float>> gradients;
    std::optional<DenseStore::WriteBackPart> part;
    // Not valid where nothing was called.
    std::future<absl::Status> pushed;
    std::future<absl::Status> written_back;
    std::future<absl::Status> ended;
  };
  // Pulled for, computed on, pushed.
  static constexpr size_t kPlaces = 3;
  static_assert(kPlaces < BatchStream::kMaxBatches);

  PulledBatch::Context PullContext();
  absl::Status RunSteps();
  absl::Status Train(uint64_t begin, uint64_t end);
  absl::Status ComputeAndPush(uint64_t step, const Batch* next, LossSum* loss);
  // Sets gradients_ to those of the batch, in job.micro_batches parts, and hands over those that
  // dense_ takes.
  absl::StatusOr<LossSum> Compute(uint64_t step, float scale, const Batch* next);
  // Pushes the rank's part of the dense parameters as they are after the step.
  absl::Status WriteBack(uint64_t step);
  void EndStep(uint64_t step, const LossSum& loss);
  // A callback that makes `future` ready, and that sets the rank's interrupts if the call has
  // failed: the rank may be waiting for a pull that only this call would have let through. So may
  // its peers, whom its host ends.
  Callback FulfilOrEnd(std::future<absl::Status>& future, absl::string_view what, uint64_t step);
  // Waits until the calls of the step that has this place are done, and gives its batch back.
  absl::Status Finish(size_t place);
  // Waits until the steps are ended of which something was pushed, as far as it is not to abandon
  // them.
  void EndStepsUnderWay();

  // dense_ takes the table's gradients.
  bool IsTaken(size_t table) const {
    return dense_->TakesGradients() && shared_.tables[table].dense();
  }

  const RankShared shared_;
  const Interrupts interrupts_;
  const uint32_t rank_;
  LogicalWorker& session_;
  const std::unique_ptr<TrainingModel> model_;
  const std::vector<size_t> dense_places_;

  WaitingTime waiting_;
  // A step has its place in both. The evaluations, between steps, take the first ones too.
  std::array<PulledBatch, kPlaces> places_;
  std::array<StepCalls, kPlaces> calls_;
  const std::unique_ptr<RankDense> dense_;
  std::optional<RankEvaluation> evaluation_;

  BatchAssembler assembler_;
  std::vector<uint64_t> indices_;
  MicroBatches micro_batches_;
  LossScaleWatch loss_scale_watch_;
  std::vector<absl::Span<const float>> parameters_;
  std::vector<absl::Span<float>> gradients_;
  std::vector<PushItem> push_items_;
  // Its batches are borrowed by calls.
  std::unique_ptr<BatchStream> stream_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_RANK_TRAINER_H_
