// The rows of a job's table at one moment, from snapshots of its partitions, and those of its
// checkpoints.
#ifndef PAWL_TESTS_SIMULATION_SAVED_ROWS_H_
#define PAWL_TESTS_SIMULATION_SAVED_ROWS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client_lib/base/testing/fault_env.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "server/data_plane/data_plane.h"
#include "server/shard/partition.h"
#include "tests/simulation/event_loop.h"
#include "tests/simulation/schedule.h"
#include "tests/simulation/sim_ledger.h"

namespace pawl {

// Not thread-safe.
class SavedRows {
 public:
  // Takes the partitions whose primary the server is. Those taken by a later routing stay. Returns
  // the mistake, if any.
  std::string TakeFrom(const DataPlane& plane, uint64_t epoch, uint64_t step, const Job& job);
  // Replaces the partition.
  void Set(uint64_t epoch, Partition partition);

  // The value of a row. REQUIRES: its partition is there.
  float ValueOf(const SimLedger::Cell& cell, uint32_t table) const;
  // The first row that is not as expected, for humans; empty: all are.
  std::string Mistake(const std::vector<SimLedger::Expectation>& expectations,
                      uint32_t table) const;

 private:
  struct Taken {
    uint64_t epoch = 0;
    Partition partition;
  };
  std::map<uint32_t, Taken> taken_;
};

// The checkpoints of a job: what each must have, and what it has. Not thread-safe.
class CheckpointRecord {
 public:
  // The arguments outlive this object. `table`: as above.
  CheckpointRecord(const Schedule& schedule, const SimLedger& ledger, FaultEnv& files,
                   uint32_t table)
      : schedule_(schedule), ledger_(ledger), files_(files), table_(table) {}

  // The scheduler asks for the parts, perhaps again.
  void OnBegin(uint64_t step, bool is_final) {
    begun_.try_emplace({step, is_final}, ledger_.acknowledged_in_job());
  }
  // Returns the mistake, if any.
  std::string OnCompleted(const CheckpointManifest& manifest);
  // The newest ones are still there. Returns the mistake, if any.
  std::string CheckKept() const;
  // Forgets all but the rows of one checkpoint, from which another job starts.
  struct Start {
    // The path of a checkpoint or of their folder.
    std::string path;
    uint64_t step = 0;
    SavedRows rows;
  };
  absl::StatusOr<Start> StartFromOne(SeededRandom& random);

  uint64_t periodic() const { return periodic_; }
  // Checkpoints of the same end that were completed again.
  uint64_t repeated_ends() const { return repeated_ends_; }

 private:
  absl::StatusOr<SavedRows> Read(const CheckpointManifest& manifest) const;

  const Schedule& schedule_;
  const SimLedger& ledger_;
  FaultEnv& files_;
  const uint32_t table_;
  // The acknowledged pushes at the first request, by step and is_final.
  std::map<std::pair<uint64_t, bool>, std::set<SimLedger::Push>> begun_;
  std::map<std::pair<uint64_t, bool>, CheckpointManifest> completed_;
  uint64_t periodic_ = 0;
  uint64_t repeated_ends_ = 0;
};

// The options with which the job's partitions are loaded.
PartitionOptions OptionsToLoad(const Job& job);

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SAVED_ROWS_H_
