// Which faults a storm brings, in which order: a function of a seed and nothing else.
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
  // kill -9 of a server, which is started again later with the same data folder.
  kServerKill,
  // A server kills itself at a failpoint, at the n-th time it passes there.
  kServerCrashAtFailpoint,
  // kill -9 of a server, which is started again with an empty disk.
  kDiskGone,
  // A server's disk is full for a while.
  kDiskFull,
  // Writes to a server's disk hang for a while.
  kDiskHang,
  // Two servers by kill -9 at once. One comes back at once with its disk, the other later with an
  // empty one.
  kTwoServersKill,
  // All servers by kill -9 at once.
  kAllServersKill,
  // A server stands still for longer than its lease, then goes on.
  kServerPause,
  // kill -9 of the scheduler, which is away for a while.
  kSchedulerKill,
  // kill -9 of the scheduler, which is started again with an empty disk and rebuilds its state from
  // the servers.
  kSchedulerDiskGone,
  // kill -9 of a sender, which is started again.
  kSenderKill,
  // A sender kills itself in the middle of a push of 8 to 64 MiB.
  kSenderCrashInPush,
  // Of what goes between two processes, or between one and all others:
  kLinkDelay,
  kLinkReset,
  // One direction is cut, and healed later with what was sent meanwhile.
  kLinkSilence,
  // Both are.
  kLinkPartition,
  // What is sent is lost, and the connections with it.
  kLinkBlackHole,
};

// In the order of the enumeration.
const std::vector<FaultKind>& AllFaultKinds();
// "server-kill".
std::string FaultName(FaultKind kind);
// A list of names separated by commas. INVALID_ARGUMENT naming the one that is none.
absl::StatusOr<std::vector<FaultKind>> ParseFaultKinds(absl::string_view list);

struct Fault {
  FaultKind kind = FaultKind::kServerKill;
  // The pause before it.
  MonotonicDuration calm = {};
  // How long the process is away or stands still, or the link is disturbed.
  MonotonicDuration lasts = {};
  // "server-1", "scheduler", "sender-0": whom it hits, or whose way in is disturbed.
  std::string victim;
  // Of link faults: the process at the other end; "" for all. kTwoServersKill: the one whose disk
  // is lost.
  std::string peer;
  // Of link faults: what the victim sends is hit, not what it is sent.
  bool answers = false;
  // kTwoServersKill: when the victim is started again. kLinkDelay: of each byte. kLinkReset: how
  // many bytes pass before the reset.
  MonotonicDuration delay = {};
  uint64_t bytes = 0;
  // kServerCrashAtFailpoint.
  std::string failpoint;
  uint64_t hit = 0;
  // kSenderCrashInPush: the bytes of the push, which push of its incarnation it is, and how long
  // after its beginning.
  uint64_t ballast_bytes = 0;
  uint64_t push = 0;
  MonotonicDuration after = {};

  // One line.
  std::string ToString() const;
};

struct StormPlanOptions {
  uint64_t seed = 0;
  uint32_t servers = 3;
  uint32_t senders = 3;
  // At least one. Each comes once before any comes again.
  std::vector<FaultKind> kinds;
  // The scheduler is away for 1 s to so long.
  MonotonicDuration max_scheduler_away = std::chrono::seconds(60);
  // Of kLinkSilence, kLinkPartition and kLinkBlackHole. A cluster without replication needs it
  // below its lease.
  MonotonicDuration max_silence = std::chrono::seconds(5);
  // Of kDiskFull and kDiskHang.
  MonotonicDuration max_disk_trouble = std::chrono::seconds(10);
  // Names for kServerCrashAtFailpoint, which is left out without any.
  std::vector<std::string> failpoints;
};

class StormPlan {
 public:
  // INVALID_ARGUMENT if nothing can be drawn.
  static absl::StatusOr<StormPlan> Create(StormPlanOptions options);

  Fault Next();

 private:
  explicit StormPlan(StormPlanOptions options);
  // Both ends included. Not std::uniform_int_distribution, which may differ between libraries.
  uint64_t Between(uint64_t low, uint64_t high);
  MonotonicDuration Milliseconds(uint64_t low, uint64_t high);
  std::string SomeServer();
  std::string SomeSender();
  void DrawLink(Fault& fault);

  StormPlanOptions options_;
  std::mt19937_64 random_;
  // The kinds that are still to come in this round.
  std::vector<FaultKind> bag_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_CHAOS_STORM_STORM_PLAN_H_
