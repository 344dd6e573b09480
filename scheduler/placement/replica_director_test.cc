#include "scheduler/placement/replica_director.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::seconds;

Node Server(uint32_t number) {
  Node node;
  node.name = absl::StrCat("server-", number);
  node.role = SERVER_ROLE;
  node.number = number;
  node.incarnation = 10 + number;
  return node;
}

class ReplicaDirectorTest : public testing::Test {
 protected:
  ReplicaDirector Placed(uint32_t servers, uint32_t replicas, bool durable = true,
                         uint32_t min_in_sync = 1) {
    ReplicaDirector::Options options;
    options.partitions = 12;
    options.servers = servers;
    options.replicas = replicas;
    options.durable = durable;
    options.min_in_sync = min_in_sync;
    options.recovery_timeout = seconds(10);
    ReplicaDirector director(options, events_);
    std::vector<Node> nodes;
    for (uint32_t i = 0; i < servers; ++i) nodes.push_back(Server(i));
    std::vector<const Node*> pointers;
    for (const Node& node : nodes) pointers.push_back(&node);
    director.PlaceFirst(pointers, replicas);
    return director;
  }

  std::optional<std::string> Dies(ReplicaDirector& director, uint32_t number) {
    return director.OnServersGone({Server(number)}, {"died"}, /*dead=*/true, /*nothing_yet=*/false,
                                  clock_.Now());
  }

  // Registers server `number`, which must be the next.
  const Node* Join(Membership& membership, uint32_t number) {
    RegisterRequest request;
    request.set_role(SERVER_ROLE);
    request.set_process_nonce(number + 1);
    request.set_address(absl::StrCat("s:", number + 1));
    return membership.Register(request, clock_.Now())->node;
  }

  SimulatedClock clock_;
  EventLog events_{nullptr};
};

TEST_F(ReplicaDirectorTest, FailoverToABackupLosesNothing) {
  ReplicaDirector director = Placed(2, 2, /*durable=*/false);
  EXPECT_FALSE(Dies(director, 0).has_value());
  EXPECT_EQ(director.epoch(), 2u);
  EXPECT_EQ(director.primaries_since(), 2u);
  EXPECT_TRUE(director.HasAllPrimaries());
  clock_.Advance(seconds(1000));
  EXPECT_FALSE(director.CheckRecovery(clock_.Now()).has_value());
}

std::vector<std::string> Texts(const std::vector<PushWait>& waits) {
  std::vector<std::string> texts;
  for (const PushWait& wait : waits) {
    texts.push_back(absl::StrCat(PushWaitReason_Name(wait.reason()), " ", wait.partitions(), ": ",
                                 wait.text()));
  }
  return texts;
}

TEST_F(ReplicaDirectorTest, PushesWaitForTheirReason) {
  using Lines = std::vector<std::string>;
  ReplicaDirector director = Placed(3, 2, /*durable=*/true, /*min_in_sync=*/2);
  EXPECT_EQ(Texts(director.PushWaits()), Lines{});
  // Two thirds of the partitions have a replica on server 0.
  Dies(director, 0);
  EXPECT_EQ(Texts(director.PushWaits()),
            Lines{"TOO_FEW_IN_SYNC 8: partitions 0, 2, 3, 4, 6, 8, 9, 10"});
  Dies(director, 1);
  EXPECT_EQ(Texts(director.PushWaits()),
            (Lines{"NO_PRIMARY 4: partitions 0, 4, 6, 10",
                   "TOO_FEW_IN_SYNC 8: partitions 1, 2, 3, 5, 7, 8, 9, 11"}));
}

TEST_F(ReplicaDirectorTest, PushesWaitForAConfirmedRouting) {
  ReplicaDirector director = Placed(2, 2);
  Dies(director, 0);
  EXPECT_EQ(Texts(director.PushWaits()),
            std::vector<std::string>{"ROUTING_NOT_CONFIRMED 12: partitions 0, 1, 2, 3, 4, 5, 6, 7, "
                                     "... (12 in all)"});
}

TEST_F(ReplicaDirectorTest, LastReplicaInMemoryIsLostWhenItsServerLeaves) {
  ReplicaDirector director = Placed(2, 1, /*durable=*/false);
  EXPECT_EQ(
      *director.OnServersGone({Server(1)}, {"left"}, /*dead=*/false, /*nothing_yet=*/false,
                              clock_.Now()),
      "server-1 left; partitions 1, 3, 5, 7, 9, 11 are nowhere else, and durability is MEMORY");
}

