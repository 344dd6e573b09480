// The job's end: its stages, its failure and its stop.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/bounded_text.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/job/coordinator_section.h"
#include "scheduler/status/digest.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr size_t kMaxStopReasonBytes = 256;

}  // namespace

Ticket Coordinator::FinishWork(const FinishWorkRequest& request, Done<FinishWorkResponse> done) {
  Rpc<FinishWorkResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  // Repeated, because the answer was lost: all work is finished.
  if (state_.state() == COMPLETED && request.progress().failure().empty())
    return rpc.Answer(FinishWorkResponse());
  if (const absl::Status status = state_.CheckNotEnded(); !status.ok()) return rpc.Answer(status);
  const absl::StatusOr<Node*> found = FindWorker(request.node(), request.incarnation());
  if (!found.ok()) return rpc.Answer(found.status());
  Node* const worker = *found;
  if (request.has_progress()) {
    if (const absl::Status status = membership_.CheckProgress(request.progress()); !status.ok())
      return rpc.Answer(status);
    NoteProgress(request.progress(), *worker);
  }
  if (!worker->progress.failure().empty()) {
    FailJob(absl::StrCat(NodeText(*worker), ": ", worker->progress.failure()), rpc.actions());
    return rpc.Answer(FinishWorkResponse());
  }
  if (state_.state() == STARTING) {
    return rpc.Answer(
        absl::FailedPreconditionError(absl::StrCat(worker->name, ": the job has not started")));
  }
  const std::vector<uint32_t> ranks(request.logical_workers().begin(),
                                    request.logical_workers().end());
  if (ranks.empty() && ranks_.Follows(worker->name)) {
    // It might have got a rank that it has not heard of.
    return rpc.Answer(absl::InvalidArgumentError(
        "logical_workers is empty; a worker that follows its assignment names the finished ranks"));
  }
  gate_.OnChange();
  spdlog::info("work done: {} at step {}{}", NodeText(*worker), worker->progress.steps_max(),
               ranks.empty() ? "" : absl::StrCat(", ranks ", absl::StrJoin(ranks, ", ")));
  // Others must not wait for ranks that take no more steps.
  const std::vector<FreeRank> finished = ranks_.Finish(worker->name, ranks);
  ReleaseOnServers(finished, rpc.actions());
  for (const FreeRank& rank : finished) evaluations_.Finish(rank.rank);
  MaybeAnswerArrivals(rpc.actions());
  MaybeEvaluate(rpc.at_once());
  rpc.Answer(FinishWorkResponse());
  MaybeFinish(rpc.actions());
  return 0;
}

void Coordinator::MaybeFinish(DeferredActions& actions) {
  if (!ranks_.AllFinished() || !state_.Finish(clock_.Now())) return;
  gate_.OnChange();
  LogState(RUNNING);
  Run(end_.Advance(), actions);
}

// The stages ------------------------------------------------------------------------

void Coordinator::Run(JobEnd::Stage stage, DeferredActions& actions) {
  switch (stage) {
    case JobEnd::Stage::kRestoringBest:
      if (!evaluations_.best_is_kept()) return Run(end_.Advance(), actions);
      RestoreBest(actions);
      break;
    case JobEnd::Stage::kCheckpointing:
      if (!checkpoints_.WantsEnd()) return Run(end_.Advance(), actions);
      CheckpointEnd(actions);
      break;
    case JobEnd::Stage::kInspecting:
      Inspect(actions);
      break;
    case JobEnd::Stage::kReporting:
      WriteReport(actions);
      break;
    case JobEnd::Stage::kNone:
    case JobEnd::Stage::kReported:
      break;
  }
}

void Coordinator::RestoreBest(DeferredActions& actions) {
  RestoreBestRequest request;
  request.set_job_id(options_.job_id);
  rounds_.Ask(
      "restoring the best parameters", {running_.Now(), ReadTimeout(kKeepBestTimeout)},
      kRestoreBestRpc, request,
      [this](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (FailIfError(status, actions)) return;
        spdlog::info("restored the parameters of evaluation {}",
                     evaluations_.FinalResult()->evaluation());
        Run(end_.Advance(), actions);
      },
      actions);
}

void Coordinator::CheckpointEnd(DeferredActions& actions) {
  InspectRequest request;
  request.set_job_id(options_.job_id);
  rounds_.Gather(
      "reading the counters", {running_.Now(), kInspectTimeout}, kInspectRpc, request,
      [this](const absl::StatusOr<std::vector<InspectResponse>>& answers, DeferredActions& actions)
          PAWL_REQUIRES(mu_) {
            if (FailIfError(answers.status(), actions)) return;
            uint64_t step = 0;
            for (const InspectResponse& answer : *answers)
              step = std::max(step, answer.counters().step());
            CheckpointEndAt(step, actions);
          },
      actions);
}

