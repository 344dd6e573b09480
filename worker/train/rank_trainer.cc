#include "worker/train/rank_trainer.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/consistency.h"
#include "client_lib/rpc/futures.h"
#include "spdlog/spdlog.h"
#include "worker/data/sampler.h"
#include "worker/process/rendezvous.h"
#include "worker/process/straggler_delay.h"

namespace pawl {

namespace {

// Keys come in the order in which the first of their tables is pushed and pulled.
FieldLookup LookupOf(const RankShared& shared, const TrainingModel& model) {
  FieldLookup lookup{model.layout(), {}};
  lookup.orders.assign(lookup.layout.key_sets.size(), {0, shared.job.partitions()});
  for (size_t t = shared.tables.size(); t-- > 0;) {
    if (!shared.tables[t].dense()) lookup.orders[model.key_set(t)].table = shared.tables[t].id();
  }
  return lookup;
}

}  // namespace

RankTrainer::RankTrainer(const RankShared& shared, Interrupts interrupts, LogicalWorker& session,
                         std::unique_ptr<TrainingModel> model)
    : shared_(shared),
      interrupts_(interrupts),
      rank_(session.rank()),
      session_(session),
      model_(std::move(model)),
      dense_places_(DensePlaces(shared_.tables)),
      places_{PulledBatch(PullContext()), PulledBatch(PullContext()), PulledBatch(PullContext())},
      dense_(MakeRankDense(shared_, rank_, interrupts_, waiting_)),
      micro_batches_(shared_.job.micro_batches()),
      loss_scale_watch_(FirstLossScale(shared_.job.precision())) {
  if (shared_.eval != nullptr) {
    evaluation_.emplace(shared_, rank_, *model_, absl::MakeSpan(places_), interrupts_.leave);
  }
  for (StepCalls& calls : calls_) calls.gradients.resize(shared_.tables.size());
}

PulledBatch::Context RankTrainer::PullContext() {
  return {.tables = shared_.tables,
          .dense_places = dense_places_,
          .model = *model_,
          .session = session_,
          .leave = interrupts_.leave,
          .timeout = shared_.step_timeout,
          .waiting = waiting_};
}

absl::Status RankTrainer::Run() {
  absl::Status status = RunSteps();
  CancelReads();
  if (!status.ok()) EndPendingSteps();
  return status;
}

void RankTrainer::CancelReads() {
  if (batches_ != nullptr) batches_->Cancel();
  if (stream_ != nullptr) stream_->End();
  if (evaluation_.has_value()) evaluation_->Cancel();
}

bool RankTrainer::IsIdle() const {
  if (stream_ != nullptr && !(stream_->HasEnded() && batches_->IsIdle())) return false;
  if (evaluation_.has_value() && !evaluation_->IsIdle()) return false;
  for (const PulledBatch& pulled : places_) {
    if (!pulled.IsIdle()) return false;
  }
  for (const StepCalls& calls : calls_) {
    for (const std::future<absl::Status>* call :
         {&calls.pushed, &calls.written_back, &calls.ended}) {
      if (call->valid() && !IsReady(*call)) return false;
    }
  }
  return true;
}

absl::Status RankTrainer::RunSteps() {
  const uint64_t total = shared_.plan.total_steps();
  // The checkpoint may have the rank at an earlier step; its parameters are evaluated.
  if (shared_.job.evaluation().only()) return evaluation_->Run(total).status();
  uint64_t step = session_.step();
  batches_ = shared_.train.OpenRank(shared_.sampler, rank_, total, LookupOf(shared_, *model_));
  stream_ = std::make_unique<BatchStream>(step, total, [this](uint64_t number, Batch* batch) {
    return batches_->Assemble(number, batch);
  });
  while (true) {
    // A predecessor may have done this evaluation already; the scheduler then has its result.
    if (evaluation_.has_value() && shared_.plan.IsPause(step)) {
      PAWL_ASSIGN_OR_RETURN(const bool stop, evaluation_->Run(step));
      if (stop) return absl::OkStatus();
    }
    if (step >= total) {
      if (!dense_->MeetsAtEnd()) return absl::OkStatus();
      return Meet(shared_.rendezvous, "end of the dense training", shared_.logical_workers, rank_,
                  interrupts_.leave);
    }
    const uint64_t pause = shared_.plan.NextPause(step);
    PAWL_RETURN_IF_ERROR(Train(step, pause));
    step = pause;
  }
}

absl::Status RankTrainer::Train(uint64_t begin, uint64_t end) {
  PAWL_RETURN_IF_ERROR(places_[begin % kPlaces].Start(*stream_, begin, dense_->source()));
  PAWL_RETURN_IF_ERROR(dense_->Begin());
  for (uint64_t step = begin; step < end; ++step) {
    PulledBatch& pulled = places_[step % kPlaces];
    const MonotonicTime began = Clock::Real().Now();
    // Waiting between steps does not count as training time.
    waiting_.seconds = 0;
    PAWL_RETURN_IF_ERROR(pulled.Await(&parameters_));
    // A step may pass without a wait, so check for an interrupt here.
    PAWL_RETURN_IF_ERROR(interrupts_.leave.reason());
    const Batch* next = nullptr;
    if (step + 1 < end) {
      PAWL_RETURN_IF_ERROR(Finish((step + 1) % kPlaces));
      PulledBatch& ahead = places_[(step + 1) % kPlaces];
      PAWL_RETURN_IF_ERROR(ahead.Start(*stream_, step + 1, dense_->source()));
      if (ahead.batch().samples > 0) next = &ahead.batch();
    }
    // The parameters are here already, so the gradients become as stale as those of a slow worker.
    PAWL_RETURN_IF_ERROR(
        interrupts_.leave.SleepFor(DelayOf(shared_.straggler, shared_.job.seed(), rank_, step)));
    LossSum loss;
    // A share may be empty: nothing is pushed then, but the rank still ends the step.
    if (pulled.batch().samples > 0) {
      PAWL_RETURN_IF_ERROR(ComputeAndPush(step, next, &loss));
    } else {
      PAWL_RETURN_IF_ERROR(dense_->SkipStep(pulled, step));
    }
    const bool is_write_back = dense_->IsWriteBack(step + 1);
    if (is_write_back) PAWL_RETURN_IF_ERROR(WriteBack(step));
    absl::Status interrupted;
    if (shared_.step_delay > MonotonicDuration::zero())
      interrupted = interrupts_.leave.SleepFor(shared_.step_delay);
    EndStep(step, loss);
    // A successor that starts at this step must be able to write back the same parameters. It could
    // not if this rank's next gradients had advanced the others.
    if (is_write_back && interrupted.ok()) interrupted = Finish(step % kPlaces);
    shared_.progress.AddTime(Seconds(Clock::Real().Now() - began), waiting_.seconds);
    PAWL_RETURN_IF_ERROR(interrupted);
  }
  for (size_t place = 0; place < kPlaces; ++place) PAWL_RETURN_IF_ERROR(Finish(place));
  return absl::OkStatus();
}

absl::StatusOr<LossSum> RankTrainer::Compute(uint64_t step, float scale, const Batch* next) {
  PulledBatch& pulled = places_[step % kPlaces];
  const Batch& batch = pulled.batch();
  // The next wait notices an interrupt.
  const auto delay = [&](size_t table, int passes) {
    if (shared_.element_delay == MonotonicDuration::zero() || !shared_.tables[table].dense())
      return;
    const auto elements = static_cast<int64_t>(gradients_[table].size());
    interrupts_.leave.SleepFor(shared_.element_delay * passes * elements).IgnoreError();
  };
  const auto gate = [&](size_t table) -> absl::Status {
    PAWL_RETURN_IF_ERROR(pulled.AwaitTable(table));
    delay(table, /*passes=*/1);
    return absl::OkStatus();
  };
  const auto try_gate = [&] { return interrupts_.leave.reason(); };
  const auto hand_in = [&](size_t table) {
    delay(table, /*passes=*/2);
    if (IsTaken(table)) dense_->MarkReady(step, dense_places_[table]);
  };
  return micro_batches_.ComputeGradients(
      *model_, batch, parameters_, scale, gradients_,
      {.sink = hand_in, .gate = gate, .try_gate = try_gate, .next = next});
}

absl::Status RankTrainer::WriteBack(uint64_t step) {
  StepCalls& calls = calls_[step % kPlaces];
  PAWL_ASSIGN_OR_RETURN(calls.part, dense_->WriteBack(step));
  if (!calls.part.has_value() || calls.part->items.empty()) return absl::OkStatus();
  CallOptions options;
  options.timeout = shared_.step_timeout;
  session_.Push(calls.part->items, options,
                FulfillOrInterrupt(calls.written_back, "write-back", step));
  return absl::OkStatus();
}

absl::Status RankTrainer::ComputeAndPush(uint64_t step, const Batch* next, LossSum* loss) {
  const Batch& batch = places_[step % kPlaces].batch();
  StepCalls& calls = calls_[step % kPlaces];
  gradients_.clear();
  for (size_t t = 0; t < shared_.tables.size(); ++t) {
    if (IsTaken(t)) {
      gradients_.push_back(dense_->Buffer(dense_places_[t]));
      continue;
    }
    calls.gradients[t].resize(model_->SpanSize(t, batch));
    gradients_.push_back(absl::MakeSpan(calls.gradients[t]));
  }
  const uint64_t step_samples =
      shared_.sampler.GlobalSize(shared_.sampler.epochs().PositionOf(step));
  const float scale = GradientScale(shared_.job.consistency().mode(), shared_.logical_workers,
                                    step_samples, batch.samples);
  PAWL_ASSIGN_OR_RETURN(*loss, Compute(step, scale, next));
  if (shared_.job.precision().compute() == FLOAT16) {
    const std::optional<std::string> line = loss_scale_watch_.OnStep(loss->loss_scale);
    if (line.has_value()) spdlog::warn("rank {} at step {}: {}", rank_, step, *line);
  }
  if (!std::isfinite(loss->loss_sum)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the loss of logical worker ", rank_, " at step ", step, " is ", loss->loss_sum,
        ": the training has diverged; reduce the learning rate", OverflowHint(shared_.job)));
  }
  if (shared_.job.delay_compensation() > 0) PAWL_RETURN_IF_ERROR(CompensateDelay(step));
  push_items_.clear();
  for (size_t t = 0; t < shared_.tables.size(); ++t) {
    if (gradients_[t].empty() || IsTaken(t)) continue;
    PushItem& item = push_items_.emplace_back();
    item.table = shared_.tables[t];
    if (!item.table.dense()) item.keys = model_->KeysOf(t, batch);
    item.gradients = gradients_[t];
    item.keys_are_distinct = true;
    // A write-back is not a gradient and stays FLOAT32.
    if (shared_.job.precision().gradients() != ELEMENT_TYPE_UNSPECIFIED) {
      item.element_type = shared_.job.precision().gradients();
    }
  }
  if (push_items_.empty()) return absl::OkStatus();
  CallOptions options;
  options.timeout = shared_.step_timeout;
  session_.Push(push_items_, options, FulfillOrInterrupt(calls.pushed, "push", step));
  return absl::OkStatus();
}

