#include "tests/chaos/storm/replica_agreement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pawl {

ReplicaAgreement CompareReplicas(const std::map<std::string, FingerprintResponse>& answers,
                                 uint32_t partitions, uint32_t replicas) {
  struct Held {
    std::string server;
    ReplicaFingerprint fingerprint;
  };
  std::map<uint32_t, std::vector<Held>> held;
  for (const auto& [server, answer] : answers) {
    for (const ReplicaFingerprint& replica : answer.replicas())
      held[replica.partition()].push_back({server, replica});
  }
  ReplicaAgreement agreement;
  for (uint32_t partition = 0; partition < partitions; ++partition) {
    const std::vector<Held>& of_it = held[partition];
    const auto primaries = std::count_if(of_it.begin(), of_it.end(),
                                         [](const Held& one) { return one.fingerprint.primary(); });
    if (primaries != 1 || of_it.size() < replicas) {
      agreement.problems.push_back(absl::StrCat("partition ", partition, " has ", primaries,
                                                " primaries among ", of_it.size(), " replicas"));
      continue;
    }
    const Held& first = of_it.front();
    for (const Held& other : of_it) {
      if (other.fingerprint.log_index() == first.fingerprint.log_index() &&
          other.fingerprint.fingerprint() == first.fingerprint.fingerprint()) {
        agreement.compared += &other != &first;
        continue;
      }
      agreement.problems.push_back(absl::StrFormat(
          "partition %d: %s is at %d with %08x, %s at %d with %08x", partition, first.server,
          first.fingerprint.log_index(), first.fingerprint.fingerprint(), other.server,
          other.fingerprint.log_index(), other.fingerprint.fingerprint()));
    }
  }
  return agreement;
}

}  // namespace pawl
