// The training of one logical worker.
#ifndef PAWL_WORKER_RANK_TRAINER_H_
#define PAWL_WORKER_RANK_TRAINER_H_

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
#include "client_lib/base/clock.h"
#include "client_lib/client.h"
#include "proto/job.pb.h"
#include "worker/batch_stream.h"
#include "worker/data/batch.h"
#include "worker/data/batch_assembler.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/dense/dense_replica.h"
#include "worker/dense/dense_store.h"
#include "worker/dense_source.h"
#include "worker/device/device.h"
#include "worker/interrupt.h"
#include "worker/loss_scale_watch.h"
#include "worker/model/training_model.h"
#include "worker/progress_board.h"
#include "worker/rendezvous.h"
#include "worker/step_plan.h"

namespace pawl {

// Deadline of the pulls, pushes and ends of steps, at least. A pull waits for the slowest peer's step; a failure of the job
// ends it sooner.
inline constexpr std::chrono::minutes kStepTimeout{10};
// Deadline of what waits for all ranks to come to the same place, in ASYNC perhaps from far behind.
inline constexpr std::chrono::hours kRendezvousTimeout{24};
// How often ranks meet anew before an evaluation because one of them died there, and how often one reports anew because
// the scheduler was restarted.
inline constexpr int kMaxRendezvousAttempts = 100;
// How long a rank that is to end waits for the other workers to take up its dense gradients.
inline constexpr std::chrono::seconds kHandOverLimit{1};
// Samples that a rank evaluates at a time.
inline constexpr uint64_t kEvaluationBatchSize = 8192;

// By what the gradients of the sum of a rank's losses are multiplied before the push.
//
// SYNC: logical_workers / step_samples, rounded to float once. The servers divide the sum over
// the ranks by their number, so that the step is taken along the mean over all its samples.
// Else: 1 / rank_samples, each push being a step of its own.
// REQUIRES: step_samples and rank_samples above 0.
float GradientScale(ConsistencyMode mode, uint32_t logical_workers, uint64_t step_samples, uint64_t rank_samples);

// Whether the dense parameters, their slots and their gradients stay in the memory of the device, which then is not the
// host's: with dense_path: ALLREDUCE, but not where the host adds up micro-batches, or makes the updates of shares.
bool DenseStaysOnDevice(const Job& job, const Device& device);

// Takes one rank through its steps: batch, pull, gradients, push, end of the step; and through its share of the
// evaluations. The pull of the next step is on its way while this one is computed (in SYNC the servers
// park it until its version is there); in the other modes the push of the one before, too.
//
// With a replica the dense gradients go there, table by table while the backward pass goes on, and the dense parameters come
// from there, table by table while the forward pass does. A step ends when the rank has handed its gradients in, but where
// the dense parameters are written back: that belongs to the step, and waits for those of all ranks. After such a step the
// rank gives no gradients before the servers have its end: until then its successor would write back the same again.
//
// What a rank pushes depends on the job, the data, the rank, the step and what it pulls, not on what else the process
// hosts or on when it began: a successor takes the rank up at its session's step, an evaluation that is due there
// included, whether the predecessor has done that or not.
//
// Used by one thread. Owns the memory that its calls borrow: unless it is Idle it must outlive the
// client of its session.
class RankTrainer {
 public:
  // What the ranks of a process share. All of it outlives the trainers.
  struct Shared {
    const Job& job;  // with its defaults filled in
    uint32_t logical_workers = 1;
    const Sampler& sampler;
    const StepPlan& plan;
    const Dataset& train;
    const Dataset* eval = nullptr;  // null: no evaluation
    // The model's, in its order, as created.
    const std::vector<Table>& tables;
    // For training and for evaluations. Null: every rank pulls the dense tables for itself.
    DenseSource* dense = nullptr;
    DenseSource* evaluation_dense = nullptr;
    // dense_path: ALLREDUCE: `dense` is the replica, which takes the dense gradients too, and the store is where it is
    // written back to. Both null otherwise. The replica lies in the memory that the models' dense spans are of
    // (DenseStaysOnDevice).
    DenseReplica* replica = nullptr;
    const DenseStore* store = nullptr;
    Rendezvous& rendezvous;
    ProgressBoard& progress;
    // Waited in each step before it is ended, to play a slow worker.
    MonotonicDuration step_delay = MonotonicDuration::zero();
    // For each element of a dense table in the forward pass, twice as long in the backward pass: to play a slow model. With
    // dense_path: ALLREDUCE and without micro-batches.
    MonotonicDuration element_delay = MonotonicDuration::zero();
    // Longer than the scheduler lets the job stand still: it is the scheduler that gives the job up.
    MonotonicDuration step_timeout = kStepTimeout;
  };

