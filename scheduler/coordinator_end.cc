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
  Rpc<FinishWorkResponse> rpc(*this, std::move(done));
  if (const absl::Status status = state_.CheckNotOver(); !status.ok()) return rpc.Answer(status);
  const absl::StatusOr<Node*> found = FindWorker(request.node(), request.incarnation());
  if (!found.ok()) return rpc.Answer(found.status());
  Node* const worker = *found;
  if (request.has_progress()) {
    if (const absl::Status status = membership_.CheckProgress(request.progress()); !status.ok()) return rpc.Answer(status);
    NoteProgress(request.progress(), *worker);
  }
  if (!worker->progress.failure().empty()) {
    FailJob(absl::StrCat(NodeText(*worker), ": ", worker->progress.failure()), rpc.actions());
    return rpc.Answer(FinishWorkResponse());
  }
  if (state_.state() == STARTING) {
    return rpc.Answer(absl::FailedPreconditionError(absl::StrCat(worker->name, ": the job has not started")));
  }
  gate_.Changed();
  const std::vector<uint32_t> ranks(request.logical_workers().begin(), request.logical_workers().end());
  spdlog::info("work done: {} at step {}{}", NodeText(*worker), worker->progress.steps_max(),
               ranks.empty() ? "" : absl::StrCat(", ranks ", absl::StrJoin(ranks, ", ")));
  logical_workers_.Finish(worker->name, ranks);
  rpc.Answer(FinishWorkResponse());
  FinishIfAllWorkIsDone(rpc.actions());
  return 0;
}

void Coordinator::FinishIfAllWorkIsDone(DeferredActions& actions) {
  if (!logical_workers_.AllFinished() || !state_.Finish(clock_.Now())) return;
  gate_.Changed();
  LogState(JobState_Name(RUNNING));
  FinishOnServers(actions);
}

void Coordinator::ReportIsWritten(const absl::Status& status) {
  Section section(*this);
  settled_ = false;
  if (!status.ok()) {
    FailJob(std::string(status.message()), section.actions());
    return;
  }
  if (!state_.Complete()) return;
  gate_.Changed();
  LogState(JobState_Name(FINISHING));
  EndEverything(section.actions());
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
  Rpc<StopJobResponse> rpc(*this, std::move(done));
  if (request.reason().size() > kMaxStopReasonBytes) {
    return rpc.Answer(absl::InvalidArgumentError(
        absl::StrCat("reason has ", request.reason().size(), " bytes; at most ", kMaxStopReasonBytes, " are possible")));
  }
  if (HasControlCharacters(request.reason())) return rpc.Answer(absl::InvalidArgumentError("reason has control characters"));
  rpc.Answer(StopJobResponse());
  StopJobFor(request.reason().empty() ? "somebody asked for it" : request.reason(), rpc.actions());
  return 0;
}

void Coordinator::Stop(absl::string_view reason) {
  Section section(*this);
  StopJobFor(std::string(reason), section.actions());
}

}  // namespace pawl