absl::Status RankTrainer::CompensateDelay(uint64_t step) {
  PAWL_RETURN_IF_ERROR(places_[step % kPlaces].PullAgain(step, present_parameters_));
  const float lambda = shared_.job.delay_compensation();
  for (size_t t = 0; t < gradients_.size(); ++t)
    AddDelayCompensation(lambda, parameters_[t], present_parameters_[t], gradients_[t]);
  return absl::OkStatus();
}

Callback RankTrainer::FulfillOrInterrupt(std::future<absl::Status>& future, absl::string_view what,
                                         uint64_t step) {
  return [this, what, step, done = Fulfilling(future)](absl::Status status) mutable {
    if (!status.ok()) {
      status =
          Annotate(status, absl::StrCat(what, " of logical worker ", rank_, " at step ", step));
      interrupts_.leave.Set(status);
      interrupts_.abandon.Set(status);
    }
    done(std::move(status));
  };
}

void RankTrainer::EndStep(uint64_t step, const LossSum& loss) {
  CallOptions options;
  options.timeout = shared_.step_timeout;
  auto done = FulfillOrInterrupt(calls_[step % kPlaces].ended, "end", step);
  session_.EndStep(options, [this, loss, done = std::move(done)](absl::Status status) mutable {
    if (status.ok()) shared_.progress.OnStepEnded(rank_, loss.samples, loss.loss_sum);
    done(std::move(status));
  });
}

absl::Status RankTrainer::Finish(size_t place) {
  StepCalls& calls = calls_[place];
  const std::pair<std::future<absl::Status>*, absl::string_view> awaited[] = {
      {&calls.pushed, "push"},
      {&calls.written_back, "write-back"},
      {&calls.ended, "end of the step"}};
  for (const auto& [call, what] : awaited) {
    if (!call->valid()) continue;
    PAWL_RETURN_IF_ERROR(waiting_.Measure([&, call = call, what = what] {
      return Await(*call, shared_.step_timeout + kLibraryGrace, interrupts_.leave, what);
    }));
  }
  calls.part.reset();
  places_[place].Release();
  return absl::OkStatus();
}

void RankTrainer::EndPendingSteps() {
  for (StepCalls& calls : calls_) {
    for (std::future<absl::Status>* call : {&calls.pushed, &calls.written_back, &calls.ended}) {
      if (!call->valid()) continue;
      AwaitReady(*call, shared_.step_timeout + kLibraryGrace, interrupts_.abandon,
                 "end of the step")
          .IgnoreError();
    }
  }
  dense_->HandOver(session_.step());
}

}  // namespace pawl
