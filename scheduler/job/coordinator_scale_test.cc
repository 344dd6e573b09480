// Servers that join and leave while the job runs.
#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/testing/coordinator_fixture.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ScaleTest : public CoordinatorFixture {
 protected:
  // A job that only serves tables, with that many servers.
  void Run(uint32_t servers, uint32_t replicas, const std::string& more = "") {
    BeginWithStore(absl::StrCat("name: 'tables' optimizer { sgd { learning_rate: 1 } } consistency "
                                "{ mode: ASYNC } partitions: 24 ",
                                "replicas: ", replicas, " ", more),
                   servers, 0, [](Coordinator::Options& options) {
                     options.unix_ms = [] { return uint64_t{1234567}; };
                   });
    for (uint32_t i = 0; i < servers; ++i) Join(SERVER_ROLE);
    Pass(seconds(1));
    ASSERT_EQ(Status().state(), RUNNING);
  }

  absl::StatusOr<ScaleResponse> Scale(uint32_t servers) {
    ScaleRequest request;
    request.set_servers(servers);
    return ResultOf(Call(&Coordinator::Scale, request));
  }
  absl::Status Drain(const std::string& node, bool force = false) {
    DrainRequest request;
    request.set_node(node);
    request.set_force(force);
    return ResultOf(Call(&Coordinator::Drain, request)).status();
  }
  std::vector<ClusterEvent> Events() {
    const auto answer = Call(&Coordinator::ListEvents, ListEventsRequest());
    return {(**answer)->events().begin(), (**answer)->events().end()};
  }
  std::vector<EventKind> KindsOf(const std::string& node) {
    std::vector<EventKind> kinds;
    for (const ClusterEvent& event : Events()) {
      if (event.node() == node) kinds.push_back(event.kind());
    }
    return kinds;
  }
  int Count(EventKind kind) {
    const std::vector<ClusterEvent> events = Events();
    return static_cast<int>(
        std::count_if(events.begin(), events.end(),
                      [&](const ClusterEvent& event) { return event.kind() == kind; }));
  }
  std::map<std::string, int> Loads() {
    std::map<std::string, int> loads;
    for (const Replicas& set : Sets()) {
      ++loads[set.primary];
      for (const std::string& backup : set.backups) ++loads[backup];
    }
    return loads;
  }
  NodeStatus StatusOf(const std::string& name) {
    const GetStatusResponse status = Status();
    for (const NodeStatus& node : status.nodes()) {
      if (node.node() == name) return node;
    }
    ADD_FAILURE() << "no node " << name;
    return {};
  }
};

TEST_F(ScaleTest, ExtraServerStandsByUntilTheJobIsScaled) {
  Run(2, 2);
  Join(SERVER_ROLE);
  Pass(seconds(3));
  EXPECT_TRUE(StatusOf("server-2").standby());
  EXPECT_EQ(Loads()["server-2"], 0);
  EXPECT_TRUE(Status().moves().settled());
  const auto scaled = Scale(4);
  ASSERT_TRUE(scaled.ok()) << scaled.status();
  EXPECT_EQ(scaled->servers_missing(), 1u);
  EXPECT_EQ(Status().scale().servers(), 4u);
  EXPECT_FALSE(Status().moves().settled());
  Pass(seconds(5));
  EXPECT_FALSE(StatusOf("server-2").standby());
  EXPECT_EQ(Loads()["server-2"], 16);
  EXPECT_TRUE(Status().moves().settled());
  Join(SERVER_ROLE);
  Pass(seconds(5));
  for (const auto& [server, load] : Loads()) EXPECT_EQ(load, 12) << server;
  EXPECT_EQ(Status().moves().replicas_moved(), 16u + 12u);
  EXPECT_EQ(Count(REPLICA_MOVED), 28);
}

TEST_F(ScaleTest, EventsOfARestartAreInOrder) {
  Run(2, 2);
  ASSERT_TRUE(ComeBack("server-1", {}).ok());
  EXPECT_EQ(KindsOf("server-1"), (std::vector<EventKind>{NODE_JOINED, NODE_DIED, NODE_RETURNED}));
}

