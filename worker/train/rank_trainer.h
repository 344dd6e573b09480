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
#include "worker/data/training_data.h"
#include "worker/dense/dense_store.h"
#include "worker/model/training_model.h"
#include "worker/process/interrupt.h"
#include "worker/train/batch_stream.h"
#include "worker/train/gradient_scale.h"
#include "worker/train/micro_batches.h"
#include "worker/train/pulled_batch.h"
#include "worker/train/rank_dense.h"
#include "worker/train/rank_evaluation.h"
#include "worker/train/rank_shared.h"

namespace pawl {

// Takes one rank through its steps (batch, pull, gradients, push, end of the step) and through its
// share of the evaluations. The pull for the next step travels while this one is computed; in SYNC
// the servers hold it until its version exists. In the other modes the push of the previous step
// travels too.
//
// With a replica the dense gradients go to the replica table by table during the backward pass, and
// the dense parameters come from it table by table during the forward pass. A step ends when the
// rank has handed in its gradients. A step that writes the dense parameters back also waits for the
// gradients of all ranks. After such a step the rank hands in no gradients before the servers have
// the end of the step: until then a successor would write back the same step again.
//
// A rank's pushes depend on the job, the data, the rank, the step and what it pulls. It does
// not depend on the other ranks of the process or on when the rank started here. A successor starts
// at its session's step and runs an evaluation that is due there, whether or not its predecessor
// did.
//
// Used by one thread. Owns the memory that its calls borrow: unless it is idle it outlives the
// client of its session.
class RankTrainer {
 public:
  // All arguments outlive the trainer. `interrupts` are the rank's. REQUIRES: the progress board
  // has the rank.
  RankTrainer(const RankShared& shared, Interrupts interrupts, LogicalWorker& session,
              std::unique_ptr<TrainingModel> model);
  RankTrainer(const RankTrainer&) = delete;
  RankTrainer& operator=(const RankTrainer&) = delete;

  // Runs from the session's step to the end of the job, until an evaluation stops it, or until an
  // interrupt, whose reason it returns. Called once. An error leaves calls running.
  absl::Status Run();

  // After Run: whether no call borrows its memory and no thread of it reads data, so that it may be
  // destroyed before the client, and without waiting for a read.
  bool IsIdle() const;

 private:
  // The calls of a step and what they borrow.
  struct StepCalls {
    // By table, except those that dense_ takes.
    std::vector<std::vector<float>> gradients;
    std::optional<DenseStore::WriteBackPart> part;
    // Not valid unless the call was started.
    std::future<absl::Status> pushed;
    std::future<absl::Status> written_back;
    std::future<absl::Status> ended;
  };
  // One being pulled, one being computed, one being pushed.
  static constexpr size_t kPlaces = 3;
  static_assert(kPlaces < BatchStream::kMaxBatches);

  PulledBatch::Context PullContext();
  absl::Status RunSteps();
  absl::Status Train(uint64_t begin, uint64_t end);
  absl::Status ComputeAndPush(uint64_t step, const Batch* next, LossSum* loss);
  // Sets gradients_ to those of the batch, in job.micro_batches parts, and hands over those that
  // dense_ takes.
  absl::StatusOr<LossSum> Compute(uint64_t step, float scale, const Batch* next);
  // Corrects gradients_ by job.delay_compensation.
  absl::Status CompensateDelay(uint64_t step);
  // Pushes the rank's part of the dense parameters as of the end of the step.
  absl::Status WriteBack(uint64_t step);
  void EndStep(uint64_t step, const LossSum& loss);
  // Returns a callback that makes `future` ready and, if the call failed, sets the rank's
  // interrupts: the rank may be waiting for a pull that only this call would have released. Its
  // peers may be waiting too; its host ends them.
  Callback FulfillOrInterrupt(std::future<absl::Status>& future, absl::string_view what,
                              uint64_t step);
  // Waits for the calls of the step in this place, and releases its batch.
  absl::Status Finish(size_t place);
  // Makes the threads that read data end.
  void CancelReads();
  // Waits for the ends of all steps that were partly pushed, unless told to abandon them.
  void EndPendingSteps();

  // Whether dense_ takes the table's gradients.
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
  // A step uses the same place in both. Evaluations run between steps and use the first places.
  std::array<PulledBatch, kPlaces> places_;
  std::array<StepCalls, kPlaces> calls_;
  const std::unique_ptr<RankDense> dense_;
  std::optional<RankEvaluation> evaluation_;

  // Used by the stream's thread.
  // Null while no step is trained.
  std::unique_ptr<RankBatches> batches_;
  MicroBatches micro_batches_;
  LossScaleWatch loss_scale_watch_;
  std::vector<absl::Span<const float>> parameters_;
  std::vector<absl::Span<float>> gradients_;
  // By table, with job.delay_compensation. Calls borrow them.
  std::vector<std::vector<float>> present_parameters_;
  std::vector<PushItem> push_items_;
  // Calls borrow its batches.
  std::unique_ptr<BatchStream> stream_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_TRAIN_RANK_TRAINER_H_
