#include "deploy/pawlctl/commands/replica_comparison.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using State = ReplicaComparison::State;

constexpr uint64_t kEpoch = 5;

// Two partitions on server-0 and server-1. Each server is the primary of one and the backup of the
// other.
RoutingTable Routing() {
  RoutingTable routing;
  routing.set_epoch(kEpoch);
  for (const char* node : {"server-0", "server-1"}) routing.add_servers()->set_node(node);
  routing.add_primary(0);
  routing.add_primary(1);
  routing.add_replicas()->add_backups(1);
  routing.add_replicas()->add_backups(0);
  return routing;
}

struct Answer {
  uint32_t partition;
  bool primary;
  uint64_t log_index;
  uint32_t fingerprint;
};

FingerprintResponse Fingerprints(const std::vector<Answer>& replicas, uint64_t epoch = kEpoch) {
  FingerprintResponse response;
  response.set_routing_epoch(epoch);
  for (const Answer& replica : replicas) {
    ReplicaFingerprint& fingerprint = *response.add_replicas();
    fingerprint.set_partition(replica.partition);
    fingerprint.set_primary(replica.primary);
    fingerprint.set_log_index(replica.log_index);
    fingerprint.set_fingerprint(replica.fingerprint);
  }
  return response;
}

const FingerprintResponse& First() {
  static const auto* const first =
      new FingerprintResponse(Fingerprints({{0, true, 10, 0xaa}, {1, false, 20, 0xbb}}));
  return *first;
}

TEST(ReplicaComparisonTest, SameStateIsEqual) {
  ReplicaComparison comparison;
  EXPECT_FALSE(comparison.decided());
  comparison.Add(Routing(), {First(), Fingerprints({{0, false, 10, 0xaa}, {1, true, 20, 0xbb}})});
  EXPECT_TRUE(comparison.decided());
  EXPECT_TRUE(comparison.all_equal());
  EXPECT_EQ(comparison.Text(),
            "PARTITION  RESULT  LOG_INDEX  FINGERPRINT  REPLICAS (* primary)\n"
            "        0  equal          10  000000aa     server-0*  server-1\n"
            "        1  equal          20  000000bb     server-1*  server-0\n"
            "2 partitions with 4 replicas: 2 equal, 0 different\n");
  EXPECT_EQ(comparison.Json()["equal"], true);
}

TEST(ReplicaComparisonTest, LastingDifferenceCounts) {
  ReplicaComparison comparison;
  for (int round = 1; round <= kDifferentRounds; ++round) {
    EXPECT_FALSE(comparison.decided());
    comparison.Add(Routing(), {First(), Fingerprints({{0, false, 10, 0xac}, {1, true, 20, 0xbb}})});
    EXPECT_EQ(comparison.partitions()[0].state, State::kDifferent);
  }
  EXPECT_TRUE(comparison.decided());
  EXPECT_FALSE(comparison.all_equal());
  EXPECT_TRUE(absl::StrContains(
      comparison.Text(),
      "DIFFERENT                          server-0* 10:000000aa  server-1 10:000000ac"))
      << comparison.Text();
  EXPECT_TRUE(absl::StrContains(comparison.Text(), "1 equal, 1 different\n"));
  EXPECT_EQ(comparison.Json()["equal"], false);
  EXPECT_EQ(comparison.Json()["partitions"][0]["result"], "DIFFERENT");
}

TEST(ReplicaComparisonTest, PassingDifferenceDoesNotCount) {
  ReplicaComparison comparison;
  comparison.Add(Routing(), {First(), Fingerprints({{0, false, 10, 0xac}, {1, true, 20, 0xbb}})});
  comparison.Add(Routing(), {First(), Fingerprints({{0, false, 10, 0xaa}, {1, true, 20, 0xbb}})});
  EXPECT_TRUE(comparison.all_equal());
}

TEST(ReplicaComparisonTest, DifferentIndicesChangeNothing) {
  ReplicaComparison comparison;
  comparison.Add(Routing(), {First(), Fingerprints({{0, false, 9, 0xac}, {1, true, 20, 0xbb}})});
  EXPECT_EQ(comparison.partitions()[0].state, State::kChanging);
  EXPECT_EQ(comparison.partitions()[1].state, State::kEqual);
  EXPECT_FALSE(comparison.decided());
  EXPECT_TRUE(absl::StrContains(comparison.Text(), "1 not seen at the same log index"))
      << comparison.Text();
  comparison.Add(Routing(), {First(), Fingerprints({{0, false, 10, 0xaa}, {1, true, 21, 0xbc}})});
  EXPECT_TRUE(comparison.all_equal());
}

TEST(ReplicaComparisonTest, MissingReplicaIsNotEqual) {
  ReplicaComparison comparison;
  comparison.Add(Routing(), {First(), Fingerprints({{1, true, 20, 0xbb}})});
  EXPECT_EQ(comparison.partitions()[0].state, State::kIncomplete);
  EXPECT_FALSE(comparison.decided());
  EXPECT_FALSE(comparison.all_equal());
}

TEST(ReplicaComparisonTest, PartitionWithoutPrimaryIsNotEqual) {
  RoutingTable routing = Routing();
  routing.set_primary(0, UINT32_MAX);
  ReplicaComparison comparison;
  comparison.Add(routing, {First(), Fingerprints({{0, false, 10, 0xaa}, {1, true, 20, 0xbb}})});
  EXPECT_EQ(comparison.partitions()[0].state, State::kIncomplete);
}

TEST(ReplicaComparisonTest, DifferentEpochsAreNotCompared) {
  ReplicaComparison comparison;
  comparison.Add(Routing(),
                 {First(), Fingerprints({{0, false, 10, 0xac}, {1, true, 20, 0xbb}}, kEpoch + 1)});
  EXPECT_TRUE(comparison.empty());
}

TEST(ReplicaComparisonTest, SingleReplicaIsEqual) {
  RoutingTable routing;
  routing.set_epoch(kEpoch);
  routing.add_servers()->set_node("server-0");
  routing.add_primary(0);
  ReplicaComparison comparison;
  comparison.Add(routing, {Fingerprints({{0, true, 1, 2}})});
  EXPECT_TRUE(comparison.all_equal());
}

}  // namespace
}  // namespace pawl