void Coordinator::CheckpointEndAt(uint64_t step, DeferredActions& actions) {
  const CheckpointDirector::EndOrder end =
      checkpoints_.BeginEnd(step, ReadTimeout(kEndCheckpointTimeout), running_.Now());
  if (!end.order.has_value()) {
    OnEndCheckpointDecided(actions);
    return;
  }
  // The callers of the checkpoint that was in progress may still get it.
  pending_.checkpoints.AnswerIf(
      [&](const std::string& dir) { return dir != end.order->dir && dir != end.replaced_dir; },
      absl::FailedPreconditionError(
          absl::StrCat("the job is ending; its final checkpoint is made in ", end.order->dir)),
      actions);
  gate_.OnChange();
  spdlog::info("making the {} in {}", end.order->Text(), end.order->dir);
  CheckpointOnServers(*end.order, actions);
}

void Coordinator::OnEndCheckpointDecided(DeferredActions& actions) {
  events_.Add(FINAL_CHECKPOINT_ENDED, "", checkpoints_.EndText());
  gate_.OnChange();
  Run(end_.Advance(), actions);
}

void Coordinator::Inspect(DeferredActions& actions) {
  InspectRequest request;
  request.set_job_id(options_.job_id);
  request.set_digest(true);
  rounds_.Gather(
      "inspecting", {running_.Now(), ReadTimeout(kInspectTimeout)}, kInspectRpc, request,
      [this](const absl::StatusOr<std::vector<InspectResponse>>& answers, DeferredActions& actions)
          PAWL_REQUIRES(mu_) {
            absl::Status status = answers.status();
            if (status.ok()) {
              std::map<uint32_t, std::string> names;
              for (const TableCatalogue::Entry* table : tables_.All())
                names[table->spec.id()] = table->spec.name();
              status = end_.SetResult(names, *answers);
            }
            if (FailIfError(status, actions)) return;
            spdlog::info("digest {}", DigestText(*end_.digest()));
            Run(end_.Advance(), actions);
          },
      actions);
}

void Coordinator::WriteReport(DeferredActions& actions) {
  JobReport report = Report();
  report.status.set_state(COMPLETED);
  actions.Add([this, report = std::move(report)] {
    OnReportWritten(options_.write_report == nullptr ? absl::OkStatus()
                                                     : options_.write_report(report));
  });
}

void Coordinator::OnReportWritten(const absl::Status& status) {
  Section section(*this);
  end_.Advance();
  if (FailIfError(status, section.actions())) return;
  if (!state_.Complete()) return;
  gate_.OnChange();
  LogState(FINISHING);
  OnEnded(section.actions());
}

// Other ends ------------------------------------------------------------------------

void Coordinator::EndEarly(JobState state, absl::string_view reason, DeferredActions& actions) {
  if (!end_.CanFail()) return;
  const JobState from = state_.state();
  if (!state_.EndEarly(state, BoundedText(reason, kMaxFailureBytes), clock_.Now())) return;
  gate_.OnChange();
  LogState(from);
  OnEnded(actions);
}

void Coordinator::OnEnded(DeferredActions& actions) {
  // The last routing table is made now, while it agrees with the nodes: later changes to them do
  // not change the placement any more.
  routings_.Newest(director_.placement(), membership_);
  pending_.AnswerAll(state_.CheckNotEnded(), actions);
  checkpoints_.Abandon();
  rounds_.Abandon();
  const bool must_report = state_.state() != COMPLETED && options_.write_report != nullptr;
  end_.Finish(must_report);
  if (!must_report) return;
  actions.Add([this, report = Report()] {
    const absl::Status status = options_.write_report(report);
    if (!status.ok()) spdlog::error("{}", status.ToString());
    MutexLock lock(mu_);
    end_.Advance();
  });
}

Ticket Coordinator::StopJob(const StopJobRequest& request, Done<StopJobResponse> done) {
  Rpc<StopJobResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  if (request.reason().size() > kMaxStopReasonBytes) {
    return rpc.Answer(absl::InvalidArgumentError(absl::StrCat(
        "reason has ", request.reason().size(), " bytes; the limit is ", kMaxStopReasonBytes)));
  }
  if (HasControlCharacters(request.reason()))
    return rpc.Answer(absl::InvalidArgumentError("reason has control characters"));
  if (!state_.ended() && !end_.CanFail())
    return rpc.Answer(absl::UnavailableError("the job is ending, with its result"));
  rpc.Answer(StopJobResponse());
  EndEarly(STOPPED, request.reason().empty() ? "stopped on request" : request.reason(),
           rpc.actions());
  return 0;
}

void Coordinator::Stop(absl::string_view reason) {
  Section section(*this);
  EndEarly(STOPPED, reason, section.actions());
}

}  // namespace pawl
