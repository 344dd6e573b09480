// Whether the replicas of each partition are equal, in a cluster where nothing is pushed any more.
#ifndef PAWL_TESTS_CHAOS_STORM_REPLICA_AGREEMENT_H_
#define PAWL_TESTS_CHAOS_STORM_REPLICA_AGREEMENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/server_control.pb.h"

namespace pawl {

struct ReplicaAgreement {
  // Replicas, besides the first of each partition, that are equal to it.
  uint64_t compared = 0;
  // A sentence each.
  std::vector<std::string> problems;
};

// `answers`: by server. Every partition is to have one primary and `replicas` replicas, all with
// the same state.
ReplicaAgreement CompareReplicas(const std::map<std::string, FingerprintResponse>& answers,
                                 uint32_t partitions, uint32_t replicas);

}  // namespace pawl

#endif  // PAWL_TESTS_CHAOS_STORM_REPLICA_AGREEMENT_H_
