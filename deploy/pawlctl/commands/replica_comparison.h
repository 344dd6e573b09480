// Whether the replicas of each partition hold the same state, to the bit.
#ifndef PAWL_DEPLOY_PAWLCTL_COMMANDS_REPLICA_COMPARISON_H_
#define PAWL_DEPLOY_PAWLCTL_COMMANDS_REPLICA_COMPARISON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "proto/scheduler.pb.h"
#include "proto/server_control.pb.h"

namespace pawl {

// A difference counts when it was seen in so many rounds: after a failover a replica may, for a
// moment, have changes that nobody was told of and that it is about to lose.
inline constexpr int kDifferentRounds = 3;

// Compares what servers answered to Fingerprint, round by round. While a job trains, replicas are
// asked at different moments: those that have not seen the same number of changes say nothing, and
// are asked again. Replicas are compared within a round alone, since log indices of different
// routing epochs may name different changes. Not thread-safe.
class ReplicaComparison {
 public:
  enum class State {
    // Of all in-sync replicas.
    kEqual,
    kDifferent,
    // They were not seen at the same log index.
    kMoving,
    // Not all of them are there.
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
    // In the last round that says something, the primary first; those that answered.
    std::vector<Replica> replicas;
    int different_rounds = 0;
  };

  // One round: `answers[i]` is that of routing.servers(i). Nothing comes of one whose answers are
  // of several epochs.
  void Add(const RoutingTable& routing, const std::vector<FingerprintResponse>& answers);

  // Another round would tell nothing new: every partition is equal, or different often enough.
  bool decided() const;
  bool all_equal() const;
  // There was no round that told anything yet.
  bool empty() const { return partitions_.empty(); }
  const std::vector<Partition>& partitions() const { return partitions_; }

  // A line for each partition, and one that sums up.
  std::string Text() const;
  nlohmann::ordered_json Json() const;

 private:
  size_t Count(State state) const;

  std::vector<Partition> partitions_;
};

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_COMMANDS_REPLICA_COMPARISON_H_
