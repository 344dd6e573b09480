#include "worker/rank_crew.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// How long the question for a newer assignment waits at the scheduler; then it is asked again.
constexpr std::chrono::seconds kAssignmentTimeout{10};
constexpr std::chrono::milliseconds kRetryInterval{500};

}  // namespace

absl::Status RankCrew::Run() {
  AskForAssignment();
  Interrupt& interrupt = options_.shared.interrupt;
  while (interrupt.reason().ok()) {
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
      // Whatever was wrong: if it is more than a matter of the moment, the client notices by itself.
      if (!answer->ok() && !absl::IsDeadlineExceeded(answer->status())) interrupt.SleepFor(kRetryInterval).IgnoreError();
      AskForAssignment();
    }
    // A rank that ends because all are to end says nothing new.
    if (!status.ok() && interrupt.reason().ok()) {
      interrupt.Set(status);
      options_.shared.abandon.Set(status);
    }
  }
  for (const auto& [rank, hosted] : hosted_) hosted->ended.wait();
  if (client_.job_state() == COMPLETED && client_.status().ok() && hosted_.empty()) return absl::OkStatus();
  return interrupt.reason();
}

void RankCrew::AskForAssignment() {
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

void RankCrew::WaitForChange() {
  const MonotonicTime limit = Clock::Real().Now() + kInterruptInterval;
  MutexLock lock(mu_);
  while (!has_changed_ && changed_.WaitUntil(mu_, limit)) {
  }
  has_changed_ = false;
}

absl::Status RankCrew::Adopt(const GetAssignmentResponse& assignment) {
  version_ = assignment.version();
  const size_t count = static_cast<size_t>(assignment.logical_workers_size());
  if (count > kMaxHostedRanks) {
    return absl::ResourceExhaustedError(absl::StrCat(count,
                                                     " logical workers were assigned to this process, which hosts at most ",
                                                     kMaxHostedRanks, "; start more workers"));
  }
  std::vector<uint32_t> lost;
  for (const auto& [rank, hosted] : hosted_) {
    const bool stays = std::any_of(assignment.logical_workers().begin(), assignment.logical_workers().end(),
                                   [&, rank = rank](const LogicalWorkerAssignment& other) { return other.rank() == rank; });
    if (stays) continue;
    lost.push_back(rank);
    hosted->interrupt.Set(absl::CancelledError("another worker is to have the rank"));
  }
  std::vector<LogicalWorkerAssignment> new_ranks;
  for (const LogicalWorkerAssignment& rank : assignment.logical_workers()) {
    // One that has ended here since the scheduler wrote this.
    if (const auto it = begun_.find(rank.rank()); it != begun_.end() && it->second >= rank.incarnation()) continue;
    begun_[rank.rank()] = rank.incarnation();
    new_ranks.push_back(rank);
    // All before the first one begins: a group is to be formed once for all of them.
    if (options_.shared.replica != nullptr) options_.shared.replica->Expect(rank.rank(), rank.incarnation());
  }
  std::vector<uint32_t> gained;
  for (const LogicalWorkerAssignment& rank : new_ranks) {
    gained.push_back(rank.rank());
    auto hosted = std::make_unique<Hosted>(rank, options_.shared.interrupt);
    PAWL_ASSIGN_OR_RETURN(hosted->model, options_.make_model());
    Hosted& life = *hosted;
    hosted_[rank.rank()] = std::move(hosted);
    life.thread = std::thread([this, &life] {
      life.end.set_value(Host(life));
      MutexLock lock(mu_);
      has_changed_ = true;
      changed_.NotifyAll();
    });
  }
  if (!lost.empty()) spdlog::info("giving up logical workers {}", absl::StrJoin(lost, ", "));
  if (!gained.empty()) {
    spdlog::info("taking over logical workers {} of {}", absl::StrJoin(gained, ", "), options_.shared.logical_workers);
  } else if (count == 0 && lost.empty()) {
    spdlog::info("standing by: other workers have all logical workers");
  }
  return absl::OkStatus();
}

absl::Status RankCrew::Host(Hosted& hosted) {
  const uint32_t rank = hosted.assignment.rank();
  LogicalWorker* session = nullptr;
  const absl::Cleanup end = [&] {
    if (options_.shared.replica != nullptr) options_.shared.replica->End(rank, session == nullptr ? 0 : session->step());
  };
  auto taken_over = client_.TakeOver(hosted.assignment, {.timeout = options_.call_timeout});
  // To its end also if the rank is to be given up: nobody else can have it before.
  PAWL_ASSIGN_OR_RETURN(
      session, Await(taken_over, options_.call_timeout + kLibraryGrace, options_.shared.interrupt, "taking a rank over"));
  const uint64_t step = session->step();
  if (options_.shared.replica != nullptr) PAWL_RETURN_IF_ERROR(options_.shared.replica->Begin(rank, step));
  const Sampler& sampler = options_.shared.sampler;
  const uint64_t counted_from = std::min(options_.counted_from_step, step);
  options_.shared.progress.Begin(rank, step, sampler.SamplesBefore(step, rank) - sampler.SamplesBefore(counted_from, rank));
  if (step > 0) spdlog::info("logical worker {} goes on from step {}", rank, step);
  RankTrainer::Shared shared = options_.shared.With(hosted.interrupt);
  hosted.trainer = std::make_unique<RankTrainer>(shared, *session, std::move(hosted.model));
  return hosted.trainer->Run();
}

absl::Status RankCrew::HandleEnded() {
  std::vector<uint32_t> finished;
  GiveUpRanksRequest given_up;
  for (auto it = hosted_.begin(); it != hosted_.end();) {
    Hosted& hosted = *it->second;
    if (hosted.ended.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      ++it;
      continue;
    }
    const absl::Status status = hosted.ended.get();
    if (status.ok()) {
      finished.push_back(it->first);
    } else if (!options_.shared.interrupt.reason().ok() || hosted.interrupt.reason().ok()) {
      // All are to end, or it has failed.
      ended_.push_back(std::move(it->second));
      hosted_.erase(it);
      return status;
    } else {
      *given_up.add_logical_workers() = hosted.assignment;
      options_.shared.progress.End(it->first);
    }
    client_.CloseLogicalWorker(it->first);
    ended_.push_back(std::move(it->second));
    it = hosted_.erase(it);
  }
  const Interrupt& interrupt = options_.shared.interrupt;
  if (given_up.logical_workers_size() > 0) {
    *given_up.mutable_progress() = options_.shared.progress.progress();
    auto told = client_.GiveUpRanks(std::move(given_up), {.timeout = options_.call_timeout});
    PAWL_RETURN_IF_ERROR(Await(told, options_.call_timeout + kLibraryGrace, interrupt, "giving ranks up"));
  }
  if (!finished.empty()) {
    auto told = client_.FinishWork(options_.shared.progress.progress(), {.timeout = options_.call_timeout}, finished);
    PAWL_RETURN_IF_ERROR(Await(told, options_.call_timeout + kLibraryGrace, interrupt, "end of the work"));
  }
  return absl::OkStatus();
}

void RankCrew::DropIdle() {
  ended_.erase(std::remove_if(ended_.begin(), ended_.end(),
                              [](const std::unique_ptr<Hosted>& hosted) {
                                return hosted->trainer == nullptr || hosted->trainer->Idle();
                              }),
               ended_.end());
}

}  // namespace pawl