TEST_F(ScaleTest, ElasticJobGivesJoinersTheirShareAtOnce) {
  Run(2, 1, "elastic: true");
  Join(SERVER_ROLE);
  Pass(seconds(5));
  EXPECT_EQ(Loads()["server-2"], 8);
  EXPECT_EQ(Count(NODE_JOINED), 3);
}

TEST_F(ScaleTest, StandbyReplacesADeadServer) {
  Run(2, 2);
  Join(SERVER_ROLE);
  Pass(seconds(1));
  Kill("server-0");
  Pass(seconds(5));
  EXPECT_EQ(Loads()["server-2"], 24);
  EXPECT_EQ(Count(NODE_DIED), 1);
  EXPECT_EQ(Count(PRIMARY_PROMOTED), 1)
      << "one event for all partitions from one server to another";
}

TEST_F(ScaleTest, ScalingDownDrainsTheNewestNodes) {
  Run(3, 2);
  each_tick_ = [&] {
    for (const Replicas& set : Sets())
      EXPECT_GE(set.in_sync(), set.primary.empty() ? 1u : 2u) << ReplicasText(set);
  };
  const auto scaled = Scale(2);
  ASSERT_TRUE(scaled.ok());
  ASSERT_EQ(scaled->draining_size(), 1);
  EXPECT_EQ(scaled->draining(0), "server-2");
  Pass(seconds(5));
  EXPECT_TRUE(NodeNamed("server-2").silent) << "it has left";
  EXPECT_TRUE(StatusOf("server-2").gone());
  EXPECT_EQ(Loads(), (std::map<std::string, int>{{"server-0", 24}, {"server-1", 24}}));
  EXPECT_EQ(Count(NODE_LEFT), 1);
  EXPECT_EQ(Scale(1).status().code(), absl::StatusCode::kInvalidArgument)
      << "two replicas need two servers";
}

TEST_F(ScaleTest, DrainIsRefusedIfTooFewServersRemain) {
  Run(2, 2);
  const absl::Status refused = Drain("server-0");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("2 replicas"), std::string::npos) << refused;
  EXPECT_EQ(Drain("server-7").code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Drain("server-0", /*force=*/true).ok());
  ASSERT_TRUE(Drain("server-0").ok()) << "repeated";
  Pass(seconds(5));
  EXPECT_TRUE(NodeNamed("server-0").silent);
  EXPECT_EQ(Loads(), (std::map<std::string, int>{{"server-1", 24}}));
  EXPECT_EQ(Drain("server-1", /*force=*/true).code(), absl::StatusCode::kFailedPrecondition)
      << "the last one";
  EXPECT_EQ(Status().scale().servers(), 1u);
}

TEST_F(ScaleTest, ForcedDrainLeavesEnoughServersForMinInSync) {
  Run(2, 2, "min_in_sync: 2");
  const absl::Status refused = Drain("server-0", /*force=*/true);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("min_in_sync is 2"), std::string::npos) << refused;
}

TEST_F(ScaleTest, RestartedDrainingServerIsToldToLeaveAgain) {
  Run(3, 1);
  ASSERT_TRUE(Drain("server-1").ok());
  const std::vector<uint32_t> had = InSyncAt("server-1");
  Kill("server-1");
  Pass(seconds(2));
  ASSERT_TRUE(ComeBack("server-1", had).ok());
  Pass(seconds(5));
  EXPECT_TRUE(NodeNamed("server-1").silent) << "it was not told";
  EXPECT_EQ(Loads()["server-1"], 0);
}

