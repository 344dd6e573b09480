#include "scheduler/placement/stored_replica_set.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(StoredReplicaSet, ConversionIsLossless) {
  ReplicaSet set;
  set.primary = 1;
  set.primary_since = 22;
  set.created_epoch = 3;
  set.backups = {4, 5};
  set.learners = {{.server = 6, .since = 17}, {.server = 8, .since = 19}};
  set.last_in_sync = {1, 4, 5, 10};
  set.fallbacks = {10};
  set.retained = {10, 13};
  set.retained_since = 20;
  set.confirm_since = 21;
  set.yielding = 11;
  set.leaving = 12;
  const ReplicaSet again = FromStored(ToStored(set));
  EXPECT_EQ(again.primary, set.primary);
  EXPECT_EQ(again.primary_since, set.primary_since);
  EXPECT_EQ(again.created_epoch, set.created_epoch);
  EXPECT_EQ(again.backups, set.backups);
  ASSERT_EQ(again.learners.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again.learners[i].server, set.learners[i].server);
    EXPECT_EQ(again.learners[i].since, set.learners[i].since);
  }
  EXPECT_EQ(again.last_in_sync, set.last_in_sync);
  EXPECT_EQ(again.fallbacks, set.fallbacks);
  EXPECT_EQ(again.retained, set.retained);
  EXPECT_EQ(again.retained_since, set.retained_since);
  EXPECT_EQ(again.confirm_since, set.confirm_since);
  EXPECT_EQ(again.yielding, set.yielding);
  EXPECT_EQ(again.leaving, set.leaving);
}

}  // namespace
}  // namespace pawl
