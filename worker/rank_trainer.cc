#include "worker/rank_trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "worker/evaluation_report.h"

namespace pawl {
namespace {

// The client library ends a call by its deadline; a little later the library itself is at fault.
constexpr std::chrono::seconds kGrace{30};

// A callback that makes `future` ready.
Callback Fulfil(std::future<absl::Status>& future) {
  std::promise<absl::Status> promise;
  future = promise.get_future();
  return [promise = std::move(promise)](absl::Status status) mutable { promise.set_value(std::move(status)); };
}

}  // namespace

float GradientScale(ConsistencyMode mode, uint32_t logical_workers, uint64_t step_samples, uint64_t rank_samples) {
  if (mode == BOUNDED || mode == ASYNC) return static_cast<float>(1.0 / static_cast<double>(rank_samples));
  return static_cast<float>(static_cast<double>(logical_workers) / static_cast<double>(step_samples));
}

RankTrainer::RankTrainer(const Shared& shared, LogicalWorker& session, std::unique_ptr<TrainingModel> model)
    : shared_(shared),
      rank_(session.rank()),
      session_(session),
      model_(std::move(model)),
      train_assembler_(shared_.train) {
  if (shared_.eval != nullptr) eval_assembler_.emplace(*shared_.eval);
  for (Slot& slot : slots_) {
    slot.values.resize(shared_.tables.size());
    slot.gradients.resize(shared_.tables.size());
  }
}

RankTrainer::~RankTrainer() = default;

absl::Status RankTrainer::Run() {
  const absl::Status status = RunSteps();
  if (!status.ok()) EndStepsUnderWay();
  return status;
}

bool RankTrainer::Idle() const {
  for (const Slot& slot : slots_) {
    for (const std::future<absl::Status>* call : {&slot.pulled, &slot.pushed, &slot.ended}) {
      if (call->valid() && call->wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
    }
  }
  return true;
}

absl::Status RankTrainer::RunSteps() {
  const uint64_t total = shared_.plan.total_steps();
  uint64_t step = session_.step();
  train_stream_ = std::make_unique<BatchStream>(step, total, [this](uint64_t number, Batch* batch) {
    shared_.sampler.Indices(shared_.sampler.PositionOf(number), rank_, &indices_);
    return train_assembler_.Assemble(indices_, batch);
  });
  while (true) {
    // The first of them may have been done by a predecessor: the scheduler then has the result already.
    if (shared_.eval != nullptr && shared_.plan.IsPause(step)) {
      PAWL_ASSIGN_OR_RETURN(const bool stop, Evaluate(step));
      if (stop) return absl::OkStatus();
    }
    if (step >= total) return absl::OkStatus();
    const uint64_t pause = shared_.plan.NextPause(step);
    PAWL_RETURN_IF_ERROR(Train(step, pause));
    step = pause;
  }
}

absl::Status RankTrainer::Train(uint64_t begin, uint64_t end) {
  PAWL_RETURN_IF_ERROR(StartPull(slots_[begin % kSlots], *train_stream_, begin));
  for (uint64_t step = begin; step < end; ++step) {
    Slot& slot = slots_[step % kSlots];
    PAWL_RETURN_IF_ERROR(AwaitPull(slot, &parameters_));
    // Where nothing is waited for nobody has looked.
    PAWL_RETURN_IF_ERROR(shared_.interrupt.reason());
    if (step + 1 < end) PAWL_RETURN_IF_ERROR(StartPull(slots_[(step + 1) % kSlots], *train_stream_, step + 1));
    LossSum loss;
    // A share may be empty: there is nothing to push then, but the step ends for this rank too.
    if (slot.batch->samples > 0) PAWL_RETURN_IF_ERROR(ComputeAndPush(slot, step, &loss));
    absl::Status interrupted;
    if (shared_.step_delay > MonotonicDuration::zero()) interrupted = shared_.interrupt.SleepFor(shared_.step_delay);
    EndStep(slot, step, loss);
    PAWL_RETURN_IF_ERROR(interrupted);
  }
  for (Slot& slot : slots_) PAWL_RETURN_IF_ERROR(Finish(slot));
  return absl::OkStatus();
}

absl::Status RankTrainer::StartPull(Slot& slot, BatchStream& stream, uint64_t step) {
  PAWL_RETURN_IF_ERROR(Finish(slot));
  PAWL_ASSIGN_OR_RETURN(slot.batch, stream.Next(shared_.interrupt));
  slot.stream = &stream;
  if (shared_.dense != nullptr) {
    // Also for an empty share, since asking is what keeps a rank from running ahead.
    PAWL_ASSIGN_OR_RETURN(slot.dense, shared_.dense->At(step, session_, shared_.step_timeout));
  }
  if (slot.batch->samples == 0) return absl::OkStatus();
  pull_items_.clear();
  for (size_t t = 0; t < shared_.tables.size(); ++t) {
    if (IsShared(t)) continue;
    const Table& table = shared_.tables[t];
    std::vector<float>& values = slot.values[t];
    values.resize(model_->SpanSize(t, slot.batch->keys.size()));
    if (values.empty()) continue;
    PullItem& item = pull_items_.emplace_back();
    item.table = table;
    if (!table.dense()) item.keys = slot.batch->keys;
    item.values = absl::MakeSpan(values);
    item.keys_are_distinct = true;
  }
  if (pull_items_.empty()) return absl::OkStatus();
  CallOptions options;
  options.timeout = shared_.step_timeout;
  options.step = step;
  session_.Pull(pull_items_, options, Fulfil(slot.pulled));
  return absl::OkStatus();
}

absl::Status RankTrainer::AwaitPull(Slot& slot, std::vector<absl::Span<const float>>* parameters) {
  if (slot.dense.has_value()) {
    PAWL_RETURN_IF_ERROR(
        AwaitReady(slot.dense->ready, shared_.step_timeout + kGrace, shared_.interrupt, "pull of dense tables"));
    PAWL_RETURN_IF_ERROR(slot.dense->ready.get());
  }
  if (slot.pulled.valid()) {
    PAWL_RETURN_IF_ERROR(Await(slot.pulled, shared_.step_timeout + kGrace, shared_.interrupt, "pull"));
  }
  parameters->clear();
  size_t dense = 0;
  for (size_t t = 0; t < shared_.tables.size(); ++t) {
    parameters->push_back(IsShared(t) ? (*slot.dense->values)[dense++] : slot.values[t]);
  }
  return absl::OkStatus();
}

absl::Status RankTrainer::ComputeAndPush(Slot& slot, uint64_t step, LossSum* loss) {
  const Batch& batch = *slot.batch;
  gradients_.clear();
  for (size_t t = 0; t < shared_.tables.size(); ++t) {
    slot.gradients[t].resize(model_->SpanSize(t, batch.keys.size()));
    gradients_.push_back(absl::MakeSpan(slot.gradients[t]));
  }
  const uint64_t step_samples = shared_.sampler.GlobalSize(shared_.sampler.PositionOf(step).step);
  const float scale =
      GradientScale(shared_.job.consistency().mode(), shared_.logical_workers, step_samples, batch.samples);
  PAWL_ASSIGN_OR_RETURN(*loss, model_->ComputeGradients(batch, parameters_, scale, gradients_));
  if (!std::isfinite(loss->loss_sum)) {
    return absl::InvalidArgumentError(absl::StrCat("the loss of logical worker ", rank_, " at step ", step, " is ",
                                                   loss->loss_sum,
                                                   ": the training has diverged; reduce the learning rate"));
  }
  push_items_.clear();
  for (size_t t = 0; t < shared_.tables.size(); ++t) {
    if (gradients_[t].empty()) continue;
    PushItem& item = push_items_.emplace_back();
    item.table = shared_.tables[t];
    if (!item.table.dense()) item.keys = batch.keys;
    item.gradients = gradients_[t];
    item.keys_are_distinct = true;
  }
  CallOptions options;
  options.timeout = shared_.step_timeout;
  session_.Push(push_items_, options, FulfilOrEndAll(slot.pushed, "push", step));
  return absl::OkStatus();
}

Callback RankTrainer::FulfilOrEndAll(std::future<absl::Status>& future, absl::string_view what, uint64_t step) {
  return [this, what, step, done = Fulfil(future)](absl::Status status) mutable {
    if (!status.ok()) {
      status = Annotate(status, absl::StrCat(what, " of logical worker ", rank_, " at step ", step));
      shared_.interrupt.Set(status);
      shared_.abandon.Set(status);
    }
    done(std::move(status));
  };
}

void RankTrainer::EndStep(Slot& slot, uint64_t step, const LossSum& loss) {
  CallOptions options;
  options.timeout = shared_.step_timeout;
  auto done = FulfilOrEndAll(slot.ended, "end", step);
  session_.EndStep(options, [this, loss, done = std::move(done)](absl::Status status) mutable {
    if (status.ok()) shared_.progress.StepEnded(rank_, loss.samples, loss.loss_sum);
    done(std::move(status));
  });
}

absl::Status RankTrainer::Finish(Slot& slot) {
  if (slot.pushed.valid()) {
    PAWL_RETURN_IF_ERROR(Await(slot.pushed, shared_.step_timeout + kGrace, shared_.interrupt, "push"));
  }
  if (slot.ended.valid()) {
    PAWL_RETURN_IF_ERROR(Await(slot.ended, shared_.step_timeout + kGrace, shared_.interrupt, "end of the step"));
  }
  slot.dense.reset();
  if (slot.batch != nullptr) slot.stream->Release(std::exchange(slot.batch, nullptr));
  return absl::OkStatus();
}

void RankTrainer::EndStepsUnderWay() {
  for (Slot& slot : slots_) {
    for (std::future<absl::Status>* call : {&slot.pushed, &slot.ended}) {
      if (call->valid()) AwaitReady(*call, shared_.step_timeout + kGrace, shared_.abandon, "end of the step").IgnoreError();
    }
  }
}

absl::Status RankTrainer::Meet(uint64_t evaluation) {
  absl::Status status;
  for (int attempt = 0; attempt < kMaxRendezvousAttempts; ++attempt) {
    // One that dies while it waits fails the barrier for all. They, and its successor, meet again under the next name.
    auto all_there = shared_.rendezvous.Barrier(
        absl::StrCat("evaluation-", evaluation, attempt == 0 ? "" : absl::StrCat("-again-", attempt)),
        shared_.logical_workers, rank_);
    status = Await(all_there, kRendezvousTimeout + kGrace, shared_.interrupt, "barrier before the evaluation");
    if (!absl::IsAborted(status)) break;
  }
  return status;
}

absl::StatusOr<ReportEvaluationResponse> RankTrainer::Report(const std::vector<ReportEvaluationRequest>& parts) {
  absl::StatusOr<ReportEvaluationResponse> response = absl::InternalError("an evaluation without parts");
  for (int attempt = 0; attempt < kMaxRendezvousAttempts; ++attempt) {
    // Only the last one waits for the other ranks.
    for (const ReportEvaluationRequest& part : parts) {
      auto answer = shared_.rendezvous.ReportEvaluation(part);
      response = Await(answer, kRendezvousTimeout + kGrace, shared_.interrupt, "report of the evaluation");
      if (!response.ok()) break;
    }
    // A scheduler that was restarted meanwhile lacks the parts before, and wants all of them again.
    if (!absl::IsFailedPrecondition(response.status()) || parts.size() == 1) break;
  }
  return response;
}

absl::StatusOr<bool> RankTrainer::Evaluate(uint64_t step) {
  const uint64_t number = shared_.plan.EvaluationNumber(step);
  if (shared_.job.consistency().mode() == BOUNDED || shared_.job.consistency().mode() == ASYNC) {
    // Everybody evaluates, and the best are kept, when all pushes so far have been applied.
    PAWL_RETURN_IF_ERROR(Meet(number));
  }
  const SampleRange share = EvaluationShard(shared_.eval->size(), rank_, shared_.logical_workers);
  const uint64_t batches = (share.size() + kEvaluationBatchSize - 1) / kEvaluationBatchSize;
  eval_stream_ = std::make_unique<BatchStream>(0, batches, [this, share](uint64_t i, Batch* batch) {
    const uint64_t begin = share.begin + i * kEvaluationBatchSize;
    return eval_assembler_->AssembleRange(SampleRange{begin, std::min(begin + kEvaluationBatchSize, share.end)}, batch);
  });

  EvaluationReport report(/*with_scores=*/model_->loss() == LOGISTIC);
  Predictions predictions;
  const uint64_t ahead = kSlots - 1;
  for (uint64_t i = 0; i < std::min(ahead, batches); ++i) {
    PAWL_RETURN_IF_ERROR(StartPull(slots_[i % kSlots], *eval_stream_, step));
  }
  for (uint64_t i = 0; i < batches; ++i) {
    Slot& slot = slots_[i % kSlots];
    PAWL_RETURN_IF_ERROR(AwaitPull(slot, &parameters_));
    PAWL_RETURN_IF_ERROR(shared_.interrupt.reason());
    if (i + ahead < batches) PAWL_RETURN_IF_ERROR(StartPull(slots_[(i + ahead) % kSlots], *eval_stream_, step));
    PAWL_RETURN_IF_ERROR(model_->Predict(*slot.batch, parameters_, &predictions));
    PAWL_RETURN_IF_ERROR(report.Add(*slot.batch, predictions));
    PAWL_RETURN_IF_ERROR(Finish(slot));
  }

  ReportEvaluationRequest header;
  header.set_evaluation(number);
  header.set_step(step);
  header.set_rank(rank_);
  header.set_final(step == shared_.plan.total_steps());
  PAWL_ASSIGN_OR_RETURN(const ReportEvaluationResponse response, Report(report.TakeParts(header)));
  return response.stop();
}

}  // namespace pawl
