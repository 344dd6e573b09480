// The job's end.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/bounded_text.h"
#include "scheduler/coordinator.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr size_t kMaxStopReasonBytes = 256;

}  // namespace

Ticket Coordinator::FinishWork(const FinishWorkRequest& request, Done<FinishWorkResponse> done) {
  if (RefuseIfTooManyAreHeld(done)) return 0;
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  const auto answer = [&](absl::StatusOr<FinishWorkResponse> response) {
    AnswerNow<FinishWorkResponse>(std::move(done), std::move(response), actions);
    return Ticket{0};
  };
  if (const absl::Status status = state_.CheckNotOver(); !status.ok()) return answer(status);
  const absl::StatusOr<Node*> found = FindWorker(request.node(), request.incarnation());
  if (!found.ok()) return answer(found.status());
  Node* const worker = *found;
  if (request.has_progress()) {
    if (const absl::Status status = membership_.CheckProgress(request.progress()); !status.ok()) return answer(status);
    NoteProgress(request.progress(), *worker);
  }
  if (!worker->progress.failure().empty()) {
    FailJob(absl::StrCat(NodeText(*worker), ": ", worker->progress.failure()), actions);
    return answer(FinishWorkResponse());
  }
  if (state_.state() == STARTING) {
    return answer(absl::FailedPreconditionError(absl::StrCat(worker->name, ": the job has not started")));
  }
  gate_.Changed();
  const std::vector<uint32_t> ranks(request.logical_workers().begin(), request.logical_workers().end());
  spdlog::info("work done: {} at step {}{}", NodeText(*worker), worker->progress.steps_max(),
               ranks.empty() ? "" : absl::StrCat(", ranks ", absl::StrJoin(ranks, ", ")));
  logical_workers_.Finish(worker->name, ranks);
  answer(FinishWorkResponse());
  FinishIfAllWorkIsDone(actions);
  return 0;
}

void Coordinator::FinishIfAllWorkIsDone(DeferredActions& actions) {
  if (!logical_workers_.AllFinished() || !state_.Finish(clock_.Now())) return;
  gate_.Changed();
  LogState(JobState_Name(RUNNING));
  FinishOnServers(actions);
}

void Coordinator::ReportIsWritten(const absl::Status& status) {
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  settled_ = false;
  if (!status.ok()) {
    FailJob(std::string(status.message()), actions);
    return;
  }
  if (!state_.Complete()) return;
  gate_.Changed();
  LogState(JobState_Name(FINISHING));
  EndEverything(actions);
}

void Coordinator::FailJob(const std::string& failure, DeferredActions& actions) {
  if (settled_) return;
  const JobState from = state_.state();
  if (!state_.Fail(BoundedText(failure, kMaxFailureBytes), clock_.Now())) return;
  gate_.Changed();
  LogState(JobState_Name(from));
  EndEverything(actions);
}

void Coordinator::StopJobFor(const std::string& reason, DeferredActions& actions) {
  if (settled_) return;
  const JobState from = state_.state();
  if (!state_.Stop(reason, clock_.Now())) return;
  gate_.Changed();
  LogState(JobState_Name(from));
  EndEverything(actions);
}

void Coordinator::EndEverything(DeferredActions& actions) {
  // As long as it goes with the nodes: what happens to them from now on changes nothing any more.
  UpdateRouting();
  const absl::Status status = state_.CheckNotOver();
  routing_calls_.AnswerAll(status, actions);
  table_calls_.AnswerAll(status, actions);
  barrier_calls_.AnswerAll(status, actions);
  assignment_calls_.AnswerAll(status, actions);
  join_group_calls_.AnswerAll(status, actions);
  exchange_calls_.AnswerAll(status, actions);
  watch_group_calls_.AnswerAll(status, actions);
  evaluation_calls_.AnswerAll(status, actions);
  checkpoint_calls_.AnswerAll(status, actions);
  checkpoints_.Abandon();
  rounds_.Abandon();
  if (state_.state() == COMPLETED || options_.write_report == nullptr) {
    report_is_written_ = true;
    return;
  }
  actions.Add([this, report = Report()] {
    const absl::Status status = options_.write_report(report);
    if (!status.ok()) spdlog::error("{}", status.ToString());
    MutexLock lock(mu_);
    report_is_written_ = true;
  });
}

Ticket Coordinator::StopJob(const StopJobRequest& request, Done<StopJobResponse> done) {
  if (RefuseIfTooManyAreHeld(done)) return 0;
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  if (request.reason().size() > kMaxStopReasonBytes) {
    AnswerNow<StopJobResponse>(
        std::move(done),
        absl::InvalidArgumentError(
            absl::StrCat("reason has ", request.reason().size(), " bytes; at most ", kMaxStopReasonBytes, " are possible")),
        actions);
    return 0;
  }
  if (HasControlCharacters(request.reason())) {
    AnswerNow<StopJobResponse>(std::move(done), absl::InvalidArgumentError("reason has control characters"), actions);
    return 0;
  }
  AnswerNow<StopJobResponse>(std::move(done), StopJobResponse(), actions);
  StopJobFor(request.reason().empty() ? "somebody asked for it" : request.reason(), actions);
  return 0;
}

void Coordinator::Stop(absl::string_view reason) {
  DeferredActions actions;
  MutexLock lock(mu_);
  const Ending ending(*this, actions);
  StopJobFor(std::string(reason), actions);
}

}  // namespace pawl
