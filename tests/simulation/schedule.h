// The parameters and faults of one simulated job, a function of a seed.
#ifndef PAWL_TESTS_SIMULATION_SCHEDULE_H_
#define PAWL_TESTS_SIMULATION_SCHEDULE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "proto/job.pb.h"
#include "tests/simulation/event_loop.h"

namespace pawl {

inline constexpr uint64_t kEvaluationSteps = 2;

struct Schedule {
  uint64_t seed = 0;

  int servers = 2;
  uint32_t replicas = 1;
  uint32_t min_in_sync = 1;
  uint32_t partitions = 4;
  Durability durability = MEMORY;
  Consistency consistency;
  std::chrono::milliseconds heartbeat_interval{200};
  std::chrono::milliseconds lease{1000};

  // Worker processes, the ranks of each, and the steps of each rank.
  int workers = 1;
  uint32_t ranks_per_worker = 1;
  uint64_t steps = 10;
  // BOUNDED: most ranks have fewer steps, and finish while others train.
  bool unequal_steps = false;
  // Free-running clients and the pushes of each.
  int clients = 1;
  uint64_t pushes = 20;
  // Ranks report with FinishWork that they have finished, and the job completes.
  bool finishes = false;
  // Checkpoints are made, periodically after this many steps (0: only at the end), and some are
  // kept.
  bool checkpoints = false;
  uint64_t checkpoint_steps = 0;
  uint32_t checkpoints_kept = 0;
  // All ranks evaluate after every kEvaluationSteps steps.
  bool evaluates = false;
  // Some pushes of clients, and the first step of a single rank, begin with an assignment. The
  // table has slots.
  bool assigns = false;
  // SYNC: the first kSharingRanks ranks also push to the same rows.
  bool shares_rows = false;
  // SYNC: Job.clip_global_norm; 0: none.
  float clip_global_norm = 0;
  // Mean time between the actions of a sender.
  std::chrono::milliseconds pace{100};

  // How long faults are injected, and the mean time between them.
  std::chrono::milliseconds storm{0};
  std::chrono::milliseconds fault_interval{1000};
  // Injects frequent faults during startup, before the table exists.
  bool faults_at_begin = false;
  bool kills_servers = false;
  bool kills_all_servers = false;
  bool kills_scheduler = false;
  bool kills_senders = false;
  bool drains = false;
  bool pauses = false;
  bool partitions_network = false;
  bool disturbs_network = false;
  // One at a time, while every partition has all replicas. Another server may die at the same
  // moment.
  bool loses_disks = false;
  // Half of these disks are damaged instead: their server returns under its name.
  bool damages_disks = false;
  // One disk at a time is full or hangs; the last one until all work is done.
  bool breaks_disks = false;
  // The folder of checkpoints is full at times.
  bool fills_folder = false;
  // Copies of disks are started as servers beside their live originals.
  bool copies_disks = false;
  // Suspends machines and lets lease clocks drift.
  bool suspends = false;
  // Restarts schedulers with longer and shorter leases.
  bool changes_lease = false;
  // Repeats messages to the scheduler many seconds later.
  bool late_control = false;
  // Deletes the scheduler's saved state, so that it rebuilds the state from the servers; in some
  // schedules at the moment when some servers and their data are lost.
  bool loses_scheduler_state = false;
  bool loses_servers_with_state = false;
  // While a server is paused, which then knows an outdated routing, and the others restart.
  bool loses_state_behind_a_pause = false;
  // While a primary hands over to a backup; often the machine of that backup is lost, too.
  bool loses_state_in_a_handover = false;
  // Limits the backlog of learners and slows snapshots while pushes continue. After the loss of a
  // server all replicas must still be complete in time.
  bool brakes_pushes = false;

  // Thousands of ranks.
  bool is_large() const { return ranks() >= 1000; }
  uint32_t ranks() const { return static_cast<uint32_t>(workers) * ranks_per_worker; }
  uint64_t StepsOf(uint32_t rank) const {
    return unequal_steps ? std::max<uint64_t>(1, steps / (1 + rank % 3)) : steps;
  }
  Job ToJob() const;
  // For messages.
  std::string ToString() const;
};

inline constexpr uint32_t kSharingRanks = 3;
// The folder of a job's checkpoints.
inline constexpr char kCheckpoints[] = "/checkpoints";

// In seeds 51 mod 64 (BOUNDED) ranks have unequal numbers of steps. Seeds 4 mod 16 lose the
// scheduler's state, 11 mod 32 brake pushes, 72 mod 128 have thousands of ranks. Other multiples of
// 8 have no faults. Seeds 23, 26, 42, 48, 54, 59 and 63 mod 64 finish, all but the first
// and the last with checkpoints. Seeds 8, 18, 21, 22, 27, 29
// and 30 mod 32 assign. Those that clip the global norm, if they are SYNC, and those that share
// rows are in schedule.cc.
Schedule DrawSchedule(uint64_t seed);
// The same in SYNC with clip_global_norm, unless there are thousands of ranks.
Schedule DrawClipSchedule(uint64_t seed);
// The same with assignments.
Schedule DrawAssignSchedule(uint64_t seed);
// The same with only the faults that affect leases, frequently: schedulers restart with other
// leases while servers cannot reach them.
Schedule DrawLeaseSchedule(uint64_t seed);

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SCHEDULE_H_
