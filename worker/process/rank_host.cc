#include "worker/process/rank_host.h"

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/futures.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// How long the scheduler may hold a request for a newer assignment. The request is then repeated.
constexpr std::chrono::seconds kAssignmentTimeout{10};
constexpr std::chrono::milliseconds kRetryInterval{500};

}  // namespace

absl::Status RankHost::Run() {
  RequestAssignment();
  const auto& [leave, abandon] = options_.interrupts;
  while (leave.reason().ok()) {
    WaitForChange();
    absl::Status status = HandleEnded();
    DropIdle();
    std::optional<absl::StatusOr<GetAssignmentResponse>> answer;
    {
      MutexLock lock(mu_);
      answer = std::exchange(answer_, std::nullopt);
    }
    if (status.ok() && answer.has_value()) {
      if (answer->ok()) status = Adopt(**answer);
      // If the error is permanent, the client notices by itself.
      if (!answer->ok() && !absl::IsDeadlineExceeded(answer->status()))
        leave.SleepFor(kRetryInterval).IgnoreError();
      RequestAssignment();
    }
    // A rank that ends because all must end adds no information.
    if (!status.ok() && leave.reason().ok()) {
      leave.Set(status);
      abandon.Set(status);
    }
  }
  for (const auto& [rank, hosted] : hosted_) hosted->ended.wait();
  if (client_.job_state() == COMPLETED && client_.status().ok() && hosted_.empty())
    return absl::OkStatus();
  return leave.reason();
}

void RankHost::RequestAssignment() {
  GetAssignmentRequest request;
  request.set_newer_than_version(version_);
  request.set_ready(true);
  client_.Assignment(std::move(request), {.timeout = kAssignmentTimeout},
                     [this](absl::StatusOr<GetAssignmentResponse> answer) {
                       MutexLock lock(mu_);
                       answer_ = std::move(answer);
                       has_changed_ = true;
                       changed_.NotifyAll();
                     });
}

void RankHost::WaitForChange() {
  const MonotonicTime limit = Clock::Real().Now() + kInterruptInterval;
  MutexLock lock(mu_);
  while (!has_changed_ && changed_.WaitUntil(mu_, limit)) {
  }
  has_changed_ = false;
}

absl::Status RankHost::Adopt(const GetAssignmentResponse& assignment) {
  version_ = assignment.version();
  const size_t count = static_cast<size_t>(assignment.logical_workers_size());
  if (count > kMaxHostedRanks) {
    return absl::ResourceExhaustedError(
        absl::StrCat(count, " logical workers were assigned to this process, which hosts at most ",
                     kMaxHostedRanks, "; start more workers"));
  }
  std::vector<uint32_t> lost;
  for (const auto& [rank, hosted] : hosted_) {
    const bool stays = std::any_of(
        assignment.logical_workers().begin(), assignment.logical_workers().end(),
        [&, rank = rank](const LogicalWorkerAssignment& other) { return other.rank() == rank; });
    if (stays) continue;
    lost.push_back(rank);
    hosted->is_lost = true;
    hosted->leave.Set(absl::CancelledError("the rank moves to another worker"));
  }
  std::vector<LogicalWorkerAssignment> new_ranks;
  for (const LogicalWorkerAssignment& rank : assignment.logical_workers()) {
    // The rank has ended here since the scheduler wrote this assignment.
    if (const auto it = started_.find(rank.rank());
        it != started_.end() && it->second >= rank.incarnation())
      continue;
    if (hosted_.contains(rank.rank())) {
      return absl::InternalError(absl::StrCat(
          "logical worker ", rank.rank(), " was assigned to this process as incarnation ",
          rank.incarnation(), ", but its earlier incarnation still runs here"));
    }
    started_[rank.rank()] = rank.incarnation();
    new_ranks.push_back(rank);
    // Announce all ranks before the first one starts, so that one group forms for all of them.
    if (options_.shared.replica != nullptr)
      options_.shared.replica->Expect(rank.rank(), rank.incarnation());
  }
  std::vector<uint32_t> gained;
  for (const LogicalWorkerAssignment& rank : new_ranks) {
    gained.push_back(rank.rank());
    auto hosted = std::make_unique<Hosted>(rank, options_.interrupts);
    PAWL_ASSIGN_OR_RETURN(hosted->model, options_.make_model());
    Hosted& incarnation = *hosted;
    hosted_[rank.rank()] = std::move(hosted);
    try {
      incarnation.thread = std::thread([this, &incarnation] {
        incarnation.end.set_value(Host(incarnation));
        MutexLock lock(mu_);
        has_changed_ = true;
        changed_.NotifyAll();
      });
    } catch (const std::system_error& error) {
      // Other workers can host the rank: the job continues.
      incarnation.end.set_value(absl::UnavailableError(
          absl::StrCat("cannot start the thread of rank ", rank.rank(), ": ", error.what())));
    }
  }
  if (!lost.empty()) spdlog::info("releasing ranks {}", absl::StrJoin(lost, ", "));
  if (!gained.empty()) {
    spdlog::info("taking over ranks {} of {}", absl::StrJoin(gained, ", "),
                 options_.shared.logical_workers);
  } else if (count == 0 && lost.empty()) {
    spdlog::info("standing by: other workers host all ranks");
  }
  return absl::OkStatus();
}