TEST_F(ReplicaDirectorTest, UnreachableServersAreWaitedForWithoutALog) {
  ReplicaDirector director = Placed(2, 1, /*durable=*/false);
  const std::vector<std::string> how(2, "died: no heartbeat for 1.1 s");
  EXPECT_FALSE(director
                   .OnServersGone({Server(0), Server(1)}, how, /*dead=*/true,
                                  /*nothing_yet=*/false, clock_.Now())
                   .has_value());
  clock_.Advance(seconds(10));
  EXPECT_FALSE(
      director.OnServerJoined(Server(1), {1, 3, 5, 7, 9, 11}, /*nothing_yet=*/false).has_value());
  EXPECT_FALSE(
      director.OnServerJoined(Server(0), {0, 2, 4, 6, 8, 10}, /*nothing_yet=*/false).has_value());
  EXPECT_TRUE(director.HasAllPrimaries());
}

TEST_F(ReplicaDirectorTest, PartitionWaitsForItsServerUntilTheTimeout) {
  ReplicaDirector director = Placed(2, 1);
  EXPECT_FALSE(Dies(director, 1).has_value());
  EXPECT_FALSE(director.HasAllPrimaries());
  clock_.Advance(seconds(10));
  EXPECT_FALSE(director.CheckRecovery(clock_.Now()).has_value());
  clock_.Advance(seconds(1));
  EXPECT_EQ(*director.CheckRecovery(clock_.Now()),
            "server-1 died; partitions 1, 3, 5, 7, 9, 11 are nowhere else, and none of those has "
            "come back within 10.0 s");
  EXPECT_FALSE(
      director.OnServerJoined(Server(1), {11, 9, 7, 5, 3, 1}, /*nothing_yet=*/false).has_value());
  EXPECT_FALSE(director.CheckRecovery(clock_.Now()).has_value());
  EXPECT_TRUE(director.HasAllPrimaries());
}

TEST_F(ReplicaDirectorTest, ServerThatReturnsWithoutPartitionsIsNamed) {
  ReplicaDirector director = Placed(2, 1);
  director.OnServersGone({Server(1)}, {"was restarted"}, /*dead=*/true, /*nothing_yet=*/false,
                         clock_.Now());
  EXPECT_EQ(
      *director.OnServerJoined(Server(1), {1, 3, 5, 9, 11}, /*nothing_yet=*/false),
      "server-1 was restarted; partition 7 is nowhere else, and it has come back without them");
}

TEST_F(ReplicaDirectorTest, CaughtUpReportOfAnotherIncarnationIsIgnored) {
  ReplicaDirector director = Placed(2, 2);
  Membership membership({});
  for (uint32_t i = 0; i < 2; ++i) Join(membership, i);
  Dies(director, 1);
  for (const Node* node : membership.Present(SERVER_ROLE))
    director.Confirm(*node, director.epoch());
  ASSERT_TRUE(director.Step(membership.Present(SERVER_ROLE), StepScope::kAll, clock_.Now()));
  ASSERT_TRUE(director.placement().partitions[0].IsLearner(1));
  Node primary = Server(0);
  primary.adopted_epoch = director.epoch();
  HeartbeatRequest heartbeat;
  heartbeat.set_routing_epoch(director.epoch());
  CaughtUpReplica& report = *heartbeat.add_caught_up();
  report.set_partition(0);
  report.set_node("server-1");
  report.set_incarnation(1);
  EXPECT_FALSE(director.OnLearnersCaughtUp(primary, heartbeat, membership));
  report.set_incarnation(membership.FindByName("server-1")->incarnation);
  heartbeat.set_routing_epoch(director.epoch() - 1);
  EXPECT_FALSE(director.OnLearnersCaughtUp(primary, heartbeat, membership))
      << "the report predates the learner";
  heartbeat.set_routing_epoch(director.epoch());
  EXPECT_TRUE(director.OnLearnersCaughtUp(primary, heartbeat, membership));
  EXPECT_TRUE(director.placement().partitions[0].InSync(1));
}

