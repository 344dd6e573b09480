#include "scheduler/routing/routing.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

Node Server(uint32_t number, uint64_t incarnation) {
  Node server;
  server.name = "server-" + std::to_string(number);
  server.number = number;
  server.address = "127.0.0.1:400" + std::to_string(number);
  server.incarnation = incarnation;
  return server;
}

TEST(RoutingTest, TableNamesServersByIndex) {
  const Node first = Server(3, 5);
  const Node second = Server(7, 6);
  Placement placement;
  placement.epoch = 9;
  placement.partitions.resize(3);
  placement.partitions[0].primary = 7;
  placement.partitions[0].primary_since = 4;
  placement.partitions[0].backups = {3};
  placement.partitions[1].primary = 3;
  placement.partitions[1].learners = {{7, 8}};
  placement.partitions[2].last_in_sync = {7, 12};
  placement.partitions[2].retained = {7, 12};
  placement.partitions[2].confirm_since = 6;

  const RoutingTable table = MakeRoutingTable(77, placement, {&first, &second});
  EXPECT_EQ(table.job_id(), 77u);
  EXPECT_EQ(table.epoch(), 9u);
  ASSERT_EQ(table.servers_size(), 2);
  EXPECT_EQ(table.servers(1).node(), "server-7");
  EXPECT_EQ(table.servers(1).address(), "127.0.0.1:4007");
  EXPECT_EQ(table.servers(1).incarnation(), 6u);
  EXPECT_EQ(table.primary(0), 1u);
  EXPECT_EQ(table.replicas(0).backups(0), 0u);
  EXPECT_EQ(table.replicas(0).primary_since(), 4u);
  EXPECT_EQ(table.primary(1), 0u);
  EXPECT_EQ(table.replicas(1).learners(0), 1u);
  ASSERT_EQ(table.replicas(2).retained_size(), 1) << "12 is not present";
  EXPECT_EQ(table.replicas(2).retained(0), 1u);
  EXPECT_EQ(table.replicas(2).confirm_since(), 6u);
  EXPECT_EQ(table.primary(2), kNoPrimary);
  EXPECT_EQ(table.replicas_size(), 3);
  EXPECT_EQ(ReplicaCounts(table), (std::vector<uint32_t>{2, 1}));
}

TEST(RoutingTest, JoiningOrLeavingServerMovesFewOthers) {
  std::vector<Node> nodes;
  for (uint32_t number = 0; number < 10; ++number) nodes.push_back(Server(number, number + 1));
  const auto order = [&](const std::vector<uint32_t>& gone) {
    std::vector<const Node*> servers;
    for (const Node& node : nodes) {
      if (std::find(gone.begin(), gone.end(), node.number) == gone.end()) servers.push_back(&node);
    }
    std::string text;
    const RoutingTable table = MakeRoutingTable(1, Placement(), servers);
    for (const ServerAddress& server : table.servers()) text += server.node().substr(7);
    return text;
  };
  EXPECT_EQ(order({}), "0123456789");
  EXPECT_EQ(order({3}), "012945678");
  EXPECT_EQ(order({9}), "012345678");
  EXPECT_EQ(order({2, 7}), "01834569");
  EXPECT_EQ(order({0, 1, 2, 3, 4, 5, 6, 7}), "89");
}

TEST(RoutingDeathTest, ReplicaOnAnAbsentServerCrashes) {
  Placement placement;
  placement.partitions.resize(1);
  placement.partitions[0].primary = 0;
  EXPECT_DEATH(MakeRoutingTable(1, placement, {}), "");
}

}  // namespace
}  // namespace pawl
