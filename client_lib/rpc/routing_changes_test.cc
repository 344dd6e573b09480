#include "client_lib/rpc/routing_changes.h"

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr int kPartitions = 40;

void AddServer(RoutingTable& table, uint64_t incarnation) {
  ServerAddress& server = *table.add_servers();
  server.set_node(absl::StrCat("server-", table.servers_size() - 1));
  server.set_address(absl::StrCat("h:", table.servers_size()));
  server.set_incarnation(incarnation);
}

RoutingTable Table(uint64_t epoch, int servers = 4) {
  RoutingTable table;
  table.set_job_id(7);
  table.set_epoch(epoch);
  for (int i = 0; i < servers; ++i) AddServer(table, 10 + i);
  for (int p = 0; p < kPartitions; ++p) {
    table.add_primary(p % servers);
    PartitionReplicas& replicas = *table.add_replicas();
    replicas.set_primary_since(1);
    replicas.set_created_epoch(1);
    replicas.add_backups((p + 1) % servers);
  }
  return table;
}

RoutingTable Changes(const RoutingTable& before, const RoutingTable& after, bool servers_changed) {
  return RoutingChanges(after, before.epoch(), ChangedPartitions(before, after), servers_changed);
}

TEST(RoutingChangesTest, ChangesReproduceAnyTable) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](size_t limit) { return static_cast<uint32_t>(random() % limit); };
    std::vector<RoutingTable> tables = {Table(1)};
    for (int step = 0; step < 20; ++step) {
      RoutingTable table = tables.back();
      table.set_epoch(table.epoch() + 1 + below(3));
      if (below(4) == 0) AddServer(table, table.epoch());
      if (below(4) == 0) {
        table.mutable_servers(static_cast<int>(below(table.servers_size())))
            ->set_incarnation(table.epoch());
      }
      for (uint32_t i = below(5); i-- > 0;) {
        const int p = static_cast<int>(below(kPartitions));
        table.set_primary(p, below(5) == 0 ? UINT32_MAX : below(table.servers_size()));
        PartitionReplicas& replicas = *table.mutable_replicas(p);
        replicas.set_primary_since(table.epoch());
        replicas.clear_learners();
        replicas.clear_learners_since();
        if (below(2) == 0) {
          replicas.add_learners(below(table.servers_size()));
          replicas.add_learners_since(table.epoch());
        }
      }
      tables.push_back(table);
    }
    const size_t from = below(tables.size() - 1);
    const size_t to = from + 1 + below(tables.size() - from - 1);
    const absl::StatusOr<RoutingTable> whole =
        ApplyRoutingChanges(tables[from], Changes(tables[from], tables[to], true));
    ASSERT_TRUE(whole.ok()) << whole.status();
    ASSERT_EQ(whole->SerializeAsString(), tables[to].SerializeAsString()) << "seed " << seed;
  }
}

TEST(RoutingChangesTest, ChangesContainOnlyDifferences) {
  const RoutingTable before = Table(5);
  RoutingTable after = before;
  after.set_epoch(6);
  after.set_primary(3, 2);
  const RoutingTable changes = Changes(before, after, false);
  EXPECT_EQ(changes.changed_size(), 1);
  EXPECT_EQ(changes.changed(0), 3u);
  EXPECT_EQ(changes.servers_size(), 0);
  EXPECT_LT(changes.ByteSizeLong(), 40u);
  EXPECT_EQ(ApplyRoutingChanges(before, changes)->SerializeAsString(), after.SerializeAsString());
}

TEST(RoutingChangesTest, ChangesThatDoNotFitAreRefused) {
  const RoutingTable base = Table(5);
  RoutingTable after = base;
  after.set_epoch(6);
  after.set_primary(3, 2);
  after.set_primary(9, 2);
  const RoutingTable good = Changes(base, after, false);
  const auto refused = [&](const RoutingTable& on, const RoutingTable& changes) {
    return absl::IsInvalidArgument(ApplyRoutingChanges(on, changes).status());
  };
  ASSERT_FALSE(refused(base, good));
  EXPECT_TRUE(refused(Table(4), good)) << "another epoch";
  EXPECT_TRUE(refused(base, after)) << "a whole table";
  RoutingTable bad = good;
  bad.set_job_id(8);
  EXPECT_TRUE(refused(base, bad));
  bad = good;
  bad.set_epoch(5);
  EXPECT_TRUE(refused(base, bad)) << "backwards";
  bad = good;
  bad.set_changed(1, kPartitions);
  EXPECT_TRUE(refused(base, bad)) << "an unknown partition";
  bad = good;
  bad.set_changed(1, 3);
  EXPECT_TRUE(refused(base, bad)) << "a repeated partition";
  bad = good;
  bad.add_changed(10);
  EXPECT_TRUE(refused(base, bad)) << "a partition without its primary";
  bad = good;
  bad.set_primary(0, 4);
  EXPECT_TRUE(refused(base, bad)) << "an unknown server";
  bad = good;
  bad.mutable_replicas(0)->set_backups(0, 99);
  EXPECT_TRUE(refused(base, bad));
  bad = good;
  *bad.add_servers() = base.servers(0);
  EXPECT_TRUE(refused(base, bad)) << "the other partitions are on servers that are gone";
}

}  // namespace
}  // namespace pawl
