#include "server/shard/term_history.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TermHistory Of(const std::vector<TermRun>& runs) {
  TermHistory history;
  for (const TermRun& run : runs) EXPECT_TRUE(history.Begin(run.first_index, run.term));
  return history;
}

TEST(TermHistoryTest, EntryHasTheTermOfItsRun) {
  const TermHistory history = Of({{3, 5}, {7, 9}});
  EXPECT_EQ(history.TermOf(2), 0u) << "unknown";
  EXPECT_EQ(history.TermOf(3), 5u);
  EXPECT_EQ(history.TermOf(6), 5u);
  EXPECT_EQ(history.TermOf(7), 9u);
  EXPECT_EQ(history.TermOf(1000), 9u);
  EXPECT_EQ(TermHistory().TermOf(1), 0u);
}

TEST(TermHistoryTest, EmptyRunIsReplaced) {
  EXPECT_EQ(Of({{1, 2}, {4, 3}, {4, 6}}).runs(), (std::vector<TermRun>{{1, 2}, {4, 6}}));
  EXPECT_EQ(Of({{1, 2}, {4, 2}}).runs(), (std::vector<TermRun>{{1, 2}}))
      << "the same term continues";
}

// A new primary answered only duplicates, and an earlier primary's entry replaces its term.
TEST(TermHistoryTest, EmptyRunIsReplacedByALowerTerm) {
  EXPECT_EQ(Of({{1, 2}, {4, 7}, {4, 5}}).runs(), (std::vector<TermRun>{{1, 2}, {4, 5}}));
  EXPECT_EQ(Of({{1, 2}, {4, 7}, {4, 2}}).runs(), (std::vector<TermRun>{{1, 2}}));
  TermHistory history = Of({{1, 2}, {4, 7}});
  EXPECT_FALSE(history.Begin(4, 1));
  EXPECT_EQ(history.runs(), (std::vector<TermRun>{{1, 2}, {4, 7}}));
}

TEST(TermHistoryTest, TermsAndIndicesOnlyGrow) {
  TermHistory history = Of({{1, 2}, {4, 6}});
  EXPECT_FALSE(history.Begin(5, 5));
  EXPECT_FALSE(history.Begin(3, 7));
  EXPECT_FALSE(history.Begin(3, 6));
  EXPECT_FALSE(history.Begin(5, 0));
  EXPECT_EQ(history.runs(), (std::vector<TermRun>{{1, 2}, {4, 6}}));
}

TEST(TermHistoryTest, OldestRunsAreDropped) {
  TermHistory history;
  for (uint64_t run = 1; run <= kMaxTermRuns + 1; ++run) ASSERT_TRUE(history.Begin(10 * run, run));
  EXPECT_EQ(history.runs().size(), kMaxTermRuns);
  EXPECT_EQ(history.TermOf(19), 0u);
  EXPECT_EQ(history.TermOf(20), 2u);
}

TEST(LastSharedIndexTest, IsTheEndOfTheLastCommonTerm) {
  const TermHistory primary = Of({{1, 1}, {10, 3}, {20, 7}});
  EXPECT_EQ(LastSharedIndex(primary, 25, Of({{1, 1}, {10, 3}}), 15), 15u) << "it lacks the rest";
  EXPECT_EQ(LastSharedIndex(primary, 25, Of({{1, 1}, {10, 3}}), 22), 19u)
      << "it is ahead in an earlier term";
  EXPECT_EQ(LastSharedIndex(primary, 25, Of({{1, 1}, {10, 3}, {15, 5}}), 30), 14u)
      << "another primary wrote the rest";
  EXPECT_EQ(LastSharedIndex(primary, 25, Of({{1, 1}, {8, 5}}), 30), 7u);
  EXPECT_EQ(LastSharedIndex(primary, 25, Of({{1, 1}, {10, 3}, {20, 7}}), 25), 25u);
  EXPECT_EQ(LastSharedIndex(primary, 19, Of({{1, 1}, {10, 3}}), 15), 15u)
      << "its own last run has no entries";
}

TEST(LastSharedIndexTest, NothingIsSharedWithoutACommonTerm) {
  EXPECT_EQ(LastSharedIndex(Of({{1, 1}}), 5, Of({{1, 2}}), 5), 0u);
  EXPECT_EQ(LastSharedIndex(TermHistory(), 5, TermHistory(), 5), 0u) << "both terms are unknown";
  EXPECT_EQ(LastSharedIndex(TermHistory(), 0, TermHistory(), 0), 0u);
  // It ends before the first entry whose term the other log knows.
  EXPECT_EQ(LastSharedIndex(Of({{6, 2}}), 9, Of({{1, 2}}), 5), 0u);
}

// Compares any two logs written by primaries with a comparison of all entries.
TEST(LastSharedIndexTest, AgreesWithComparingAllEntries) {
  std::mt19937_64 random(5);
  const auto below = [&](uint64_t bound) { return random() % bound; };
  for (int round = 0; round < 20000; ++round) {
    // In each term one of three replicas is the primary and appends; the others copy a prefix of
    // its log.
    std::vector<std::vector<uint64_t>> logs(3);
    for (uint64_t term = 1; term <= 6; ++term) {
      const size_t primary = below(3);
      for (uint64_t entries = below(4); entries > 0; --entries) logs[primary].push_back(term);
      for (size_t other = 0; other < 3; ++other) {
        if (other == primary || below(2) == 0) continue;
        size_t shared = 0;
        while (shared < std::min(logs[primary].size(), logs[other].size()) &&
               logs[primary][shared] == logs[other][shared]) {
          ++shared;
        }
        logs[other].resize(shared);
        while (logs[other].size() < logs[primary].size() && below(5) > 0) {
          logs[other].push_back(logs[primary][logs[other].size()]);
        }
      }
    }
    const auto history_of = [](const std::vector<uint64_t>& log) {
      TermHistory history;
      for (size_t i = 0; i < log.size(); ++i) EXPECT_TRUE(history.Begin(i + 1, log[i]));
      return history;
    };
    uint64_t expected = 0;
    for (size_t i = 0; i < std::min(logs[0].size(), logs[1].size()); ++i) {
      if (logs[0][i] == logs[1][i]) expected = i + 1;
    }
    ASSERT_EQ(
        LastSharedIndex(history_of(logs[0]), logs[0].size(), history_of(logs[1]), logs[1].size()),
        expected);
  }
}

}  // namespace
}  // namespace pawl
