#include "worker/rank_trainer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/futures.h"
#include "client_lib/base/status_macros.h"
#include "spdlog/spdlog.h"
#include "worker/data/batch_slice.h"
#include "worker/evaluation_report.h"

namespace pawl {
namespace {

// After what is told of numbers that are not finite.
std::string OverflowHint(const Job& job) {
  return job.precision().compute() == FLOAT16 ? absl::StrCat("; or ", kBeyondFloat16) : "";
}

}  // namespace

float GradientScale(ConsistencyMode mode, uint32_t logical_workers, uint64_t step_samples, uint64_t rank_samples) {
  if (mode == BOUNDED || mode == ASYNC) return static_cast<float>(1.0 / static_cast<double>(rank_samples));
  return static_cast<float>(static_cast<double>(logical_workers) / static_cast<double>(step_samples));
}

bool DenseStaysOnDevice(const Job& job, const Device& device) {
  return job.dense_path() == ALLREDUCE && !device.SharesHostMemory() && job.micro_batches() <= 1 &&
         !job.all_reduce().sharded_optimizer();
}

RankTrainer::RankTrainer(const Shared& shared, Interrupts interrupts, LogicalWorker& session,
                         std::unique_ptr<TrainingModel> model)
    : shared_(shared),
      interrupts_(interrupts),
      rank_(session.rank()),
      session_(session),
      model_(std::move(model)),
      train_assembler_(shared_.train),
      loss_scale_watch_(shared_.job.precision().loss_scale() == 0 ? kDefaultLossScale
                                                                  : shared_.job.precision().loss_scale()) {
  if (shared_.eval != nullptr) eval_assembler_.emplace(*shared_.eval);
  for (Slot& slot : slots_) {
    slot.values.resize(shared_.tables.size());
    slot.gradients.resize(shared_.tables.size());
  }
  size_t dense = 0;
  for (const Table& table : shared_.tables) dense_index_.push_back(table.dense() ? dense++ : 0);
}

RankTrainer::~RankTrainer() = default;

template <typename Call>
absl::Status RankTrainer::Wait(Call call) {
  const MonotonicTime begin = Clock::Real().Now();
  const absl::Status status = call();
  waiting_s_ += Seconds(Clock::Real().Now() - begin);
  return status;
}

absl::Status RankTrainer::Run() {
  const absl::Status status = RunSteps();
  if (!status.ok()) EndStepsUnderWay();
  return status;
}

bool RankTrainer::Idle() const {
  for (const Slot& slot : slots_) {
    for (const std::future<absl::Status>* call : {&slot.pulled, &slot.pushed, &slot.written_back, &slot.ended}) {
      if (call->valid() && !IsReady(*call)) return false;
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
    if (step >= total) {
      // As long as a rank may have to be taken over, its new worker needs a group of all ranks.
      return shared_.replica == nullptr ? absl::OkStatus() : Meet("end of the dense training");
    }
    const uint64_t pause = shared_.plan.NextPause(step);
    PAWL_RETURN_IF_ERROR(Train(step, pause));
    step = pause;
  }
}

absl::Status RankTrainer::Train(uint64_t begin, uint64_t end) {
  source_ = shared_.dense;
  PAWL_RETURN_IF_ERROR(StartPull(slots_[begin % kSlots], *train_stream_, begin));
  if (shared_.replica != nullptr) {
    PAWL_RETURN_IF_ERROR(
        Wait([&] { return shared_.replica->AwaitTakenIn(rank_, shared_.step_timeout, interrupts_.leave); }));
  }
  for (uint64_t step = begin; step < end; ++step) {
    Slot& slot = slots_[step % kSlots];
    const MonotonicTime began = Clock::Real().Now();
    // What was waited for between steps is no time of training.
    waiting_s_ = 0;
    PAWL_RETURN_IF_ERROR(AwaitPull(slot, &parameters_));
    // Where nothing is waited for nobody has looked.
    PAWL_RETURN_IF_ERROR(interrupts_.leave.reason());
    const Batch* next = nullptr;
    if (step + 1 < end) {
      Slot& ahead = slots_[(step + 1) % kSlots];
      PAWL_RETURN_IF_ERROR(StartPull(ahead, *train_stream_, step + 1));
      if (ahead.batch->samples > 0) next = ahead.batch;
    }
    LossSum loss;
    // A share may be empty: there is nothing to push then, but the step ends for this rank too.
    if (slot.batch->samples > 0) {
      PAWL_RETURN_IF_ERROR(ComputeAndPush(slot, step, next, &loss));
    } else if (shared_.replica != nullptr) {
      PAWL_RETURN_IF_ERROR(GiveNothing(slot, step));
    }
    const bool is_write_back = shared_.replica != nullptr && shared_.plan.IsWriteBack(step + 1);
    if (is_write_back) PAWL_RETURN_IF_ERROR(WriteBack(slot, step));
    absl::Status interrupted;
    if (shared_.step_delay > MonotonicDuration::zero()) interrupted = interrupts_.leave.SleepFor(shared_.step_delay);
    EndStep(slot, step, loss);
    // A successor that begins with this step must be able to write back the same. It cannot if this rank's gradients have
    // taken the others further.
    if (is_write_back && interrupted.ok()) interrupted = Finish(slot);
    shared_.progress.Spent(Seconds(Clock::Real().Now() - began), std::exchange(waiting_s_, 0));
    PAWL_RETURN_IF_ERROR(interrupted);
  }
  for (Slot& slot : slots_) PAWL_RETURN_IF_ERROR(Finish(slot));
  return absl::OkStatus();
}

absl::Status RankTrainer::StartPull(Slot& slot, BatchStream& stream, uint64_t step) {
  PAWL_RETURN_IF_ERROR(Finish(slot));
  PAWL_ASSIGN_OR_RETURN(slot.batch, stream.Next(interrupts_.leave));
  slot.stream = &stream;
  if (source_ != nullptr) {
    // Also for an empty share, since asking is what keeps a rank from running ahead.
    PAWL_ASSIGN_OR_RETURN(slot.dense, source_->At(step, session_, shared_.step_timeout));
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
  session_.Pull(pull_items_, options, Fulfilling(slot.pulled));
  return absl::OkStatus();
}

absl::Status RankTrainer::AwaitPull(Slot& slot, std::vector<absl::Span<const float>>* parameters) {
  PAWL_RETURN_IF_ERROR(Wait([&] {
    if (slot.dense != nullptr) PAWL_RETURN_IF_ERROR(slot.dense->Await(interrupts_.leave));
    if (!slot.pulled.valid()) return absl::OkStatus();
    return Await(slot.pulled, shared_.step_timeout + kLibraryGrace, interrupts_.leave, "pull");
  }));
  parameters->clear();
  for (size_t t = 0; t < shared_.tables.size(); ++t) {
    parameters->push_back(IsShared(t) ? slot.dense->values(dense_index_[t]) : slot.values[t]);
  }
  return absl::OkStatus();
}

absl::Status RankTrainer::GiveNothing(Slot& slot, uint64_t step) {
  for (size_t t = 0; t < shared_.tables.size(); ++t) {
    if (!IsReplicated(t)) continue;
    PAWL_RETURN_IF_ERROR(Wait([&] { return slot.dense->AwaitTable(dense_index_[t], interrupts_.leave); }));
  }
  shared_.replica->GiveNothing(rank_, step);
  return absl::OkStatus();
}

absl::StatusOr<LossSum> RankTrainer::Compute(Slot& slot, uint64_t step, float scale, const Batch* next) {
  const Batch& batch = *slot.batch;
  // An interrupt is noticed by whoever waits next.
  const auto delay = [&](size_t table, int passes) {
    if (shared_.element_delay == MonotonicDuration::zero() || !shared_.tables[table].dense()) return;
    const auto elements = static_cast<int64_t>(gradients_[table].size());
    interrupts_.leave.SleepFor(shared_.element_delay * passes * elements).IgnoreError();
  };
  const ParameterGate gate = [&](size_t table) {
    if (!IsShared(table)) return absl::OkStatus();
    PAWL_RETURN_IF_ERROR(Wait([&] { return slot.dense->AwaitTable(dense_index_[table], interrupts_.leave); }));
    delay(table, /*passes=*/1);
    return absl::OkStatus();
  };
  const TryGate try_gate = [&] { return interrupts_.leave.reason(); };
  const auto hand_in = [&](size_t table) {
    delay(table, /*passes=*/2);
    if (IsReplicated(table)) shared_.replica->Give(rank_, step, dense_index_[table]);
  };
  const uint64_t parts = std::min<uint64_t>(std::max(shared_.job.micro_batches(), 1u), batch.samples);
  if (parts == 1) return model_->ComputeGradients(batch, parameters_, scale, gradients_, hand_in, gate, next, try_gate);

  LossSum loss;
  for (uint64_t part = 0; part < parts; ++part) {
    SliceBatch(batch, EvaluationShard(batch.samples, static_cast<uint32_t>(part), static_cast<uint32_t>(parts)), &part_);
    if (part == 1) {
      part_values_.resize(gradients_.size());
      part_gradients_.clear();
      for (size_t t = 0; t < gradients_.size(); ++t) {
        part_values_[t].resize(gradients_[t].size());
        part_gradients_.push_back(absl::MakeSpan(part_values_[t]));
      }
    }
    const bool is_last = part + 1 == parts;
    const GradientSink add = [&](size_t table) {
      if (part > 0) {
        float* const sum = gradients_[table].data();
        const float* const more = part_gradients_[table].data();
        for (size_t i = 0; i < gradients_[table].size(); ++i) sum[i] += more[i];
      }
      if (is_last) hand_in(table);
    };
    const std::vector<absl::Span<float>>& gradients = part == 0 ? gradients_ : part_gradients_;
    PAWL_ASSIGN_OR_RETURN(const LossSum of_part, model_->ComputeGradients(part_, parameters_, scale, gradients, add, gate,
                                                                          /*next=*/nullptr, try_gate));
    loss.loss_sum += of_part.loss_sum;
    loss.samples += of_part.samples;
    loss.loss_scale = part == 0 ? of_part.loss_scale : std::min(loss.loss_scale, of_part.loss_scale);
  }
  return loss;
}

absl::Status RankTrainer::WriteBack(Slot& slot, uint64_t step) {
  // Something of the step was pushed, so that it is to be ended; but a rank that is to end does not keep everybody: whoever
  // is to take over another rank of this process may be needed for what it waits for.
  absl::Status status;
  do {
    if (!interrupts_.leave.reason().ok()) {
      status = Wait([&] { return shared_.replica->AwaitSteps(step + 1, kHandOverLimit, interrupts_.abandon); });
      break;
    }
    status = Wait([&] { return shared_.replica->AwaitSteps(step + 1, shared_.step_timeout, interrupts_.leave); });
  } while (!status.ok() && !interrupts_.leave.reason().ok() && interrupts_.abandon.reason().ok());
  PAWL_RETURN_IF_ERROR(status);
  PAWL_ASSIGN_OR_RETURN(slot.share, shared_.replica->WriteBack(*shared_.store, step + 1, rank_));
  if (!slot.share.has_value()) {
    const ConsistencyMode mode = shared_.job.consistency().mode();
    // Blocks of two write-backs are allowed there.
    if (mode == BOUNDED || mode == ASYNC) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("the dense parameters are not those after ", step + 1,
                                            " steps, though logical worker ", rank_, " has not ended step ", step));
  }
  if (slot.share->items.empty()) return absl::OkStatus();
  CallOptions options;
  options.timeout = shared_.step_timeout;
  session_.Push(slot.share->items, options, FulfilOrEnd(slot.written_back, "write-back", step));
  return absl::OkStatus();
}

absl::Status RankTrainer::ComputeAndPush(Slot& slot, uint64_t step, const Batch* next, LossSum* loss) {
  const Batch& batch = *slot.batch;
  gradients_.clear();
  for (size_t t = 0; t < shared_.tables.size(); ++t) {
    if (IsReplicated(t)) {
      gradients_.push_back(shared_.replica->GradientBuffer(rank_, dense_index_[t]));
      continue;
    }
    slot.gradients[t].resize(model_->SpanSize(t, batch.keys.size()));
    gradients_.push_back(absl::MakeSpan(slot.gradients[t]));
  }
  const uint64_t step_samples = shared_.sampler.GlobalSize(shared_.sampler.PositionOf(step).step);
  const float scale = GradientScale(shared_.job.consistency().mode(), shared_.logical_workers, step_samples, batch.samples);
  PAWL_ASSIGN_OR_RETURN(*loss, Compute(slot, step, scale, next));
  if (shared_.job.precision().compute() == FLOAT16) {
    const std::optional<std::string> line = loss_scale_watch_.OnStep(loss->loss_scale);
    if (line.has_value()) spdlog::warn("logical worker {} at step {}: {}", rank_, step, *line);
  }
  if (!std::isfinite(loss->loss_sum)) {
    return absl::InvalidArgumentError(absl::StrCat("the loss of logical worker ", rank_, " at step ", step, " is ",
                                                   loss->loss_sum, ": the training has diverged; reduce the learning rate",
                                                   OverflowHint(shared_.job)));
  }
  push_items_.clear();
  for (size_t t = 0; t < shared_.tables.size(); ++t) {
    if (gradients_[t].empty() || IsReplicated(t)) continue;
    PushItem& item = push_items_.emplace_back();
    item.table = shared_.tables[t];
    if (!item.table.dense()) item.keys = batch.keys;
    item.gradients = gradients_[t];
    item.keys_are_distinct = true;
    // What is written back is no gradient, and stays FLOAT32.
    if (shared_.job.precision().gradients() != ELEMENT_TYPE_UNSPECIFIED) {
      item.element_type = shared_.job.precision().gradients();
    }
  }
  if (push_items_.empty()) return absl::OkStatus();
  CallOptions options;
  options.timeout = shared_.step_timeout;
  session_.Push(push_items_, options, FulfilOrEnd(slot.pushed, "push", step));
  return absl::OkStatus();
}

Callback RankTrainer::FulfilOrEnd(std::future<absl::Status>& future, absl::string_view what, uint64_t step) {
  return [this, what, step, done = Fulfilling(future)](absl::Status status) mutable {
    if (!status.ok()) {
      status = Annotate(status, absl::StrCat(what, " of logical worker ", rank_, " at step ", step));
      interrupts_.leave.Set(status);
      interrupts_.abandon.Set(status);
    }
    done(std::move(status));
  };
}

void RankTrainer::EndStep(Slot& slot, uint64_t step, const LossSum& loss) {
  CallOptions options;
  options.timeout = shared_.step_timeout;
  auto done = FulfilOrEnd(slot.ended, "end", step);
  session_.EndStep(options, [this, loss, done = std::move(done)](absl::Status status) mutable {
    if (status.ok()) shared_.progress.StepEnded(rank_, loss.samples, loss.loss_sum);
    done(std::move(status));
  });
}

absl::Status RankTrainer::Finish(Slot& slot) {
  const std::pair<std::future<absl::Status>*, absl::string_view> calls[] = {
      {&slot.pushed, "push"}, {&slot.written_back, "write-back"}, {&slot.ended, "end of the step"}};
  for (const auto& [call, what] : calls) {
    if (!call->valid()) continue;
    PAWL_RETURN_IF_ERROR(Wait([&, call = call, what = what] {
      return Await(*call, shared_.step_timeout + kLibraryGrace, interrupts_.leave, what);
    }));
  }
  slot.share.reset();
  slot.dense.reset();
  if (slot.batch != nullptr) slot.stream->Release(std::exchange(slot.batch, nullptr));
  return absl::OkStatus();
}

void RankTrainer::EndStepsUnderWay() {
  for (Slot& slot : slots_) {
    for (std::future<absl::Status>* call : {&slot.pushed, &slot.written_back, &slot.ended}) {
      if (call->valid())
        AwaitReady(*call, shared_.step_timeout + kLibraryGrace, interrupts_.abandon, "end of the step").IgnoreError();
    }
  }
  // What this rank has given to a dense step goes with this process, unless the others have taken it up.
  if (shared_.replica != nullptr) {
    shared_.replica->AwaitSteps(session_.step(), kHandOverLimit, interrupts_.abandon).IgnoreError();
  }
}

absl::Status RankTrainer::Meet(absl::string_view place) {
  absl::Status status;
  for (int attempt = 0; attempt < kMaxRendezvousAttempts; ++attempt) {
    // One that dies while it waits fails the barrier for all. They, and its successor, meet again under the next name.
    auto all_there = shared_.rendezvous.Barrier(absl::StrCat(place, attempt == 0 ? "" : absl::StrCat("-again-", attempt)),
                                                shared_.logical_workers, rank_);
    status = Await(all_there, kRendezvousTimeout + kLibraryGrace, interrupts_.leave, absl::StrCat("barrier `", place, "`"));
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
      response = Await(answer, kRendezvousTimeout + kLibraryGrace, interrupts_.leave, "report of the evaluation");
      if (!response.ok()) break;
    }
    // A scheduler that was restarted meanwhile lacks the parts before, and wants all of them again.
    if (!absl::IsFailedPrecondition(response.status()) || parts.size() == 1) break;
  }
  return response;
}

absl::StatusOr<bool> RankTrainer::Evaluate(uint64_t step) {
  source_ = shared_.evaluation_dense;
  const uint64_t number = shared_.plan.EvaluationNumber(step);
  if (shared_.job.consistency().mode() == BOUNDED || shared_.job.consistency().mode() == ASYNC) {
    // Everybody evaluates, and the best are kept, when all pushes so far have been applied.
    PAWL_RETURN_IF_ERROR(Meet(absl::StrCat("evaluation-", number)));
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
    PAWL_RETURN_IF_ERROR(interrupts_.leave.reason());
    if (i + ahead < batches) PAWL_RETURN_IF_ERROR(StartPull(slots_[(i + ahead) % kSlots], *eval_stream_, step));
    PAWL_RETURN_IF_ERROR(model_->Predict(*slot.batch, parameters_, &predictions));
    if (const absl::Status status = report.Add(*slot.batch, predictions); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(status.message(), OverflowHint(shared_.job)));
    }
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
