#include "scheduler/stored_replica_set.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(StoredReplicaSet, NothingOfASetIsLeftOut) {
  ReplicaSet set;
  set.primary = 1;
  set.primary_since = 22;
  set.began = 3;
  set.backups = {4, 5};
  set.learners = {{.server = 6, .since = 17}, {.server = 8, .since = 19}};
  set.holders = {10};
  set.yielding = 11;
  set.leaving = 12;
  const ReplicaSet again = FromStored(ToStored(set));
  EXPECT_EQ(again.primary, set.primary);
  EXPECT_EQ(again.primary_since, set.primary_since);
  EXPECT_EQ(again.began, set.began);
  EXPECT_EQ(again.backups, set.backups);
  ASSERT_EQ(again.learners.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again.learners[i].server, set.learners[i].server);
    EXPECT_EQ(again.learners[i].since, set.learners[i].since);
  }
  EXPECT_EQ(again.holders, set.holders);
  EXPECT_EQ(again.yielding, set.yielding);
  EXPECT_EQ(again.leaving, set.leaving);
}

}  // namespace
}  // namespace pawl
