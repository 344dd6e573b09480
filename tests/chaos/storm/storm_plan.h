// The sequence of a storm's faults, a function of the seed only.
#ifndef PAWL_TESTS_CHAOS_STORM_STORM_PLAN_H_
#define PAWL_TESTS_CHAOS_STORM_STORM_PLAN_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"

namespace pawl {

enum class FaultKind {
  // kill -9 of a server, which restarts later with the same data folder.
  kServerKill,
  // A server kills itself the n-th time that it passes a failpoint.
  kServerCrashAtFailpoint,
  // kill -9 of a server, which restarts with an empty disk.
  kDiskGone,
  // kill -9 of a server, which restarts with a damaged file in its log.
  kDiskRot,
  // A server's disk is temporarily full.
  kDiskFull,
  // Writes to a server's disk temporarily hang.
  kDiskHang,
  // kill -9 of two servers at once. One restarts at once with its disk, the other later with an
  // empty one.
  kTwoServersKill,
  // kill -9 of all servers at once.
  kAllServersKill,
  // A server is paused for longer than its lease.
  kServerPause,
  // kill -9 of the scheduler, which restarts later.
  kSchedulerKill,
  // kill -9 of the scheduler, which restarts with an empty disk and rebuilds its state from the
  // servers.
  kSchedulerDiskGone,
  // kill -9 of a sender, which restarts.
  kSenderKill,
  // A sender kills itself in the middle of a push of 8 to 64 MiB.
  kSenderCrashInPush,
  // Link faults affect the messages between two processes, or between one and all others.
  kLinkDelay,
  kLinkReset,
  // One direction is silent; its messages arrive when the fault ends.
  kLinkSilence,
  // Both directions are silent.
  kLinkPartition,
  // Messages and their connections are lost.
  kLinkBlackHole,
};

// In the order of the enumeration.
const std::vector<FaultKind>& AllFaultKinds();
// For example "server-kill".
std::string FaultName(FaultKind kind);
// Parses a comma-separated list of names. INVALID_ARGUMENT with the unknown name.
absl::StatusOr<std::vector<FaultKind>> ParseFaultKinds(absl::string_view list);

struct Fault {
  FaultKind kind = FaultKind::kServerKill;
  // The pause before the fault.
  MonotonicDuration calm = {};
  // How long the process is absent or paused, or the link is disturbed.
  MonotonicDuration lasts = {};
  // The affected process, or the process whose incoming link is disturbed: "server-1", "scheduler",
  // "sender-0".
  std::string victim;
  // Link faults: the process at the other end; "" for all. kTwoServersKill: the server that loses
  // its disk.
  std::string peer;
  // Link faults: disturbs what the victim sends instead of what it receives.
  bool answers = false;
  // kTwoServersKill: the time until the victim restarts. kLinkDelay: the delay of each byte.
  // kLinkReset: the number of bytes before the reset.
  MonotonicDuration delay = {};
  uint64_t bytes = 0;
  // For kServerCrashAtFailpoint.
  std::string failpoint;
  uint64_t hit = 0;
  // kSenderCrashInPush: the size of the push, its number in the incarnation, and the time of the
  // crash after its start.
  uint64_t ballast_bytes = 0;
  uint64_t push = 0;
  MonotonicDuration after = {};

  // A single line.
  std::string ToString() const;
};

struct StormPlanOptions {
  uint64_t seed = 0;
  uint32_t servers = 3;
  uint32_t senders = 3;
  // At least one. Each kind occurs once before any occurs again. kTwoServersKill needs two servers,
  // kServerCrashAtFailpoint needs failpoints.
  std::vector<FaultKind> kinds;
  // The scheduler is absent for 1 s to this long.
  MonotonicDuration max_scheduler_away = std::chrono::seconds(60);
  // Limits kLinkSilence, kLinkPartition and kLinkBlackHole. Without replication it must be below
  // the lease.
  MonotonicDuration max_silence = std::chrono::seconds(5);
  // Limits kDiskFull and kDiskHang.
  MonotonicDuration max_disk_trouble = std::chrono::seconds(10);
  // Failpoint names for kServerCrashAtFailpoint.
  std::vector<std::string> failpoints;
};

class StormPlan {
 public:
  // INVALID_ARGUMENT: no kind of fault, or one that cannot happen.
  static absl::StatusOr<StormPlan> Create(StormPlanOptions options);

  Fault Next();

 private:
  explicit StormPlan(StormPlanOptions options);
  // Both ends included. Not std::uniform_int_distribution, which differs between libraries.
  uint64_t Between(uint64_t low, uint64_t high);
  MonotonicDuration Milliseconds(uint64_t low, uint64_t high);
  std::string RandomServer();
  std::string RandomSender();
  void DrawLink(Fault& fault);

  StormPlanOptions options_;
  std::mt19937_64 random_;
  // The kinds left in this round.
  std::vector<FaultKind> bag_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_CHAOS_STORM_STORM_PLAN_H_