TEST_F(ReplicaDirectorTest, SilentServerIsDroppedAndLearnsAgainLater) {
  ReplicaDirector director = Placed(2, 2);
  Membership membership({});
  for (uint32_t i = 0; i < 2; ++i) Join(membership, i);
  const std::vector<const Node*> nodes = membership.Present(SERVER_ROLE);
  HeartbeatRequest report;
  report.set_routing_epoch(director.epoch());
  SilentServer& silent = *report.add_silent();
  silent.set_node(nodes[1]->name);
  silent.set_incarnation(nodes[1]->incarnation + 1);
  EXPECT_FALSE(director.DropSilent(*nodes[0], report, membership, clock_.Now()))
      << "the report is about another incarnation";
  silent.set_incarnation(nodes[1]->incarnation);
  const auto learners = [&] {
    size_t count = 0;
    for (const ReplicaSet& set : director.placement().partitions) count += set.learners.size();
    return count;
  };
  const uint64_t before = director.epoch();
  EXPECT_TRUE(director.DropSilent(*nodes[0], report, membership, clock_.Now()));
  EXPECT_EQ(director.epoch(), before + 1);
  for (const ReplicaSet& set : director.placement().partitions) {
    EXPECT_EQ(set.backups.size(), set.primary == nodes[0]->number ? 0u : 1u);
  }
  EXPECT_FALSE(director.DropSilent(*nodes[0], report, membership, clock_.Now()));
  ASSERT_EQ(events_.After(0).size(), 1u);
  EXPECT_EQ(events_.After(0)[0].kind(), REPLICAS_DROPPED);
  EXPECT_EQ(events_.After(0)[0].node(), nodes[1]->name);
  EXPECT_EQ(events_.After(0)[0].from(), nodes[0]->name);
  director.Confirm(*nodes[0], director.epoch());
  clock_.Advance(kSilenceRemembered - seconds(1));
  director.Step(nodes, StepScope::kAll, clock_.Now());
  EXPECT_EQ(learners(), 0u);
  clock_.Advance(seconds(1));
  director.Step(nodes, StepScope::kAll, clock_.Now());
  EXPECT_EQ(learners(), 6u);
  // A repeated report lasts longer.
  report.set_routing_epoch(0);
  EXPECT_FALSE(director.DropSilent(*nodes[0], report, membership, clock_.Now()))
      << "the report predates the primary";
  report.set_routing_epoch(director.epoch());
  EXPECT_TRUE(director.DropSilent(*nodes[0], report, membership, clock_.Now()));
  clock_.Advance(kSilenceRemembered);
  director.Step(nodes, StepScope::kAll, clock_.Now());
  EXPECT_EQ(learners(), 0u);
  clock_.Advance(kSilenceRemembered);
  director.Step(nodes, StepScope::kAll, clock_.Now());
  EXPECT_EQ(learners(), 6u);
}

TEST_F(ReplicaDirectorTest, ServerThatRefusesASnapshotLosesOnlyThatReplica) {
  ReplicaDirector director = Placed(2, 2);
  Membership membership({});
  for (uint32_t i = 0; i < 2; ++i) Join(membership, i);
  const std::vector<const Node*> nodes = membership.Present(SERVER_ROLE);
  HeartbeatRequest report;
  report.set_routing_epoch(director.epoch());
  SilentServer& refusing = *report.add_silent();
  refusing.set_node(nodes[1]->name);
  refusing.set_incarnation(nodes[1]->incarnation);
  refusing.set_partition(2);
  EXPECT_TRUE(director.DropSilent(*nodes[0], report, membership, clock_.Now()));
  for (uint32_t p = 0; p < 12; ++p)
    EXPECT_EQ(director.placement().partitions[p].backups.size(), p == 2 ? 0u : 1u) << p;
  director.Confirm(*nodes[0], director.epoch());
  director.Step(nodes, StepScope::kAll, clock_.Now());
  EXPECT_FALSE(director.placement().partitions[2].IsLearner(nodes[1]->number));
  clock_.Advance(kSilenceRemembered);
  director.Step(nodes, StepScope::kAll, clock_.Now());
  ASSERT_TRUE(director.placement().partitions[2].IsLearner(nodes[1]->number));
  report.set_routing_epoch(director.epoch());
  EXPECT_TRUE(director.DropSilent(*nodes[0], report, membership, clock_.Now()));
  EXPECT_FALSE(director.placement().partitions[2].IsLearner(nodes[1]->number));
}