  // `interrupts`: the rank's; they outlive it. REQUIRES: the rank is on the progress board.
  RankTrainer(const Shared& shared, Interrupts interrupts, LogicalWorker& session, std::unique_ptr<TrainingModel> model);
  ~RankTrainer();
  RankTrainer(const RankTrainer&) = delete;
  RankTrainer& operator=(const RankTrainer&) = delete;

  // From the session's step to the end of the job, or until an evaluation says stop, or until it is to leave: then it
  // returns the reason. To be called once. An error leaves calls under way.
  absl::Status Run();

  // After Run: no call borrows its memory any more, so that it may go before the client does.
  bool Idle() const;

 private:
  // A batch on its way through pull, computation and push.
  struct Slot {
    BatchStream* stream = nullptr;
    Batch* batch = nullptr;
    // By table; those of tables in `dense` are not used, nor the gradients that a replica takes.
    std::vector<std::vector<float>> values;
    std::vector<std::vector<float>> gradients;
    std::unique_ptr<DenseView> dense;
    std::optional<DenseStore::Share> share;
    // Not valid where nothing was called.
    std::future<absl::Status> pulled;
    std::future<absl::Status> pushed;
    std::future<absl::Status> written_back;
    std::future<absl::Status> ended;
  };
  // Pulled for, computed on, pushed.
  static constexpr size_t kSlots = 3;
  static_assert(kSlots < BatchStream::kMaxBatches);

  absl::Status RunSteps();
  absl::Status Train(uint64_t begin, uint64_t end);
  // True: no step is to follow.
  absl::StatusOr<bool> Evaluate(uint64_t step);
  // Waits until all ranks have come to the place of this name.
  absl::Status Meet(absl::string_view place);
  absl::StatusOr<ReportEvaluationResponse> Report(const std::vector<ReportEvaluationRequest>& parts);

  // Takes the next batch and sends off its pull for `step`.
  absl::Status StartPull(Slot& slot, BatchStream& stream, uint64_t step);
  // Waits for the pull; *parameters are then the spans for the model.
  absl::Status AwaitPull(Slot& slot, std::vector<absl::Span<const float>>* parameters);
  absl::Status ComputeAndPush(Slot& slot, uint64_t step, const Batch* next, LossSum* loss);
  // Sets gradients_ to those of the batch, in job.micro_batches parts, and hands the dense ones to the replica.
  absl::StatusOr<LossSum> Compute(Slot& slot, uint64_t step, float scale, const Batch* next);
  // The rank has no samples in the step.
  absl::Status GiveNothing(Slot& slot, uint64_t step);
  // Pushes the rank's part of the dense parameters as they are after the step.
  absl::Status WriteBack(Slot& slot, uint64_t step);
  void EndStep(Slot& slot, uint64_t step, const LossSum& loss);
  // A callback that makes `future` ready, and that sets the rank's interrupts if the call has failed: the rank may be
  // waiting for a pull that only this call would have let through. So may its peers, whom its crew ends.
  Callback FulfilOrEnd(std::future<absl::Status>& future, absl::string_view what, uint64_t step);
  // Waits until the calls of the slot are done, and gives its batch back.
  absl::Status Finish(Slot& slot);
  // Waits until the steps are ended of which something was pushed, as far as it is not to abandon them.
  void EndStepsUnderWay();

  // `call` waits for others; so long counts as waiting.
  template <typename Call>
  absl::Status Wait(Call call);

  bool IsShared(size_t table) const { return source_ != nullptr && shared_.tables[table].dense(); }
  bool IsReplicated(size_t table) const { return shared_.replica != nullptr && shared_.tables[table].dense(); }

  const Shared shared_;
  const Interrupts interrupts_;
  const uint32_t rank_;
  LogicalWorker& session_;
  const std::unique_ptr<TrainingModel> model_;

  BatchAssembler train_assembler_;
  std::optional<BatchAssembler> eval_assembler_;
  std::vector<uint64_t> indices_;
  std::array<Slot, kSlots> slots_;
  // Where the dense parameters come from at present.
  DenseSource* source_ = nullptr;
  // By table; of dense ones the place among these.
  std::vector<size_t> dense_index_;
  double waiting_s_ = 0;
  LossScaleWatch loss_scale_watch_;
  std::vector<absl::Span<const float>> parameters_;
  std::vector<absl::Span<float>> gradients_;
  // Of micro-batches.
  Batch part_;
  std::vector<std::vector<float>> part_values_;
  std::vector<absl::Span<float>> part_gradients_;
  std::vector<PullItem> pull_items_;
  std::vector<PushItem> push_items_;
  // Their batches are borrowed by calls; the evaluation's stays until the next one.
  std::unique_ptr<BatchStream> train_stream_;
  std::unique_ptr<BatchStream> eval_stream_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_RANK_TRAINER_H_
