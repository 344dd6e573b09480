#include "client_lib/session/routing.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

RoutingTable MakeTable(uint64_t epoch, const std::vector<uint32_t>& primary) {
  RoutingTable table;
  table.set_job_id(7);
  table.set_epoch(epoch);
  for (const char* address : {"a:1", "b:2", "c:3"}) table.add_servers()->set_address(address);
  for (const uint32_t server : primary) table.add_primary(server);
  return table;
}

TEST(RoutingTest, OnlyNewerTablesAreAdopted) {
  Router router(7);
  EXPECT_EQ(router.current(), nullptr);
  EXPECT_TRUE(*router.Adopt(MakeTable(5, {0, 1})));
  EXPECT_FALSE(*router.Adopt(MakeTable(5, {1, 1})));
  EXPECT_FALSE(*router.Adopt(MakeTable(4, {1, 1})));
  EXPECT_EQ(router.current()->address(router.current()->primary(1)), "b:2");
  EXPECT_TRUE(*router.Adopt(MakeTable(6, {1, 2})));
  EXPECT_EQ(router.current()->address(router.current()->primary(1)), "c:3");
}

TEST(RoutingTest, ContradictoryTablesAreRefused) {
  Router router(7);
  EXPECT_EQ(router.Adopt(MakeTable(1, {0, 3})).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(router.Adopt(MakeTable(1, {})).status().code(), absl::StatusCode::kInvalidArgument);
  RoutingTable other = MakeTable(1, {0});
  other.set_job_id(8);
  EXPECT_EQ(router.Adopt(other).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(router.current(), nullptr);
  RoutingTable changes = MakeTable(1, {0});
  changes.set_since_epoch(3);
  EXPECT_EQ(router.Adopt(changes).status().code(), absl::StatusCode::kInvalidArgument)
      << "not whole";
  EXPECT_EQ(router.current(), nullptr);
  EXPECT_TRUE(router.Adopt(MakeTable(1, {0, 1})).ok());
  EXPECT_EQ(router.Adopt(MakeTable(2, {0, 1, 2})).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(router.current()->epoch(), 1);
}

TEST(RoutingTest, PartitionMayHaveNoPrimary) {
  const auto routing = Routing::FromProto(MakeTable(1, {1, UINT32_MAX}), 7);
  ASSERT_TRUE(routing.ok());
  EXPECT_EQ((*routing)->primary(0), 1u);
  EXPECT_EQ((*routing)->primary(1), Routing::kNoServer);
  EXPECT_EQ((*routing)->primary_addresses(), std::vector<std::string>{"b:2"});
}

// Calls that wait for a newer table would never be ended.
TEST(RoutingTest, LargestEpochIsRefused) {
  EXPECT_EQ(Routing::FromProto(MakeTable(UINT64_MAX, {0}), 7).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(RoutingTest, ServersWithoutPartitionsAreNotPrimaries) {
  const auto routing = Routing::FromProto(MakeTable(1, {2, 0, 2}), 7);
  ASSERT_TRUE(routing.ok());
  EXPECT_EQ((*routing)->primary_addresses(), (std::vector<std::string>{"a:1", "c:3"}));
}

}  // namespace
}  // namespace pawl
