// The job's end.
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
#include "scheduler/job/digest.h"
#include "scheduler/status/server_counters.h"
#include "server/storage/checkpoint/checkpoint_store.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr size_t kMaxStopReasonBytes = 256;

}  // namespace

Ticket Coordinator::FinishWork(const FinishWorkRequest& request, Done<FinishWorkResponse> done) {
  Rpc<FinishWorkResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  if (const absl::Status status = state_.CheckNotOver(); !status.ok()) return rpc.Answer(status);
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
  gate_.Changed();
  const std::vector<uint32_t> ranks(request.logical_workers().begin(),
                                    request.logical_workers().end());
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
  EnterStage(EndStage::kRestoringBest, actions);
}

void Coordinator::EnterStage(EndStage stage, DeferredActions& actions) {
  end_.stage = stage;
  switch (stage) {
    case EndStage::kRestoringBest:
      RestoreBestIfKept(actions);
      break;
    case EndStage::kCheckpointing:
      CheckpointEndIfWanted(actions);
      break;
    case EndStage::kInspecting:
      GatherResult(actions);
      break;
    case EndStage::kReporting:
      ReportResult(actions);
      break;
    case EndStage::kNone:
    case EndStage::kReported:
      break;
  }
}

void Coordinator::RestoreBestIfKept(DeferredActions& actions) {
  if (!evaluations_.best_is_kept()) {
    EnterStage(EndStage::kCheckpointing, actions);
    return;
  }
  RestoreBestRequest request;
  request.set_job_id(options_.job_id);
  rounds_.Ask(
      "restoring the best parameters", {running_.Now(), TimeToRead(kKeepBestTimeout)}, request,
      &ServerCaller::RestoreBest,
      [this](const absl::Status& status, DeferredActions& actions) PAWL_REQUIRES(mu_) {
        if (!status.ok()) {
          FailJob(std::string(status.message()), actions);
          return;
        }
        spdlog::info("restored the parameters of evaluation {}",
                     evaluations_.FinalResult()->evaluation());
        EnterStage(EndStage::kCheckpointing, actions);
      },
      actions);
}

// The checkpoint -------------------------------------------------------------------

void Coordinator::CheckpointEndIfWanted(DeferredActions& actions) {
  if (options_.write_checkpoint == nullptr || options_.job.checkpoint().dir().empty() ||
      checkpoints_.end_is_decided()) {
    EnterStage(EndStage::kInspecting, actions);
    return;
  }
  InspectRequest request;
  request.set_job_id(options_.job_id);
  rounds_.Gather<InspectResponse>(
      "reading the counters", {running_.Now(), kInspectTimeout}, request, &ServerCaller::Inspect,
      [this](const absl::StatusOr<std::vector<InspectResponse>>& answers, DeferredActions& actions)
          PAWL_REQUIRES(mu_) {
            if (!answers.ok()) {
              FailJob(std::string(answers.status().message()), actions);
              return;
            }
            uint64_t step = 0;
            for (const InspectResponse& answer : *answers)
              step = std::max(step, answer.counters().step());
            CheckpointEndAt(step, actions);
          },
      actions);
}

void Coordinator::CheckpointEndAt(uint64_t step, DeferredActions& actions) {
  const std::string& dir = options_.job.checkpoint().dir();
  if (restore_.has_value() && restore_->dir() == dir && restore_->step() == step &&
      CheckpointStore::IsEndCheckpoint(restore_->name())) {
    // There was nothing left to train.
    checkpoints_.EndIsIn(absl::StrCat(dir, "/", restore_->name()));
    EndCheckpointIsDecided(actions);
    return;
  }
  end_.checkpoint_attempts.Begin(running_.Now());
  const std::optional<Checkpoints::Order> before = checkpoints_.under_way();
  const Checkpoints::Order order = checkpoints_.BeginEnd(step);
  // The one that is begun may still come about.
  pending_.checkpoints.AnswerIf(
      [&](const std::string& wanted) {
        return wanted != dir && (!before.has_value() || wanted != before->dir);
      },
      absl::FailedPreconditionError(
          absl::StrCat("the job has come to its end; the checkpoint of that is made in ", dir)),
      actions);
  gate_.Changed();
  spdlog::info("making the {} in {}", order.Text(), order.dir);
  CheckpointOnServers(order, actions);
}

void Coordinator::ContinueCheckpointOfEnd(MonotonicTime now, DeferredActions& actions) {
  const std::optional<Checkpoints::Order> order = checkpoints_.under_way();
  if (!order.has_value() || !order->of_end) return;
  if (const absl::Status late = end_.checkpoint_attempts.CheckTime(now); !late.ok()) {
    GiveUpEndCheckpoint(*order, late, actions);
  } else if (end_.checkpoint_attempts.TakeNext(now)) {
    CheckpointOnServers(*order, actions);
  }
}

void Coordinator::EndCheckpointHasFailed(const Checkpoints::Order& order,
                                         const absl::Status& status, DeferredActions& actions) {
  if (!EndCheckpointAttempts::MayPass(status)) {
    GiveUpEndCheckpoint(order, status, actions);
    return;
  }
  if (end_.checkpoint_attempts.HasFailed(status, running_.Now())) {
    spdlog::log(
        EndCheckpointAttempts::IsOfTheMoment(status) ? spdlog::level::info : spdlog::level::warn,
        "{} in {} is tried again: {}", order.Text(), order.dir, status.ToString());
  }
}