absl::Status RankHost::Host(Hosted& hosted) {
  const uint32_t rank = hosted.assignment.rank();
  LogicalWorker* session = nullptr;
  const absl::Cleanup end = [&] {
    if (options_.shared.replica != nullptr)
      options_.shared.replica->End(rank, session == nullptr ? 0 : session->step());
  };
  auto taken_over = client_.TakeOver(hosted.assignment, {.timeout = options_.call_timeout});
  // Completes even if the rank must be released: no other worker can have it before.
  PAWL_ASSIGN_OR_RETURN(session, Await(taken_over, options_.call_timeout + kLibraryGrace,
                                       options_.interrupts.leave, "takeover of a rank"));
  const uint64_t step = session->step();
  if (options_.shared.replica != nullptr)
    PAWL_RETURN_IF_ERROR(options_.shared.replica->Begin(rank, step));
  const Sampler& sampler = options_.shared.sampler;
  const uint64_t counted_from = std::min(options_.counted_from_step, step);
  options_.shared.progress.AddRank(
      rank, step, sampler.SamplesBefore(step, rank) - sampler.SamplesBefore(counted_from, rank));
  if (step > 0) spdlog::info("rank {} continues from step {}", rank, step);
  hosted.trainer = std::make_unique<RankTrainer>(
      options_.shared, Interrupts{hosted.leave, hosted.abandon}, *session, std::move(hosted.model));
  return hosted.trainer->Run();
}

absl::Status RankHost::HandleEnded() {
  std::vector<uint32_t> finished;
  GiveUpRanksRequest given_up;
  for (auto it = hosted_.begin(); it != hosted_.end();) {
    Hosted& hosted = *it->second;
    if (!IsReady(hosted.ended)) {
      ++it;
      continue;
    }
    absl::Status status = hosted.ended.get();
    // The rank has not started. If servers were away for too long, its next host retries. Any other
    // error is reported.
    const bool cannot_start = hosted.trainer == nullptr && !absl::IsDeadlineExceeded(status) &&
                              !absl::IsUnavailable(status);
    if (status.ok()) {
      finished.push_back(it->first);
    } else if (!options_.interrupts.leave.reason().ok() || !hosted.is_lost || cannot_start) {
      // All ranks must end, or this one has failed.
      ended_.push_back(std::move(it->second));
      hosted_.erase(it);
      return status;
    } else {
      if (!absl::IsCancelled(status)) {
        spdlog::warn("rank {} is released{}: {}", it->first,
                     hosted.trainer == nullptr ? ", before its start" : " during a step",
                     status.ToString());
      }
      *given_up.add_logical_workers() = hosted.assignment;
      if (hosted.trainer != nullptr) options_.shared.progress.RemoveRank(it->first);
    }
    client_.CloseLogicalWorker(it->first);
    ended_.push_back(std::move(it->second));
    it = hosted_.erase(it);
  }
  if (given_up.logical_workers_size() > 0) ReportGivenUp(std::move(given_up));
  if (!finished.empty()) ReportFinished(std::move(finished));
  // Do not wait for the answers: a rank that fails meanwhile must be noticed at once.
  const auto answered = std::partition(reports_.begin(), reports_.end(), [](const Report& report) {
    return !IsReady(report.answer);
  });
  std::vector<Report> ended(std::make_move_iterator(answered),
                            std::make_move_iterator(reports_.end()));
  reports_.erase(answered, reports_.end());
  absl::Status status;
  for (Report& report : ended) {
    const absl::Status answer = report.answer.get();
    // The scheduler is away, and the other ranks train on. Or, with clip_global_norm, the report
    // waits for the last step's close, and so for the slowest rank of the job.
    const bool is_late = absl::IsDeadlineExceeded(answer) || absl::IsUnavailable(answer);
    if (!is_late || client_.job_state() != RUNNING) {
      status.Update(answer);
    } else if (report.finished.empty()) {
      ReportGivenUp(std::move(report.given_up));
    } else {
      ReportFinished(std::move(report.finished));
    }
  }
  return status;
}

void RankHost::ReportFinished(std::vector<uint32_t> ranks) {
  std::future<absl::Status> answer = client_.FinishWork(options_.shared.progress.progress(),
                                                        {.timeout = options_.call_timeout}, ranks);
  reports_.push_back({std::move(answer), std::move(ranks), {}});
}

void RankHost::ReportGivenUp(GiveUpRanksRequest given_up) {
  *given_up.mutable_progress() = options_.shared.progress.progress();
  std::future<absl::Status> answer =
      client_.GiveUpRanks(given_up, {.timeout = options_.call_timeout});
  reports_.push_back({std::move(answer), {}, std::move(given_up)});
}

void RankHost::DropIdle() {
  ended_.erase(
      std::remove_if(ended_.begin(), ended_.end(),
                     [](const std::unique_ptr<Hosted>& hosted) { return hosted->IsIdle(); }),
      ended_.end());
}

bool RankHost::IsIdle() const {
  return std::all_of(ended_.begin(), ended_.end(),
                     [](const std::unique_ptr<Hosted>& hosted) { return hosted->IsIdle(); }) &&
         std::all_of(hosted_.begin(), hosted_.end(),
                     [](const auto& hosted) { return hosted.second->IsIdle(); });
}

}  // namespace pawl
