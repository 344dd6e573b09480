// The scheduler's state, made again from what the living servers say.
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

// Epochs and incarnations of a rebuilt state begin at so many for each millisecond of Unix time:
// the lost scheduler may have given out some that no server knows any more, the more so if its
// state was rebuilt too. If a server knows larger ones, the clock is not to be trusted, and they
// begin this far beyond. All stay below 2^53, which every reader of JSON takes.
inline constexpr uint64_t kRebuildGap = uint64_t{1} << 32;
inline constexpr uint64_t kEpochsInAMillisecond = 1024;
// Numbers of nodes likewise: they are part of names.
inline constexpr uint32_t kRebuildNumberGap = 1000;

// What the job file and the flags say.
struct RebuildOptions {
  Job job;
  uint32_t servers = 0;
  uint32_t workers = 0;
  // Servers that the operator says are dead: the state is made without their word.
  absl::btree_set<std::string> without;
  uint64_t unix_ms = 0;
};

// Whether every server that the newest routing names, as present or as in sync when it went, is in
// `heard` or in `without`, so that waiting brings nothing more.
bool AllServersAreHeard(const std::vector<RegisterRequest>& heard,
                        const absl::btree_set<std::string>& without);

// The state of the job that the servers hold. All of them count as gone and may return; of each
// partition, those that were in sync by the newest routing table may become primary, unless a
// server that was restarted has changes of a later term than that routing's. Ranks are distributed
// again when the workers have joined; the clocks are in the partitions. Evaluations, barriers,
// events and figures of the lost scheduler are not rebuilt.
//
// `heard`: the last registration of each server, in any order; those of other jobs than held_job's
// are ignored. FAILED_PRECONDITION: no server holds a job, they hold several, or the job is not the
// one of `options`; a server that the newest routing names was not heard, which may have been the
// only one in sync by a routing that no other has adopted; or no server that was heard has an
// in-sync replica of some partitions. The message names them. INVALID_ARGUMENT: what a server says
// cannot be.
absl::StatusOr<SchedulerState> RebuildState(const RebuildOptions& options,
                                            const std::vector<RegisterRequest>& heard);

// Memory of all registrations together. Each names the replicas of every partition, in some 180
// bytes a partition: enough for 300 servers of a job with kMaxPartitions, or for kMaxServers of one
// with 20,000 partitions.
inline constexpr size_t kMaxHeardBytes = size_t{4} << 30;

// What a scheduler without a state answers, and what it hears. Every answer is an error that makes
// nodes try again. Not thread-safe.
class RebuildCensus {
 public:
  explicit RebuildCensus(size_t max_bytes = kMaxHeardBytes) : max_bytes_(max_bytes) {}

  // ABORTED for a server's: it registers again, and says what it holds. UNAVAILABLE for others.
  absl::Status OnHeartbeat(const HeartbeatRequest& request) const;
  // UNAVAILABLE. Keeps the newest registration of each server, in whatever order they arrive.
  // RESOURCE_EXHAUSTED: with it all would take more than max_bytes of memory; the server's previous
  // one still counts.
  absl::Status OnRegister(const RegisterRequest& request);
  // UNAVAILABLE.
  static absl::Status OnOtherCall();

  std::vector<RegisterRequest> Heard() const;

 private:
  struct Registration {
    RegisterRequest request;
    size_t bytes = 0;
  };

  const size_t max_bytes_;
  absl::btree_map<std::string, Registration> heard_;  // by node
  size_t heard_bytes_ = 0;
};

// Decides when the servers have said enough. Not thread-safe.
class Rebuild {
 public:
  // Waits for servers until `timeout` after `now`.
  Rebuild(RebuildOptions options, MonotonicDuration timeout, MonotonicTime now);

  // Nullopt: servers may still register, or a server of `without` may still serve reads by its
  // lease. Else what RebuildState says, for good. `heard`: RebuildCensus::Heard, newer with each
  // call.
  std::optional<absl::StatusOr<SchedulerState>> Poll(const std::vector<RegisterRequest>& heard,
                                                     MonotonicTime now);

 private:
  const RebuildOptions options_;
  const MonotonicTime began_;
  const MonotonicTime deadline_;
  std::optional<absl::StatusOr<SchedulerState>> state_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STARTUP_REBUILD_H_
