// Runs a schedule and judges it.
#ifndef PAWL_TESTS_SIMULATION_SIMULATION_H_
#define PAWL_TESTS_SIMULATION_SIMULATION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/schedule.h"
#include "tests/simulation/simulated_cluster.h"

namespace pawl {

struct SimulationOptions {
  // Ways to break a promise, to see that the judge notices.
  enum class Sabotage {
    kNone,
    // Of the changes that a primary sends its backups some are confirmed without having been
    // delivered.
    kReplicationIsOnlyConfirmed,
    // What is durable is not.
    kDiskForgets,
    // The same push arrives twice, the second time as another one.
    kPushesAreRenumbered,
    // Leases run on a clock that stands still while a machine is suspended.
    kLeasesStandStill,
    // A restarted scheduler does not know how long the leases were that the one before gave.
    kSchedulerForgetsLeases,
  };
  Sabotage sabotage = Sabotage::kNone;
  // Prints every event.
  bool print = false;
};

// How often a run came to what it is to test.
struct Reached {
  // The scheduler lost its state; made it again; refused to for now, and for good, with partitions
  // that are lost.
  uint64_t state_losses = 0;
  uint64_t rebuilds = 0;
  uint64_t rebuild_refusals = 0;
  uint64_t lost_partitions_named = 0;
  // BOUNDED: ranks that were released; that came back behind the others; that caught up and counted
  // again.
  uint64_t releases = 0;
  uint64_t returns = 0;
  uint64_t catch_ups = 0;
  // Pushes that waited for learners, and that were to come again; repairs of all partitions after a
  // server was lost, while pushes went on.
  uint64_t pushes_delayed = 0;
  uint64_t pushes_refused = 0;
  uint64_t repairs = 0;
  // Jobs of thousands of ranks; releases there, and takeovers.
  uint64_t large_jobs = 0;
  uint64_t releases_in_large_jobs = 0;
  uint64_t takeovers_in_large_jobs = 0;

  void Add(const Reached& other);
  std::vector<std::pair<std::string, uint64_t>> ByName() const;
};

struct Outcome {
  // Empty: every promise was kept. Else what was not, when, and the last events.
  std::string violation;
  // All the data of some partition was lost, as it may be with durability MEMORY, and the job said
  // so.
  bool job_failed = false;
  uint64_t hash = 0;
  uint64_t events = 0;
  double simulated_s = 0;
  uint64_t acknowledged = 0;
  uint64_t faults = 0;
  // How followers have got what they lacked.
  CatchUps catch_ups;
  Reached reached;
};

// The same schedule always has the same outcome.
Outcome Simulate(const Schedule& schedule, const SimulationOptions& options = {});

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SIMULATION_H_