void Coordinator::GiveUpEndCheckpoint(const Checkpoints::Order& order, const absl::Status& status,
                                      DeferredActions& actions) {
  spdlog::error("{} in {} came to nothing: {}", order.Text(), order.dir, status.ToString());
  checkpoints_.EndHasFailed(status);
  pending_.checkpoints.AnswerIf([&](const std::string& dir) { return dir == order.dir; }, status,
                                actions);
  EndCheckpointIsDecided(actions);
}

void Coordinator::EndCheckpointIsDecided(DeferredActions& actions) {
  const CheckpointStatus status = checkpoints_.Status();
  events_.Add(CHECKPOINT_OF_END, "",
              status.end_folder().empty() ? absl::StrCat("there is none: ", status.end_failure())
                                          : status.end_folder());
  gate_.Changed();
  EnterStage(EndStage::kInspecting, actions);
}

// The result ------------------------------------------------------------------------

void Coordinator::GatherResult(DeferredActions& actions) {
  InspectRequest request;
  request.set_job_id(options_.job_id);
  request.set_digest(true);
  rounds_.Gather<InspectResponse>(
      "inspecting", {running_.Now(), TimeToRead(kInspectTimeout)}, request, &ServerCaller::Inspect,
      [this](const absl::StatusOr<std::vector<InspectResponse>>& answers, DeferredActions& actions)
          PAWL_REQUIRES(mu_) {
            if (!answers.ok()) {
              FailJob(std::string(answers.status().message()), actions);
              return;
            }
            std::map<uint32_t, std::string> names;
            for (const TableCatalogue::Entry* table : tables_.All())
              names[table->spec.id()] = table->spec.name();
            ServerCounters counters;
            std::vector<PartitionDigest> digests;
            for (const InspectResponse& answer : *answers) {
              AddCounters(answer.counters(), counters);
              digests.insert(digests.end(), answer.digests().begin(), answer.digests().end());
            }
            const absl::StatusOr<uint32_t> digest = CombineDigests(names, digests);
            if (!digest.ok()) {
              FailJob(std::string(digest.status().message()), actions);
              return;
            }
            end_.digest = *digest;
            end_.counters = counters;
            spdlog::info("digest {}", DigestText(*digest));
            EnterStage(EndStage::kReporting, actions);
          },
      actions);
}

void Coordinator::ReportResult(DeferredActions& actions) {
  JobReport report = Report();
  report.status.set_state(COMPLETED);
  actions.Add([this, report = std::move(report)] {
    ReportIsWritten(options_.write_report == nullptr ? absl::OkStatus()
                                                     : options_.write_report(report));
  });
}

void Coordinator::ReportIsWritten(const absl::Status& status) {
  Section section(*this);
  EnterStage(EndStage::kReported, section.actions());
  if (!status.ok()) {
    FailJob(std::string(status.message()), section.actions());
    return;
  }
  if (!state_.Complete()) return;
  gate_.Changed();
  LogState(JobState_Name(FINISHING));
  EndEverything(section.actions());
}

// Other ends ------------------------------------------------------------------------

void Coordinator::FailJob(const std::string& failure, DeferredActions& actions) {
  if (end_.stage == EndStage::kReporting) return;
  const JobState from = state_.state();
  if (!state_.Fail(BoundedText(failure, kMaxFailureBytes), clock_.Now())) return;
  gate_.Changed();
  LogState(JobState_Name(from));
  EndEverything(actions);
}

void Coordinator::StopJobFor(const std::string& reason, DeferredActions& actions) {
  if (end_.stage == EndStage::kReporting) return;
  const JobState from = state_.state();
  if (!state_.Stop(reason, clock_.Now())) return;
  gate_.Changed();
  LogState(JobState_Name(from));
  EndEverything(actions);
}

void Coordinator::EndEverything(DeferredActions& actions) {
  // As long as it goes with the nodes: what happens to them from now on changes nothing any more.
  routings_.Newest(director_.placement(), membership_);
  pending_.AnswerAll(state_.CheckNotOver(), actions);
  checkpoints_.Abandon();
  rounds_.Abandon();
  if (state_.state() == COMPLETED || options_.write_report == nullptr) {
    EnterStage(EndStage::kReported, actions);
    return;
  }
  // What is reported has no result.
  end_.stage = EndStage::kReporting;
  actions.Add([this, report = Report()] {
    const absl::Status status = options_.write_report(report);
    if (!status.ok()) spdlog::error("{}", status.ToString());
    MutexLock lock(mu_);
    end_.stage = EndStage::kReported;
  });
}

Ticket Coordinator::StopJob(const StopJobRequest& request, Done<StopJobResponse> done) {
  Rpc<StopJobResponse> rpc(*this, std::move(done));
  if (rpc.refused()) return 0;
  if (request.reason().size() > kMaxStopReasonBytes) {
    return rpc.Answer(absl::InvalidArgumentError(
        absl::StrCat("reason has ", request.reason().size(), " bytes; at most ",
                     kMaxStopReasonBytes, " are possible")));
  }
  if (HasControlCharacters(request.reason()))
    return rpc.Answer(absl::InvalidArgumentError("reason has control characters"));
  if (!state_.over() && end_.stage == EndStage::kReporting) {
    return rpc.Answer(absl::UnavailableError("the job is ending, with its result"));
  }
  rpc.Answer(StopJobResponse());
  StopJobFor(request.reason().empty() ? "somebody asked for it" : request.reason(), rpc.actions());
  return 0;
}

void Coordinator::Stop(absl::string_view reason) {
  Section section(*this);
  StopJobFor(std::string(reason), section.actions());
}

}  // namespace pawl
