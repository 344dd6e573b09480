// The rows of a job's table at one moment, from snapshots of its partitions.
#ifndef PAWL_TESTS_SIMULATION_SAVED_ROWS_H_
#define PAWL_TESTS_SIMULATION_SAVED_ROWS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "server/data_plane/data_plane.h"
#include "server/shard/partition.h"
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

// The options with which the job's partitions are loaded.
PartitionOptions OptionsToLoad(const Job& job);

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SAVED_ROWS_H_
