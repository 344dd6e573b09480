// Compares the replicas of each partition, bit for bit.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_REPLICA_COMPARISON_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_REPLICA_COMPARISON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "proto/scheduler.pb.h"
#include "proto/server_control.pb.h"

namespace pawl {

// A difference counts when it was seen in this many rounds. Right after a failover a replica may
// have unacknowledged changes that it is about to drop.
inline constexpr int kDifferentRounds = 3;

// Compares the servers' responses to Fingerprint, round by round. While a job trains, replicas
// answer at different log indices; they cannot be compared then and must be asked again. Replicas
// are compared within a round only, since a log index may name different changes in different
// routing epochs. Not thread-safe.
class ReplicaComparison {
 public:
  enum class State {
    // All in-sync replicas are equal.
    kEqual,
    kDifferent,
    // The replicas were not seen at the same log index.
    kChanging,
    // A replica is missing.
    kIncomplete,
  };
  struct Replica {
    std::string node;
    bool primary = false;
    uint64_t log_index = 0;
    uint32_t fingerprint = 0;
  };
  struct Partition {
    State state = State::kIncomplete;
    // The replicas that answered in the last round with a result, the primary first.
    std::vector<Replica> replicas;
    int different_rounds = 0;
  };

  // Adds a round. `answers[i]` is the response of routing.servers(i). Ignores a round with
  // responses of different epochs.
  void Add(const RoutingTable& routing, const std::vector<FingerprintResponse>& answers);

  // Every partition is equal, or was different often enough: no further round is needed.
  bool decided() const;
  bool all_equal() const;
  // No round has been added.
  bool empty() const { return partitions_.empty(); }
  const std::vector<Partition>& partitions() const { return partitions_; }

  // A line for each partition, and a summary.
  std::string Text() const;
  nlohmann::ordered_json Json() const;

 private:
  size_t Count(State state) const;

  std::vector<Partition> partitions_;
};

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_REPLICA_COMPARISON_H_
