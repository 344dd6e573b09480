// What one simulated job is like, and what befalls it: all of it follows from a seed.
#ifndef PAWL_TESTS_SIMULATION_SCHEDULE_H_
#define PAWL_TESTS_SIMULATION_SCHEDULE_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "proto/job.pb.h"
#include "tests/simulation/event_loop.h"

namespace pawl {

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

  // Processes that host ranks, the ranks of each, and the steps that each does.
  int workers = 1;
  uint32_t ranks_per_worker = 1;
  uint64_t steps = 10;
  // Free-running clients, and the pushes of each.
  int clients = 1;
  uint64_t pushes = 20;
  // Mean time between the doings of a sender.
  std::chrono::milliseconds pace{100};

  // Faults happen for so long, on average so often.
  std::chrono::milliseconds storm{0};
  std::chrono::milliseconds fault_interval{1000};
  // Often while the processes begin, before there is a table.
  bool faults_at_begin = false;
  bool kills_servers = false;
  bool kills_all_servers = false;
  bool kills_scheduler = false;
  bool kills_senders = false;
  bool drains = false;
  bool pauses = false;
  bool partitions_network = false;
  bool disturbs_network = false;
  // One at a time, while every partition has all of its replicas; another server may die at the
  // same moment.
  bool loses_disks = false;
  // One at a time is full or hangs; the last one until all work is done.
  bool breaks_disks = false;
  // Started as servers beside the living originals.
  bool copies_disks = false;
  // Machines are suspended, and the clocks of leases drift.
  bool suspends = false;
  // Schedulers are restarted with longer and shorter leases.
  bool changes_lease = false;
  // Messages to the scheduler come a second time, many seconds late.
  bool late_control = false;
  // What the scheduler has saved is gone, and it rebuilds that from what servers say; also at the
  // moment when some servers are lost with all that they have.
  bool loses_scheduler_state = false;
  bool loses_servers_with_state = false;
  // Learners may lack little, snapshots are slow, and pushes go on: after a server was lost, all
  // replicas are to be there again in time nevertheless.
  bool brakes_pushes = false;

  // Thousands of ranks.
  bool is_large() const { return ranks() >= 1000; }
  uint32_t ranks() const { return static_cast<uint32_t>(workers) * ranks_per_worker; }
  Job ToJob() const;
  // For messages.
  std::string ToString() const;
};

// A seed that is 4 mod 16 loses the scheduler's state, 11 mod 32 brakes pushes, 72 mod 128 has
// thousands of ranks. Other multiples of 8 have no faults.
Schedule DrawSchedule(uint64_t seed);
// The same with the faults alone that strike leases, often: schedulers that are restarted with
// other leases while servers cannot reach them.
Schedule DrawLeaseSchedule(uint64_t seed);

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SCHEDULE_H_
