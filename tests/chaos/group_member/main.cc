// group-member: a worker process that only makes all-reduces with the other workers and can be
// killed.
//
//   group-member --scheduler=127.0.0.1:7000 --notes=member-0.notes
//
// It hosts its assigned ranks and makes all-reduces with the hosts of the other ranks until the job
// ends. It checks every sum: a rank's input depends only on the rank, so every group must get the
// same sum. After each all-reduce it writes a line
//
//   nanoseconds (monotonic) generation members step
//
// Exit codes: 0: the job has ended or a signal came, 1: it cannot continue or a sum was wrong, 2:
// wrong usage.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <future>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/host_port.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/client.h"
#include "client_lib/daemon/daemon.h"
#include "client_lib/rpc/futures.h"
#include "spdlog/spdlog.h"
#include "worker/collective/gloo/collective.h"
#include "worker/collective/scheduler_group_former.h"
#include "worker/process/interrupt.h"

ABSL_FLAG(std::string, scheduler, "", "host:port of the scheduler");
ABSL_FLAG(std::string, notes, "", "file that gets a line after each all-reduce");
ABSL_FLAG(uint64_t, elements, uint64_t{2} << 20, "float32 elements per all-reduce");
ABSL_FLAG(std::vector<std::string>, kinds, {"gloo"},
          "names under which it offers its (Gloo) collectives; connections by \"broken\" fail");
ABSL_FLAG(std::string, host, "", "where it listens; empty: this machine's address");
ABSL_FLAG(std::string, node, "", "return as this node");
ABSL_FLAG(uint64_t, node_job_id, 0, "job of --node");

namespace pawl {
namespace {

// The timeout of a call that returns when the assignment changes.
constexpr std::chrono::hours kAssignmentTimeout{1};
constexpr std::chrono::seconds kCallTimeout{30};
constexpr std::chrono::seconds kOperationTimeout{60};
// The period of the values. It divides no chunk size.
constexpr uint64_t kPeriod = 7;

// The ranks that this process hosts: assigned by the scheduler and not yet given up.
class HostedRanks {
 public:
  explicit HostedRanks(Client& client) : client_(client) { Ask(); }

  // True if Adopt would take a newer assignment.
  bool HasNewAssignment() const { return IsReady(next_); }

  // Waits for an assignment until `limit`, and gives up ranks that it lacks.
  absl::Status Adopt(MonotonicDuration limit, const Interrupt& interrupt) {
    if (const absl::Status ready = AwaitReady(next_, limit, interrupt, "assignment"); !ready.ok()) {
      return absl::IsDeadlineExceeded(ready) ? absl::OkStatus() : ready;
    }
    const absl::StatusOr<GetAssignmentResponse> answer = next_.get();
    if (answer.ok()) {
      version_ = answer->version();
      total_ = answer->logical_workers_total();
      GiveUpRanksRequest given_up;
      std::map<uint32_t, uint64_t> now;
      for (const LogicalWorkerAssignment& rank : answer->logical_workers())
        now[rank.rank()] = rank.incarnation();
      for (const auto& [rank, incarnation] : ranks_) {
        if (now.contains(rank)) continue;
        LogicalWorkerAssignment& to = *given_up.add_logical_workers();
        to.set_rank(rank);
        to.set_incarnation(incarnation);
      }
      ranks_ = std::move(now);
      if (given_up.logical_workers_size() > 0) {
        PAWL_RETURN_IF_ERROR(
            client_.GiveUpRanks(std::move(given_up), {.timeout = kCallTimeout}).get());
      }
    } else if (!absl::IsDeadlineExceeded(answer.status()) &&
               !absl::IsUnavailable(answer.status())) {
      return answer.status();
    }
    Ask();
    return absl::OkStatus();
  }

  std::vector<GroupRank> Get() const {
    std::vector<GroupRank> ranks;
    for (const auto& [rank, incarnation] : ranks_) {
      GroupRank& to = ranks.emplace_back();
      to.set_rank(rank);
      to.set_incarnation(incarnation);
    }
    return ranks;
  }
  uint32_t total() const { return total_; }

 private:
  void Ask() {
    GetAssignmentRequest request;
    request.set_newer_than_version(version_);
    request.set_ready(true);
    client_.Assignment(std::move(request), {.timeout = kAssignmentTimeout}, Fulfilling(next_));
  }

  Client& client_;
  uint64_t version_ = 0;
  uint32_t total_ = 0;
  std::map<uint32_t, uint64_t> ranks_;
  std::future<absl::StatusOr<GetAssignmentResponse>> next_;
};

// The input of these ranks at places 0 to kPeriod - 1; it repeats from there.
std::vector<float> Values(const std::vector<uint32_t>& ranks, uint64_t step) {
  std::vector<float> values(kPeriod);
  for (uint64_t i = 0; i < kPeriod; ++i) {
    for (const uint32_t rank : ranks)
      values[i] += static_cast<float>((rank + 1) * ((i + step) % kPeriod + 1));
  }
  return values;
}

class Member {
 public:
  Member(Client& client, GroupFormer& former, const Interrupt& interrupt)
      : client_(client),
        former_(former),
        interrupt_(interrupt),
        ranks_(client),
        notes_(absl::GetFlag(FLAGS_notes), std::ios::app),
        values_(absl::GetFlag(FLAGS_elements)),
        sums_(values_.size()) {}

