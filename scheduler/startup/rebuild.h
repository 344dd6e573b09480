// Rebuilds a lost scheduler state from the reports of the living servers.
#ifndef PAWL_SCHEDULER_STARTUP_REBUILD_H_
#define PAWL_SCHEDULER_STARTUP_REBUILD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"

namespace pawl {

// Epochs and incarnations of a rebuilt state start at kEpochsInAMillisecond times the Unix time in
// milliseconds, because the lost scheduler may have assigned some that no server knows. If a server
// knows larger ones, the clock is wrong, and they start kRebuildGap beyond those. All stay below
// 2^53, which every JSON parser accepts.
inline constexpr uint64_t kRebuildGap = uint64_t{1} << 32;
inline constexpr uint64_t kEpochsInAMillisecond = 1024;
// The gap for numbers of nodes, which are part of their names.
inline constexpr uint32_t kRebuildNumberGap = 1000;

// The job file and the flags.
struct RebuildOptions {
  Job job;
  uint32_t servers = 0;
  uint32_t workers = 0;
  // Servers that the operator declares dead. The state is built without their reports.
  absl::btree_set<std::string> without;
  uint64_t unix_ms = 0;
};

// Whether every server that the newest routing names, as present or as last in sync, is in
// `registrations` or `without`, and no registration shows that there was a later routing, which may
// name further servers.
bool HasAllServers(const std::vector<RegisterRequest>& registrations,
                   const absl::btree_set<std::string>& without);

// Builds the state of the job that the servers hold. All servers count as gone and may return. The
// servers that are in sync by the newest routing table may become primary, unless a restarted
// server has later changes, which it may have acknowledged under a routing that no server knows any
// more. A server that only such a routing named is not missed. Ranks are assigned again once the
// workers join; the clocks are in the partitions. Evaluations, barriers, events and figures are not
// rebuilt.
//
// `registrations`: the last registration of each server, in any order. REQUIRES: each is of a
// process that has lived since the scheduler lost its state. Servers of other jobs are ignored.
// FAILED_PRECONDITION, naming the servers or partitions:
//  - no server holds a job, they hold several, or the job differs from `options`;
//  - a server that the newest routing names is missing: it may be the only one in sync by a routing
//    that no other server has adopted;
//  - no server that has registered has an in-sync replica of some partition.
// INVALID_ARGUMENT: an impossible report.
absl::StatusOr<SchedulerState> RebuildState(const RebuildOptions& options,
                                            const std::vector<RegisterRequest>& registrations);

// The memory limit of all registrations together. Each takes about 205 bytes per partition: the
// limit suffices for 300 servers of a job with kMaxPartitions, or for kMaxServers of a job with
// 20,000 partitions.
inline constexpr size_t kMaxRegistrationBytes = size_t{4} << 30;

// Answers calls for a scheduler without a state, and collects registrations. Every answer is an
// error that makes the node retry. Not thread-safe.
//
// The answer to a server's first registration has the challenge of this census. A registration
// counts only if it repeats the challenge, which proves that the server sent it after the census
// began. An earlier message may be of a process that is dead and whose data is lost, of a server
// that has adopted a later routing since, or of a copied data directory that the lost scheduler
// refused.
class RebuildCensus {
 public:
  explicit RebuildCensus(size_t max_bytes = kMaxRegistrationBytes);

  // ABORTED for a server, which then registers again and reports what it holds. UNAVAILABLE for
  // other nodes.
  absl::Status OnHeartbeat(const HeartbeatRequest& request) const;
  // UNAVAILABLE, for a server with the challenge (kRebuildChallengePayloadUrl). Keeps the newest
  // registration of each server, in whatever order they arrive. One without the field
  // rebuild_challenge counts too: older servers do not know the field. A server with data_damaged
  // counts as one that has not registered.
  // RESOURCE_EXHAUSTED: it would exceed max_bytes; the server's previous registration still counts.
  absl::Status OnRegister(const RegisterRequest& request);
  // UNAVAILABLE.
  static absl::Status OnOtherCall();

  std::vector<RegisterRequest> Registrations() const;

 private:
  struct Entry {
    RegisterRequest request;
    size_t bytes = 0;
  };

  const size_t max_bytes_;
  const uint64_t challenge_;                           // not 0
  absl::btree_map<std::string, Entry> registrations_;  // by node
  size_t registration_bytes_ = 0;
};

// Waits for registrations and then builds the state. Not thread-safe.
class Rebuild {
 public:
  // Waits for servers until `timeout` after `now`.
  Rebuild(RebuildOptions options, MonotonicDuration timeout, MonotonicTime now);

  // nullopt: servers may still register, or a server of `without` may still serve reads by its
  // lease. Otherwise the final result of RebuildState. `registrations`: the present
  // RebuildCensus::Registrations().
  std::optional<absl::StatusOr<SchedulerState>> Poll(
      const std::vector<RegisterRequest>& registrations, MonotonicTime now);

 private:
  const RebuildOptions options_;
  const MonotonicTime started_;
  const MonotonicTime deadline_;
  std::optional<absl::StatusOr<SchedulerState>> state_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STARTUP_REBUILD_H_
