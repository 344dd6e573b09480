// The scheduler's state, made again from what the living servers say.
#ifndef PAWL_SCHEDULER_REBUILD_H_
#define PAWL_SCHEDULER_REBUILD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"

namespace pawl {

// Epochs and incarnations of a rebuilt state begin this far beyond the largest that a server knows: the lost
// scheduler may have given out later ones to nodes that are gone.
inline constexpr uint64_t kRebuildGap = uint64_t{1} << 32;
// Numbers of nodes likewise: they are part of names.
inline constexpr uint32_t kRebuildNumberGap = 1000;

// What the job file and the flags say.
struct RebuildOptions {
  Job job;
  uint32_t servers = 0;
  uint32_t workers = 0;
  // Servers that the operator says are dead: the state is made without their word.
  absl::btree_set<std::string> without;
};

// Whether every server that the newest routing names is in `heard` or in `without`, so that waiting brings nothing more.
bool AllServersAreHeard(const std::vector<RegisterRequest>& heard, const absl::btree_set<std::string>& without);

// The state of the job that the servers hold. All of them count as gone and may return; of each partition, those in
// sync by the newest routing table may become primary. Ranks are distributed again when the workers have joined; the
// clocks are in the partitions. Evaluations, barriers, events and figures of the lost scheduler are not rebuilt.
//
// `heard`: the last registration of each server, in any order; those without held_job are ignored.
// FAILED_PRECONDITION: no server holds a job, they hold several, or the job is not the one of `options`; a server that
// the newest routing names was not heard, which may have been the only one in sync by a routing that no other has
// adopted; or no server that was heard has an in-sync replica of some partitions. The message names them.
// INVALID_ARGUMENT: what a server says cannot be.
absl::StatusOr<SchedulerState> RebuildState(const RebuildOptions& options, const std::vector<RegisterRequest>& heard);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_REBUILD_H_
