// Compares the replicas of each partition in a cluster without pushes.
#ifndef PAWL_TESTS_CHAOS_STORM_REPLICA_AGREEMENT_H_
#define PAWL_TESTS_CHAOS_STORM_REPLICA_AGREEMENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/server_control.pb.h"

namespace pawl {

struct ReplicaAgreement {
  // Replicas that equal the first replica of their partition.
  uint64_t compared = 0;
  // One sentence per problem.
  std::vector<std::string> problems;
};

// `answers` is keyed by server. Every partition must have one primary and `replicas` replicas, all
// with the same state.
ReplicaAgreement CompareReplicas(const std::map<std::string, FingerprintResponse>& answers,
                                 uint32_t partitions, uint32_t replicas);

}  // namespace pawl

#endif  // PAWL_TESTS_CHAOS_STORM_REPLICA_AGREEMENT_H_