// The first intervals of a job say little about its loads.
TEST_F(ReplicaDirectorTest, UnevenFirstSecondMovesNothing) {
  ReplicaDirector::Options options;
  options.partitions = 3;
  options.servers = 2;
  ReplicaDirector director(options, events_);
  Membership membership({});
  Join(membership, 0);
  Join(membership, 1);
  const std::vector<const Node*> servers = membership.Present(SERVER_ROLE);
  director.PlaceFirst(servers, 1);
  std::vector<uint64_t> pushed(options.partitions, 0);
  for (int tenths = 0; tenths < 300; ++tenths) {
    for (const Node* server : servers) {
      HeartbeatRequest report;
      for (uint32_t p = 0; p < options.partitions; ++p) {
        if (director.placement().partitions[p].primary != server->number) continue;
        PartitionFigures& figures = *report.add_partitions();
        figures.set_partition(p);
        figures.set_parameter_bytes(1 << 20);
        figures.set_keys_pushed(pushed[p]);
      }
      director.OnFigures(*server, report, clock_.Now());
    }
    director.Step(servers, StepScope::kAll, clock_.Now());
    ASSERT_EQ(director.epoch(), 1u) << "after " << tenths << " tenths of a second";
    clock_.Advance(std::chrono::milliseconds(100));
    for (uint32_t p = 0; p < options.partitions; ++p)
      pushed[p] += tenths < 5 && p != 2 ? 1000 : 100000;
  }
}

class SettlingTest : public ReplicaDirectorTest, public testing::WithParamInterface<bool> {};

// GetParam(): the server returns with data.
TEST_P(SettlingTest, ServerThatReturnsWithDataTakesOverAfterALease) {
  ReplicaDirector::Options options;
  options.partitions = 12;
  options.servers = 2;
  options.elastic = true;
  options.lease = seconds(5);
  ReplicaDirector director(options, events_);
  Membership membership({});
  Join(membership, 0);
  Join(membership, 1);
  director.PlaceFirst(membership.Present(SERVER_ROLE), 1);
  clock_.Advance(seconds(100));
  director.OnServerJoined(*Join(membership, 2),
                          GetParam() ? std::vector<uint32_t>{0} : std::vector<uint32_t>(),
                          /*nothing_yet=*/false);
  ASSERT_TRUE(director.Step(membership.Present(SERVER_ROLE), StepScope::kAll, clock_.Now()));
  HeartbeatRequest heartbeat;
  heartbeat.set_routing_epoch(director.epoch());
  for (uint32_t p = 0; p < 12; ++p) {
    CaughtUpReplica& report = *heartbeat.add_caught_up();
    report.set_partition(p);
    report.set_node("server-2");
    report.set_incarnation(membership.FindByName("server-2")->incarnation);
  }
  for (const char* const primary : {"server-0", "server-1"}) {
    director.OnLearnersCaughtUp(*membership.FindByName(primary), heartbeat, membership);
  }
  const auto waiting = [&] {
    int count = 0;
    for (const ReplicaSet& set : director.placement().partitions)
      count += set.yielding != kNoServer;
    return count;
  };
  clock_.Advance(seconds(5));
  director.Step(membership.Present(SERVER_ROLE), StepScope::kAll, clock_.Now());
  EXPECT_EQ(waiting(), GetParam() ? 0 : 4);
  clock_.Advance(kSettlingMargin);
  EXPECT_EQ(director.Step(membership.Present(SERVER_ROLE), StepScope::kAll, clock_.Now()),
            GetParam());
  EXPECT_EQ(waiting(), 4);
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutData, SettlingTest, testing::Bool());

TEST_F(ReplicaDirectorTest, RestoredPlacementIsEqualAndWaitsAgain) {
  ReplicaDirector director = Placed(3, 1);
  Dies(director, 1);
  clock_.Advance(seconds(9));
  ReplicaDirector::Options options;
  options.partitions = 12;
  options.recovery_timeout = seconds(10);
  ReplicaDirector after(options, events_);
  const StoredPlacement stored = director.Save();
  after.Restore(stored, clock_.Now());
  EXPECT_EQ(after.Save().SerializeAsString(), stored.SerializeAsString());
  EXPECT_EQ(after.epoch(), director.epoch());
  EXPECT_EQ(after.primaries_since(), director.primaries_since());
  clock_.Advance(seconds(5));
  EXPECT_FALSE(after.CheckRecovery(clock_.Now()).has_value());
  clock_.Advance(seconds(6));
  EXPECT_NE(after.CheckRecovery(clock_.Now())->find("server-1 died"), std::string::npos);
}

}  // namespace
}  // namespace pawl
