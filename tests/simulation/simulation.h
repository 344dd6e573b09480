// Runs a schedule and checks its promises.
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
  // Ways to break a promise, to test that the checks notice.
  enum class Sabotage {
    kNone,
    // Some changes for backups are confirmed without delivery.
    kReplicationIsOnlyConfirmed,
    // Durable data is lost.
    kDiskForgets,
    // A push arrives twice, the second time with another push id.
    kPushesAreRenumbered,
    // Leases use a clock that stops while a machine is suspended.
    kLeasesStandStill,
    // A restarted scheduler does not know the lease durations of its predecessor.
    kSchedulerForgetsLeases,
    // Some partitions close a step with another scale (Job.clip_global_norm).
    kClosesAreRescaled,
  };
  Sabotage sabotage = Sabotage::kNone;
  // Prints every event.
  bool print = false;
};

// How often a run reached the cases that it must test.
struct Reached {
  // The scheduler lost its state; rebuilt it; refused temporarily; refused permanently because
  // partitions are lost.
  uint64_t state_losses = 0;
  uint64_t rebuilds = 0;
  uint64_t rebuild_refusals = 0;
  uint64_t lost_partitions_named = 0;
  // Primaries that handed over to a backup and became one.
  uint64_t role_exchanges = 0;
  // BOUNDED: ranks that were released; that returned behind the others; that caught up and counted
  // again.
  uint64_t releases = 0;
  uint64_t returns = 0;
  uint64_t catch_ups = 0;
  // Unequal steps: finished ranks that were released, and again after a restart of their process.
  uint64_t finished_releases = 0;
  uint64_t repeated_finished_releases = 0;
  // Jobs that have completed; schedulers that continued one that was finishing, or had completed;
  // pushes that were acknowledged after the last rank had finished.
  uint64_t completions = 0;
  uint64_t starts_while_finishing = 0;
  uint64_t starts_after_completion = 0;
  uint64_t pushes_after_finish = 0;
  // Checkpoints that are not of the end; those of the end that another scheduler completed again;
  // jobs that started from a checkpoint and completed.
  uint64_t periodic_checkpoints = 0;
  uint64_t repeated_ends = 0;
  uint64_t restored_jobs = 0;
  // Pushes that were delayed for learners, or asked to return; complete repairs after the loss of a
  // server while pushes continued.
  uint64_t pushes_delayed = 0;
  uint64_t pushes_refused = 0;
  uint64_t repairs = 0;
  // Acknowledged pushes of clients and ranks that followed an assignment.
  uint64_t client_assignments = 0;
  uint64_t rank_assignments = 0;
  // SYNC: steps of ranks that push to the same rows.
  uint64_t shared_steps = 0;
  // Pushes of ranks whose steps were scaled down; takeovers in such jobs.
  uint64_t scaled_pushes = 0;
  uint64_t takeovers_with_clipping = 0;
  // Evaluations of ranks with a result; those whose result was lost with the scheduler's state.
  uint64_t evaluations = 0;
  uint64_t lost_evaluations = 0;
  // Jobs with thousands of ranks; their releases and takeovers.
  uint64_t large_jobs = 0;
  uint64_t releases_in_large_jobs = 0;
  uint64_t takeovers_in_large_jobs = 0;

  void Add(const Reached& other);
  std::vector<std::pair<std::string, uint64_t>> ByName() const;
};

struct Outcome {
  // Empty: every promise was kept. Otherwise the broken promise, its time, and the last events.
  std::string violation;
  // All data of a partition was lost, which durability MEMORY permits, and the job reported it.
  bool job_failed = false;
  uint64_t hash = 0;
  uint64_t events = 0;
  double simulated_s = 0;
  uint64_t acknowledged = 0;
  uint64_t faults = 0;
  // How followers caught up.
  CatchUps catch_ups;
  Reached reached;
};

// The same schedule always has the same outcome.
Outcome Simulate(const Schedule& schedule, const SimulationOptions& options = {});

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SIMULATION_H_
