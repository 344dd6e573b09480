#include "scheduler/routing/routing_history.h"

#include <optional>
#include <vector>

#include "client_lib/rpc/routing_changes.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

RoutingTable Table(uint64_t epoch, int partitions = 8) {
  RoutingTable table;
  table.set_epoch(epoch);
  for (int i = 0; i < 3; ++i) table.add_servers()->set_incarnation(i + 1);
  for (int p = 0; p < partitions; ++p) {
    table.add_primary(0);
    table.add_replicas()->set_primary_since(1);
  }
  return table;
}

RoutingTable With(RoutingTable table, uint64_t epoch, int partition, uint32_t primary) {
  table.set_epoch(epoch);
  table.set_primary(partition, primary);
  return table;
}

TEST(RoutingHistoryTest, KnownEpochGetsTheChangesSince) {
  const std::vector<RoutingTable> tables = {Table(3), With(Table(3), 4, 1, 1),
                                            With(With(Table(3), 4, 1, 1), 7, 2, 2)};
  RoutingHistory history;
  history.Add(tables[0], tables[1]);
  history.Add(tables[1], tables[2]);
  for (size_t from = 0; from < 2; ++from) {
    for (size_t to = from + 1; to < 3; ++to) {
      const std::optional<RoutingTable> changes = history.Since(tables[from].epoch(), tables[to]);
      ASSERT_TRUE(changes.has_value()) << from << " " << to;
      EXPECT_EQ(static_cast<size_t>(changes->changed_size()), 2 - from);
      EXPECT_EQ(ApplyRoutingChanges(tables[from], *changes)->SerializeAsString(),
                tables[to].SerializeAsString());
    }
  }
}

TEST(RoutingHistoryTest, UnknownEpochGetsNoChanges) {
  RoutingHistory history;
  EXPECT_FALSE(history.Since(3, Table(4)).has_value());
  history.Add(Table(3), With(Table(3), 6, 1, 1));
  EXPECT_FALSE(history.Since(2, With(Table(3), 6, 1, 1)).has_value());
  EXPECT_FALSE(history.Since(6, With(Table(3), 6, 1, 1)).has_value());
  // A gap between tables discards the changes before it.
  history.Add(Table(8), With(Table(8), 9, 1, 1));
  EXPECT_FALSE(history.Since(3, With(Table(8), 9, 1, 1)).has_value());
  EXPECT_TRUE(history.Since(8, With(Table(8), 9, 1, 1)).has_value());
}

TEST(RoutingHistoryTest, ServersAreSentOnlyIfChanged) {
  RoutingHistory history;
  RoutingTable other = With(Table(1), 2, 1, 1);
  history.Add(Table(1), other);
  EXPECT_EQ(history.Since(1, other)->servers_size(), 0);
  RoutingTable restarted = other;
  restarted.set_epoch(3);
  restarted.mutable_servers(2)->set_incarnation(9);
  history.Add(other, restarted);
  EXPECT_EQ(history.Since(1, restarted)->servers_size(), 3);
  RoutingTable no_servers = restarted;
  no_servers.set_epoch(4);
  no_servers.clear_servers();
  history.Add(restarted, no_servers);
  EXPECT_FALSE(history.Since(3, no_servers).has_value()) << "an empty list means unchanged servers";
  restarted.set_epoch(5);
  history.Add(no_servers, restarted);
  EXPECT_EQ(history.Since(4, restarted)->servers_size(), 3);
}

TEST(RoutingHistoryTest, LargeChangeIsSentAsAWholeTable) {
  RoutingHistory history;
  RoutingTable table = Table(1);
  RoutingTable after = table;
  after.set_epoch(2);
  for (int p = 0; p < 5; ++p) after.set_primary(p, 1);
  history.Add(table, after);
  EXPECT_FALSE(history.Since(1, after).has_value());
}

}  // namespace
}  // namespace pawl
