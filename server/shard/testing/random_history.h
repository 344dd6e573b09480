// Random calls of a partition, valid and invalid ones.
#ifndef PAWL_SERVER_SHARD_TESTING_RANDOM_HISTORY_H_
#define PAWL_SERVER_SHARD_TESTING_RANDOM_HISTORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "server/shard/partition.h"

namespace pawl {

// Generates calls that respect the preconditions of Partition: pushes of logical workers in any
// order within their steps, closes of steps (clip_global_norm), pushes of clients, assignments,
// learning rates, duplicates, new incarnations, and invalid requests. Uses tables of all
// optimizers, sparse and dense. The same seed gives the same calls.
class RandomHistory {
 public:
  using Call = std::function<void(Partition&)>;

  // `assigns`: with assignments and learning rates, which old files do not have.
  RandomHistory(const PartitionOptions& options, uint32_t partition, uint32_t seed,
                bool assigns = true);

  // The next call. REQUIRES: the earlier calls were made on `partition`.
  Call Next(const Partition& partition);

 private:
  struct Rank {
    uint64_t step = 0;
    bool started = false;
    uint64_t segments = 0;
    std::vector<uint64_t> pushed;  // ordinals
    std::vector<uint64_t> rest;
    uint64_t incarnation = 1;
    bool released = false;
  };
  struct Client {
    uint64_t incarnation = 1;
    uint64_t next = 0;
  };

  uint32_t Below(uint32_t limit) { return random_() % limit; }
  // A gradient, assignment or learning rates determined by `name`, so that a repeated push has the
  // same content.
  Call Push(const Sender& sender, uint64_t ordinal, uint64_t name) const;
  Call WorkerPush(uint32_t rank, uint64_t ordinal, uint64_t incarnation) const;
  Call NextWorkerCall(const Partition& partition, uint32_t rank);
  Call InvalidCall(const Partition& partition, uint32_t rank);

  const PartitionOptions options_;
  const uint32_t partition_;
  const uint32_t seed_;
  const bool assigns_;
  std::mt19937 random_;
  std::vector<std::shared_ptr<const TableSchema>> tables_;
  std::vector<Rank> ranks_;
  std::vector<Client> clients_;
  uint64_t best_step_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_TESTING_RANDOM_HISTORY_H_
