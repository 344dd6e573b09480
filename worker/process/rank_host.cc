#include "worker/process/rank_host.h"

#include <algorithm>
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

// How long the question for a newer assignment waits at the scheduler; then it is asked again.
constexpr std::chrono::seconds kAssignmentTimeout{10};
constexpr std::chrono::milliseconds kRetryInterval{500};

}  // namespace

absl::Status RankHost::Run() {
  AskForAssignment();
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
      // Whatever was wrong: if it is more than a matter of the moment, the client notices by
      // itself.
      if (!answer->ok() && !absl::IsDeadlineExceeded(answer->status()))
        leave.SleepFor(kRetryInterval).IgnoreError();
      AskForAssignment();
    }
    // A rank that ends because all are to end says nothing new.
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

void RankHost::AskForAssignment() {
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
    hosted->leave.Set(absl::CancelledError("another worker is to have the rank"));
  }
  std::vector<LogicalWorkerAssignment> new_ranks;
  for (const LogicalWorkerAssignment& rank : assignment.logical_workers()) {
    // One that has ended here since the scheduler wrote this.
    if (const auto it = begun_.find(rank.rank());
        it != begun_.end() && it->second >= rank.incarnation())
      continue;
    if (hosted_.contains(rank.rank())) {
      return absl::InternalError(absl::StrCat(
          "logical worker ", rank.rank(), " was assigned to this process as incarnation ",
          rank.incarnation(), ", though it has not given up the one before"));
    }
    begun_[rank.rank()] = rank.incarnation();
    new_ranks.push_back(rank);
    // All before the first one begins: a group is to be formed once for all of them.
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
    incarnation.thread = std::thread([this, &incarnation] {
      incarnation.end.set_value(Host(incarnation));
      MutexLock lock(mu_);
      has_changed_ = true;
      changed_.NotifyAll();
    });
  }
  if (!lost.empty()) spdlog::info("giving up logical workers {}", absl::StrJoin(lost, ", "));
  if (!gained.empty()) {
    spdlog::info("taking over logical workers {} of {}", absl::StrJoin(gained, ", "),
                 options_.shared.logical_workers);
  } else if (count == 0 && lost.empty()) {
    spdlog::info("standing by: other workers have all logical workers");
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
  // To its end also if the rank is to be given up: nobody else can have it before.
  PAWL_ASSIGN_OR_RETURN(session, Await(taken_over, options_.call_timeout + kLibraryGrace,
                                       options_.interrupts.leave, "taking a rank over"));
  const uint64_t step = session->step();
  if (options_.shared.replica != nullptr)
    PAWL_RETURN_IF_ERROR(options_.shared.replica->Begin(rank, step));
  const Sampler& sampler = options_.shared.sampler;
  const uint64_t counted_from = std::min(options_.counted_from_step, step);
  options_.shared.progress.Begin(
      rank, step, sampler.SamplesBefore(step, rank) - sampler.SamplesBefore(counted_from, rank));
  if (step > 0) spdlog::info("logical worker {} goes on from step {}", rank, step);
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
    // Before it has begun: that servers were away for too long is its next host's matter; all else
    // says what is wrong.
    const bool cannot_begin = hosted.trainer == nullptr && !absl::IsDeadlineExceeded(status) &&
                              !absl::IsUnavailable(status);
    if (status.ok()) {
      finished.push_back(it->first);
    } else if (!options_.interrupts.leave.reason().ok() || !hosted.is_lost || cannot_begin) {
      // All are to end, or it has failed.
      ended_.push_back(std::move(it->second));
      hosted_.erase(it);
      return status;
    } else {
      if (!absl::IsCancelled(status)) {
        spdlog::warn("logical worker {} is given up{}: {}", it->first,
                     hosted.trainer == nullptr ? ", not begun" : " with a step that is not ended",
                     status.ToString());
      }
      *given_up.add_logical_workers() = hosted.assignment;
      if (hosted.trainer != nullptr) options_.shared.progress.End(it->first);
    }
    client_.CloseLogicalWorker(it->first);
    ended_.push_back(std::move(it->second));
    it = hosted_.erase(it);
  }
  const CallOptions options{.timeout = options_.call_timeout};
  if (given_up.logical_workers_size() > 0) {
    *given_up.mutable_progress() = options_.shared.progress.progress();
    told_.push_back(client_.GiveUpRanks(std::move(given_up), options));
  }
  if (!finished.empty())
    told_.push_back(client_.FinishWork(options_.shared.progress.progress(), options, finished));
  // Nobody waits for them: a rank that fails meanwhile is to be seen at once.
  const auto answered = std::partition(told_.begin(), told_.end(),
                                       [](const auto& answer) { return !IsReady(answer); });
  absl::Status status;
  std::for_each(answered, told_.end(),
                [&](std::future<absl::Status>& answer) { status.Update(answer.get()); });
  told_.erase(answered, told_.end());
  return status;
}

void RankHost::DropIdle() {
  ended_.erase(std::remove_if(ended_.begin(), ended_.end(),
                              [](const std::unique_ptr<Hosted>& hosted) {
                                return hosted->trainer == nullptr || hosted->trainer->Idle();
                              }),
               ended_.end());
}

}  // namespace pawl
