#include "scheduler/routing/routing_tables.h"

#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/rpc/routing_changes.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using Table = std::shared_ptr<const RoutingTable>;

// Eight partitions on two servers.
class RoutingTablesTest : public testing::Test {
 protected:
  RoutingTablesTest() {
    for (uint64_t server = 1; server <= 2; ++server) {
      RegisterRequest request;
      request.set_role(SERVER_ROLE);
      request.set_process_nonce(server);
      request.set_address(absl::StrCat("s:", server));
      EXPECT_TRUE(membership_.Register(request, clock_.Now()).ok());
    }
    placement_.partitions.resize(8);
  }

  // Partition `partition` is at `primary` from the next epoch on.
  void Move(uint32_t partition, ServerNumber primary) {
    placement_.partitions[partition].primary = primary;
    placement_.partitions[partition].primary_since = ++placement_.epoch;
    tables_.OnPlacementChanged();
  }
  void Begin() {
    for (uint32_t partition = 0; partition < 8; ++partition) Move(partition, 0);
  }
  Table Newest() { return tables_.Newest(placement_, membership_); }

  SimulatedClock clock_;
  Membership membership_{Membership::Options()};
  Placement placement_;
  RoutingTables tables_{77};
};

TEST_F(RoutingTablesTest, NoTableBeforeTheFirstPlacement) { EXPECT_EQ(Newest(), nullptr); }

TEST_F(RoutingTablesTest, TableIsBuiltWhenRead) {
  Begin();
  const Table first = Newest();
  EXPECT_EQ(first->epoch(), 8u);
  EXPECT_EQ(first->job_id(), 77u);
  EXPECT_EQ(Newest(), first) << "built twice";
  Move(3, 1);
  Move(4, 1);
  EXPECT_EQ(Newest()->epoch(), 10u);
  EXPECT_EQ(first->primary(3), 0u) << "readers keep the old table";
}

TEST_F(RoutingTablesTest, KnownTableGetsChanges) {
  Begin();
  const Table first = Newest();
  Move(3, 1);
  const Table second = Newest();
  const Table answer = tables_.Answer({first->epoch(), /*accepts_changes=*/true}, second);
  EXPECT_EQ(answer->since_epoch(), first->epoch());
  EXPECT_EQ(ApplyRoutingChanges(*first, *answer)->SerializeAsString(), second->SerializeAsString());
}

TEST_F(RoutingTablesTest, UnknownTableGetsTheWholeTable) {
  Begin();
  const Table first = Newest();
  Move(3, 1);
  const Table second = Newest();
  EXPECT_EQ(tables_.Answer({first->epoch(), /*accepts_changes=*/false}, second), second);
  EXPECT_EQ(tables_.Answer({first->epoch() - 1, /*accepts_changes=*/true}, second), second)
      << "there is no table of that epoch";
}

// Only saved tables are told, and those are behind the newest one.
TEST_F(RoutingTablesTest, ChangesEndAtTheGivenTable) {
  Begin();
  const Table first = Newest();
  Move(3, 1);
  const Table told = Newest();
  Move(4, 1);
  Newest();
  const Table answer = tables_.Answer({first->epoch(), /*accepts_changes=*/true}, told);
  EXPECT_EQ(answer->epoch(), told->epoch());
  EXPECT_EQ(ApplyRoutingChanges(*first, *answer)->SerializeAsString(), told->SerializeAsString());
}

TEST_F(RoutingTablesTest, RemadeTableIsNoBaseOfChanges) {
  Begin();
  tables_.Remake(placement_, membership_);
  const uint64_t saved = Newest()->epoch();
  Move(3, 1);
  const Table next = Newest();
  EXPECT_EQ(tables_.Answer({saved, /*accepts_changes=*/true}, next), next);
  Move(4, 1);
  const Table last = Newest();
  EXPECT_EQ(tables_.Answer({next->epoch(), /*accepts_changes=*/true}, last)->since_epoch(),
            next->epoch());
  EXPECT_EQ(tables_.Answer({saved, /*accepts_changes=*/true}, last), last);
}

}  // namespace
}  // namespace pawl