  // Runs until the interrupt is set or it cannot continue.
  absl::Status Run() {
    while (true) {
      PAWL_RETURN_IF_ERROR(interrupt_.reason());
      PAWL_RETURN_IF_ERROR(ranks_.Adopt(
          ranks_.Get().empty() ? kInterruptInterval : MonotonicDuration::zero(), interrupt_));
      if (ranks_.Get().empty()) continue;
      absl::StatusOr<Group> group = former_.Form(ranks_.Get(), steps_, interrupt_);
      if (absl::IsInvalidArgument(group.status())) return group.status();
      if (!group.ok()) {
        spdlog::info("no group: {}", group.status().ToString());
        // Other hosts' ranks, which the scheduler will announce.
        PAWL_RETURN_IF_ERROR(ranks_.Adopt(kInterruptInterval, interrupt_));
        PAWL_RETURN_IF_ERROR(client_.status());
        continue;
      }
      for (const GroupMember& member : group->members) {
        if (member.has_state()) steps_ = std::max(steps_.value_or(0), member.dense_steps());
      }
      spdlog::info("group {} of {} members", group->generation, group->members.size());
      absl::Status end = RunGroup(*group);
      if (absl::IsDataLoss(end)) return end;
      spdlog::info("the group has ended after step {}: {}", steps_.value_or(0), end.ToString());
    }
  }

 private:
  absl::Status RunGroup(Group& group) {
    while (!ranks_.HasNewAssignment() && interrupt_.reason().ok()) {
      const uint64_t step = steps_.value_or(0);
      std::vector<uint32_t> own, all(ranks_.total());
      for (const GroupRank& rank : ranks_.Get()) own.push_back(rank.rank());
      std::iota(all.begin(), all.end(), 0);
      const std::vector<float> input = Values(own, step);
      for (uint64_t i = 0; i < values_.size(); ++i) values_[i] = input[i % kPeriod];
      std::future<absl::Status> ended;
      group.collective->AllReduce(values_.data(), sums_.data(), values_.size(),
                                  CollectiveType::kFloat32, Reduction::kSum, kOperationTimeout,
                                  Fulfilling(ended));
      PAWL_RETURN_IF_ERROR(ended.get());
      const std::vector<float> expected = Values(all, step);
      for (uint64_t i = 0; i < sums_.size(); ++i) {
        if (sums_[i] == expected[i % kPeriod]) continue;
        return absl::DataLossError(absl::StrCat("step ", step, ": sum ", i, " is ", sums_[i],
                                                ", not ", expected[i % kPeriod]));
      }
      steps_ = step + 1;
      notes_ << Clock::Real().Now().time_since_epoch().count() << ' ' << group.generation << ' '
             << group.members.size() << ' ' << step << std::endl;
    }
    return absl::OkStatus();
  }

  Client& client_;
  GroupFormer& former_;
  const Interrupt& interrupt_;
  HostedRanks ranks_;
  std::ofstream notes_;
  std::vector<float> values_;
  std::vector<float> sums_;
  std::optional<uint64_t> steps_;
};

int Run(EndSignal& signal) {
  ClientOptions options;
  options.scheduler = absl::GetFlag(FLAGS_scheduler);
  options.role = WORKER_ROLE;
  options.follows_assignment = true;
  options.node = absl::GetFlag(FLAGS_node);
  options.node_job_id = absl::GetFlag(FLAGS_node_job_id);
  const bool complete = !options.scheduler.empty() && !absl::GetFlag(FLAGS_notes).empty();
  if (!complete) return UsageError("--scheduler and --notes are required");
  absl::StatusOr<std::string> host = LocalAddressTowards(options.scheduler);
  if (!host.ok()) return UsageError(host.status().message());
  if (const std::string named = absl::GetFlag(FLAGS_host); !named.empty()) host = named;
  auto client = Client::Connect(options);
  if (!client.ok()) {
    spdlog::error("{}", client.status().ToString());
    return kExitFailed;
  }
  Interrupt interrupt;
  std::atomic<bool> ending{false};
  std::thread watch([&] {
    while (!ending && !(*client)->WaitForEnd(kInterruptInterval)) {
      if (signal.Wait(MonotonicDuration::zero())) break;
    }
    interrupt.Set(absl::CancelledError("the job has ended, or a signal came"));
  });
  absl::Status status;
  {
    std::vector<CollectiveKind> kinds;
    for (const std::string& name : absl::GetFlag(FLAGS_kinds)) {
      CollectiveFactory make = GlooCollectives(*host);
      // Adds a member that does not exist.
      if (name == "broken")
        make = [gloo = make](size_t size, size_t place) { return gloo(size + 1, place); };
      kinds.push_back({.name = name, .exclusive = "", .make = std::move(make)});
    }
    SchedulerGroupFormer former(**client, std::move(kinds));
    Member member(**client, former, interrupt);
    status = member.Run();
  }
  ending = true;
  watch.join();
  const bool stopped = absl::IsCancelled(status) || (*client)->job_state() >= COMPLETED;
  if (!stopped) spdlog::error("{}", status.ToString());
  return stopped ? kExitDone : kExitFailed;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  pawl::SetUpDaemon("group-member",
                    "makes all-reduces with the other workers, for tests.\n\n"
                    "  group-member --scheduler=127.0.0.1:7000 --notes=member-0.notes",
                    argc, argv);
  pawl::EndSignal signal;
  return pawl::Run(signal);
}
