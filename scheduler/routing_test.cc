#include "scheduler/routing.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(RoutingTest, EpochGrowsWithEachTable) {
  Node server;
  server.name = "server-0";
  server.address = "127.0.0.1:4000";
  server.incarnation = 5;
  Node other = server;
  other.name = "server-1";
  Routing routing(77, 3);
  EXPECT_FALSE(routing.published());
  EXPECT_EQ(routing.epoch(), 0u);

  routing.Publish({&server}, {0, 0, 0});
  EXPECT_TRUE(routing.published());
  EXPECT_EQ(routing.epoch(), 1u);
  EXPECT_EQ(routing.table().job_id(), 77u);
  ASSERT_EQ(routing.table().servers_size(), 1);
  EXPECT_EQ(routing.table().servers(0).address(), "127.0.0.1:4000");
  EXPECT_EQ(routing.table().servers(0).incarnation(), 5u);

  routing.Publish({&server, &other}, {0, 1, 0});
  EXPECT_EQ(routing.epoch(), 2u);
  EXPECT_EQ(routing.table().primary_size(), 3);
  EXPECT_EQ(routing.table().servers(1).node(), "server-1");
  EXPECT_EQ(routing.PartitionCounts(), (std::vector<uint32_t>{2, 1}));
}

TEST(RoutingDeathTest, PartitionWithoutAServerIsABrokenInvariant) {
  Node server;
  Routing routing(77, 2);
  EXPECT_DEATH(routing.Publish({&server}, {0}), "");
  EXPECT_DEATH(routing.Publish({&server}, {0, 1}), "");
}

}  // namespace
}  // namespace pawl
