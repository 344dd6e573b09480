#include "tests/chaos/storm/replica_agreement.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

void Add(FingerprintResponse& answer, uint32_t partition, bool primary, uint32_t fingerprint) {
  ReplicaFingerprint& replica = *answer.add_replicas();
  replica.set_partition(partition);
  replica.set_primary(primary);
  replica.set_log_index(7);
  replica.set_fingerprint(fingerprint);
}

TEST(ReplicaAgreementTest, EveryReplicaIsComparedWithTheFirst) {
  std::map<std::string, FingerprintResponse> answers;
  for (const uint32_t partition : {0, 1}) {
    Add(answers["server-0"], partition, true, 5);
    Add(answers["server-1"], partition, false, 5);
    Add(answers["server-2"], partition, false, partition == 0 ? 5 : 6);
  }
  const ReplicaAgreement agreement = CompareReplicas(answers, 2, 3);
  EXPECT_EQ(agreement.compared, 3u);
  ASSERT_EQ(agreement.problems.size(), 1u);
  EXPECT_EQ(agreement.problems[0],
            "partition 1: server-0 is at 7 with 00000005, server-2 at 7 with 00000006");
}

TEST(ReplicaAgreementTest, MissingPrimaryOrReplicaIsAProblem) {
  std::map<std::string, FingerprintResponse> answers;
  Add(answers["server-0"], 0, true, 5);
  Add(answers["server-0"], 1, true, 5);
  Add(answers["server-1"], 1, true, 5);
  const ReplicaAgreement agreement = CompareReplicas(answers, 3, 2);
  EXPECT_EQ(agreement.problems.size(), 3u);
  EXPECT_EQ(agreement.compared, 0u);
}

}  // namespace
}  // namespace pawl