TEST_F(ScaleTest, ScaleEventsAndDrainsSurviveARestart) {
  Run(3, 1);
  ASSERT_TRUE(Scale(2).ok());
  const std::vector<ClusterEvent> before = Events();
  Restart(seconds(1));
  EXPECT_EQ(Status().scale().servers(), 2u);
  const std::vector<ClusterEvent> after = Events();
  ASSERT_GE(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(after[i].SerializeAsString(), before[i].SerializeAsString());
  Pass(seconds(10));
  EXPECT_TRUE(NodeNamed("server-2").silent) << "it still has to leave";
}

TEST_F(ScaleTest, NodeIsToldToLeaveOnceThatIsSaved) {
  Run(2, 1);
  const RegisterResponse server = NodeNamed("server-0").registration;
  HoldSaves();
  EXPECT_TRUE(absl::IsUnavailable(Drain("server-0"))) << "in the saved state it was not told";
  EXPECT_FALSE(Beat(server)->drain());
  ReleaseSaves();
  EXPECT_TRUE(Beat(server)->drain());
}

TEST_F(ScaleTest, HandoverDoesNotWaitForAHeartbeat) {
  Run(2, 1);
  ASSERT_TRUE(Drain("server-0").ok());
  uint32_t without_primary = 0;
  for (int i = 0; i < 100 && without_primary == 0; ++i) {
    Pass(kTickInterval);
    for (const Replicas& set : Sets()) without_primary += set.primary.empty();
  }
  ASSERT_GT(without_primary, 0u);
  GetRoutingRequest request;
  request.set_newer_than_epoch(Routing().epoch());
  request.set_node("server-0");
  request.set_incarnation(NodeNamed("server-0").registration.incarnation());
  const auto answer = Call(&Coordinator::GetRouting, request);
  ASSERT_TRUE(answer->has_value()) << "the next table is created at once";
  for (const Replicas& set : ReplicasIn(***answer)) EXPECT_FALSE(set.primary.empty());
}

TEST_F(ScaleTest, HandoverPausesAreReported) {
  Run(2, 1);
  ASSERT_TRUE(Drain("server-0").ok());
  uint64_t told = 0;
  each_tick_ = [&] {
    // As the new primary would.
    const RoutingTable routing = Routing();
    HeartbeatRequest request;
    request.set_node("server-1");
    request.set_incarnation(NodeNamed("server-1").registration.incarnation());
    for (int p = 0; p < routing.primary_size(); ++p) {
      if (ReplicasIn(routing)[static_cast<size_t>(p)].primary != "server-1" ||
          routing.replicas(p).primary_since() == 1) {
        continue;
      }
      Takeover& takeover = *request.add_takeovers();
      takeover.set_partition(static_cast<uint32_t>(p));
      takeover.set_primary_since(routing.replicas(p).primary_since());
      takeover.set_pause_ms(30);
      ++told;
    }
    EXPECT_TRUE(coordinator_->Heartbeat(request).ok());
    Save();
  };
  Pass(seconds(5));
  EXPECT_GT(told, 12u) << "each is reported more than once";
  EXPECT_EQ(Count(PRIMARY_MOVED), 12);
  EXPECT_EQ(Status().moves().handovers(), 12u);
  EXPECT_EQ(Status().moves().pause_ms_max(), 30u);
}

TEST_F(ScaleTest, ReplicasAreInDifferentZones) {
  BeginWithStore(
      "name: 'tables' optimizer { sgd { learning_rate: 1 } } consistency { mode: ASYNC } "
      "partitions: 24 replicas: 2",
      4, 0);
  for (const char* zone : {"a", "a", "b", "b"}) {
    RegisterRequest request = Registration(SERVER_ROLE, ++nonce_);
    request.set_zone(zone);
    JoinBy(request);
  }
  Pass(seconds(2));
  for (const Replicas& set : Sets()) {
    const bool primary_in_a = set.primary == "server-0" || set.primary == "server-1";
    const bool backup_in_a = set.backups[0] == "server-0" || set.backups[0] == "server-1";
    EXPECT_NE(primary_in_a, backup_in_a) << ReplicasText(set);
  }
  EXPECT_EQ(Status().moves().sharing_a_zone(), 0u);
  Kill("server-2");
  Kill("server-3");
  Pass(seconds(4));
  EXPECT_EQ(StatusOf("server-0").zone(), "a");
  EXPECT_EQ(Status().moves().sharing_a_zone(), 0u) << "one zone counts as none";
}

}  // namespace
}  // namespace pawl
