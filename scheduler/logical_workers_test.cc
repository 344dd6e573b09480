#include "scheduler/logical_workers.h"

#include <string>
#include <vector>

#include "client_lib/base/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using Ranks = std::vector<uint32_t>;
using std::chrono::seconds;

Ranks Leave(LogicalWorkers& ranks, const std::string& worker, MonotonicTime now = MonotonicTime(), uint64_t incarnation = 1,
            bool must_return = true) {
  return ranks.Leave({worker, incarnation, worker + " died", must_return}, now);
}

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
  EXPECT_EQ(ranks.CheckWishes("", {4}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ranks.CheckWishes("", {1, 1}).code(), absl::StatusCode::kInvalidArgument);
  ranks.Join("worker-0", {1});
  EXPECT_EQ(ranks.CheckWishes("", {0, 1}).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(ranks.CheckWishes("", {0, 2}).ok());
}

TEST(LogicalWorkersTest, LateWorkerWithoutWishesIsRefused) {
  LogicalWorkers ranks(4, 1);
  ranks.Join("worker-0", {});
  EXPECT_EQ(ranks.CheckWishes("", {}).code(), absl::StatusCode::kResourceExhausted);
}

TEST(LogicalWorkersTest, RanksOfOneThatLeftCanBeWishedAgain) {
  LogicalWorkers ranks(2, 0);
  ranks.Join("worker-0", {0, 1});
  Leave(ranks, "worker-0");
  EXPECT_FALSE(ranks.AllHosted());
  EXPECT_FALSE(ranks.RanksOf("worker-0").has_value());
  EXPECT_TRUE(ranks.CheckWishes("", {0, 1}).ok());
}

TEST(LogicalWorkersTest, OneThatLeftBeforeTheDecisionIsNotCounted) {
  LogicalWorkers ranks(2, 2);
  ranks.Join("worker-0", {});
  Leave(ranks, "worker-0");
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

TEST(LogicalWorkersTest, WorkerThatComesBackGetsItsOwnRanksAgain) {
  LogicalWorkers ranks(6, 3);
  for (const char* worker : {"worker-0", "worker-1", "worker-2"}) ranks.Join(worker, {});
  EXPECT_EQ(Leave(ranks, "worker-1"), (Ranks{2, 3}));
  EXPECT_EQ(Leave(ranks, "worker-0"), (Ranks{0, 1}));
  EXPECT_FALSE(ranks.AllHosted());
  EXPECT_EQ(ranks.LastHostOf(2), "worker-1");
  EXPECT_TRUE(ranks.CheckWishes("worker-1", {}).ok());
  ranks.Join("worker-1", {});
  EXPECT_EQ(ranks.RanksOf("worker-1"), (Ranks{2, 3}));
  EXPECT_EQ(ranks.FreeRanks().size(), 2u);
}

TEST(LogicalWorkersTest, NewWorkerTakesTheRanksOfOneThatIsAway) {
  LogicalWorkers ranks(4, 2);
  ranks.Join("worker-0", {});
  ranks.Join("worker-1", {});
  Leave(ranks, "worker-1");
  Leave(ranks, "worker-0");
  ranks.Join("worker-2", {});
  EXPECT_EQ(ranks.RanksOf("worker-2"), (Ranks{0, 1}));
  EXPECT_TRUE(ranks.CheckWishes("worker-0", {}).ok()) << "its own are taken, but others are free";
  ranks.Join("worker-0", {});
  EXPECT_EQ(ranks.RanksOf("worker-0"), (Ranks{2, 3}));
  EXPECT_EQ(ranks.CheckWishes("worker-1", {}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(ranks.AllHosted());
}

TEST(LogicalWorkersTest, WorkerThatIsRestartedBeforeItsDeathIsSeenMayJoin) {
  LogicalWorkers ranks(2, 1);
  ranks.Join("worker-0", {});
  EXPECT_TRUE(ranks.CheckWishes("worker-0", {}).ok());
  EXPECT_TRUE(ranks.CheckWishes("worker-0", {1}).ok());
  EXPECT_EQ(ranks.CheckWishes("", {}).code(), absl::StatusCode::kResourceExhausted);
}

TEST(LogicalWorkersTest, FinishedRanksStayWithTheirLastHost) {
  LogicalWorkers ranks(2, 2);
  ranks.Join("worker-0", {});
  ranks.Join("worker-1", {});
  ranks.Finish("worker-0");
  EXPECT_TRUE(Leave(ranks, "worker-0").empty());
  EXPECT_TRUE(ranks.FreeRanks().empty());
  EXPECT_EQ(ranks.RanksOf("worker-0"), (Ranks{0}));
  EXPECT_FALSE(ranks.AllFinished());
  EXPECT_TRUE(ranks.CheckWishes("worker-0", {}).ok()) << "it may not know that it had finished";
  ranks.Join("worker-0", {});
  EXPECT_EQ(ranks.RanksOf("worker-0"), (Ranks{0}));
  ranks.Finish("worker-1");
  EXPECT_TRUE(ranks.AllFinished());
}

TEST(LogicalWorkersTest, RanksThatNobodyTakesOverInTimeAreNamed) {
  SimulatedClock clock;
  LogicalWorkers ranks(3, 1);
  ranks.Join("worker-0", {});
  Leave(ranks, "worker-0", clock.Now(), 7);
  EXPECT_EQ(ranks.FreeRanks().at(2).incarnation, 7u);
  clock.Advance(seconds(5));
  EXPECT_FALSE(ranks.CheckReturn(clock.Now(), seconds(5)).has_value());
  clock.Advance(seconds(1));
  EXPECT_EQ(*ranks.CheckReturn(clock.Now(), seconds(5)),
            "worker-0 died; nobody has taken over its ranks 0, 1, 2 within 5.0 s");
  ranks.Join("worker-1", {});
  EXPECT_FALSE(ranks.CheckReturn(clock.Now(), seconds(5)).has_value());
}

TEST(LogicalWorkersTest, NobodyWaitsForOneThatLeftAJobThatTakesThemAsTheyCome) {
  SimulatedClock clock;
  LogicalWorkers ranks(1, 0);
  ranks.Join("worker-0", {0});
  Leave(ranks, "worker-0", clock.Now(), 1, /*must_return=*/false);
  clock.Advance(seconds(1000));
  EXPECT_FALSE(ranks.CheckReturn(clock.Now(), seconds(5)).has_value());
}

TEST(LogicalWorkersTest, RestoredAssignmentGoesOn) {
  SimulatedClock clock;
  LogicalWorkers before(6, 3);
  for (const char* worker : {"worker-0", "worker-1", "worker-2"}) before.Join(worker, {});
  before.Finish("worker-0");
  Leave(before, "worker-1", clock.Now(), 9);
  LogicalWorkers after(6, 3);
  after.Restore(before.Save(), clock.Now());
  EXPECT_TRUE(after.decided());
  EXPECT_EQ(after.RanksOf("worker-2"), (Ranks{4, 5}));
  EXPECT_EQ(after.RanksOf("worker-0"), (Ranks{0, 1}));
  ASSERT_EQ(after.FreeRanks().size(), 2u);
  EXPECT_EQ(after.FreeRanks()[0].incarnation, 9u);
  after.Join("worker-1", {});
  EXPECT_EQ(after.RanksOf("worker-1"), (Ranks{2, 3}));
  EXPECT_EQ(after.Save().SerializeAsString().empty(), false);
}

TEST(LogicalWorkersTest, RestoredBeforeTheDecisionItIsMadeWhenTheLastComes) {
  LogicalWorkers before(4, 2);
  before.Join("worker-1", {});
  LogicalWorkers after(4, 2);
  after.Restore(before.Save(), MonotonicTime());
  EXPECT_FALSE(after.decided());
  after.Join("worker-0", {});
  EXPECT_EQ(after.RanksOf("worker-1"), (Ranks{0, 1})) << "it was there first";
}

}  // namespace
}  // namespace pawl
