#include "scheduler/logical_workers.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

using Ranks = std::vector<uint32_t>;

TEST(LogicalWorkersTest, RanksAreSharedInContiguousRunsOnceAllWorkersAreThere) {
  LogicalWorkers ranks(5, 2);
  ranks.Join("worker-0", {});
  EXPECT_FALSE(ranks.RanksOf("worker-0").has_value());
  EXPECT_FALSE(ranks.AllHosted());
  ranks.Join("worker-1", {});
  EXPECT_EQ(ranks.RanksOf("worker-0"), (Ranks{0, 1}));
  EXPECT_EQ(ranks.RanksOf("worker-1"), (Ranks{2, 3, 4}));
  EXPECT_TRUE(ranks.AllHosted());
}

TEST(LogicalWorkersTest, EveryRankHasOneHostAndSharesDifferByAtMostOne) {
  for (uint32_t total = 1; total <= 12; ++total) {
    for (uint32_t workers = 1; workers <= total; ++workers) {
      LogicalWorkers ranks(total, workers);
      for (uint32_t w = 0; w < workers; ++w) ranks.Join("w" + std::to_string(w), {});
      uint32_t next = 0;
      for (uint32_t w = 0; w < workers; ++w) {
        const Ranks share = *ranks.RanksOf("w" + std::to_string(w));
        EXPECT_GE(share.size(), total / workers);
        EXPECT_LE(share.size(), (total + workers - 1) / workers);
        for (const uint32_t rank : share) EXPECT_EQ(rank, next++);
      }
      EXPECT_EQ(next, total);
    }
  }
}

TEST(LogicalWorkersTest, WishesAreGrantedAtOnceAndTheRestIsShared) {
  LogicalWorkers ranks(4, 2);
  ranks.Join("worker-0", {1, 2});
  EXPECT_EQ(ranks.RanksOf("worker-0"), (Ranks{1, 2}));
  ranks.Join("worker-1", {});
  EXPECT_EQ(ranks.RanksOf("worker-1"), (Ranks{0, 3}));
}

TEST(LogicalWorkersTest, ImpossibleWishesAreRefused) {
  LogicalWorkers ranks(4, 0);
  EXPECT_EQ(ranks.CheckWishes({4}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ranks.CheckWishes({1, 1}).code(), absl::StatusCode::kInvalidArgument);
  ranks.Join("worker-0", {1});
  EXPECT_EQ(ranks.CheckWishes({0, 1}).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(ranks.CheckWishes({0, 2}).ok());
}

TEST(LogicalWorkersTest, LateWorkerWithoutWishesIsRefused) {
  LogicalWorkers ranks(4, 1);
  ranks.Join("worker-0", {});
  EXPECT_EQ(ranks.CheckWishes({}).code(), absl::StatusCode::kResourceExhausted);
}

TEST(LogicalWorkersTest, RanksOfOneThatLeftCanBeWishedAgain) {
  LogicalWorkers ranks(2, 0);
  ranks.Join("worker-0", {0, 1});
  ranks.Leave("worker-0");
  EXPECT_FALSE(ranks.AllHosted());
  EXPECT_FALSE(ranks.RanksOf("worker-0").has_value());
  EXPECT_TRUE(ranks.CheckWishes({0, 1}).ok());
}

TEST(LogicalWorkersTest, OneThatLeftBeforeTheDecisionIsNotCounted) {
  LogicalWorkers ranks(2, 2);
  ranks.Join("worker-0", {});
  ranks.Leave("worker-0");
  ranks.Join("worker-1", {});
  EXPECT_FALSE(ranks.decided());
  ranks.Join("worker-2", {});
  EXPECT_EQ(ranks.RanksOf("worker-1"), (Ranks{0}));
  EXPECT_EQ(ranks.RanksOf("worker-2"), (Ranks{1}));
}

TEST(LogicalWorkersTest, WithoutAFixedNumberTheFirstWorkerWithoutWishesGetsTheRest) {
  LogicalWorkers ranks(3, 0);
  ranks.Join("worker-0", {1});
  EXPECT_FALSE(ranks.decided());
  ranks.Join("worker-1", {});
  EXPECT_EQ(ranks.RanksOf("worker-1"), (Ranks{0, 2}));
}

}  // namespace
}  // namespace pawl
