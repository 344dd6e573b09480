#include "scheduler/membership/rank_placement.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using Hosts = std::vector<uint32_t>;
constexpr uint32_t kFree = RankPlacementInput::kFree;
constexpr uint32_t kFixed = RankPlacementInput::kFixed;

Hosts Place(uint32_t workers, Hosts hosts, bool rebalance) {
  return PlaceRanks({workers, std::move(hosts), rebalance});
}

TEST(RankPlacementTest, FreshRanksAreSharedInRuns) {
  EXPECT_EQ(Place(2, Hosts(5, kFree), false), (Hosts{0, 0, 0, 1, 1}));
  EXPECT_EQ(Place(3, Hosts(2, kFree), false), (Hosts{0, 1}))
      << "the first workers get them; the others are idle";
}

TEST(RankPlacementTest, HostedRankStaysWithoutRebalance) {
  EXPECT_EQ(Place(2, {0, 0, 0, 0}, false), (Hosts{0, 0, 0, 0}));
  EXPECT_EQ(Place(2, {0, 0, 0, 0}, true), (Hosts{0, 0, 1, 1}));
}

TEST(RankPlacementTest, FreeRanksGoToTheWorkersWithTheFewest) {
  EXPECT_EQ(Place(2, {0, 0, kFree, kFree, 1}, false), (Hosts{0, 0, 0, 1, 1}));
  EXPECT_EQ(Place(2, {0, 0, 0, kFree, kFree}, false), (Hosts{0, 0, 0, 1, 1}));
}

TEST(RankPlacementTest, FixedRanksStay) {
  EXPECT_EQ(Place(1, {kFixed, kFree, kFixed}, true), (Hosts{kFixed, 0, kFixed}));
  EXPECT_EQ(Place(0, {kFixed, kFree}, true), (Hosts{kFixed, kFree}));
}

TEST(RankPlacementTest, JoinerTakesOnlyItsShare) {
  EXPECT_EQ(Place(4, {0, 0, 0, 1, 1, 1, 2, 2}, true), (Hosts{0, 0, 3, 1, 1, 3, 2, 2}));
}

// Workers join and leave and ranks finish at random; checks every placement against its contract.
class RandomCluster {
 public:
  explicit RandomCluster(uint32_t seed) : random_(seed) {
    hosts_.assign(1 + Below(40), kFree);
    workers_ = 1 + Below(8);
  }

  void Step() {
    const uint32_t dice = Below(10);
    if (dice < 3) {
      ++workers_;
    } else if (dice < 6 && workers_ > 0) {
      Remove(Below(workers_));
    } else if (dice < 7) {
      hosts_[Below(static_cast<uint32_t>(hosts_.size()))] = kFixed;
    } else if (dice < 8) {
      hosts_[Below(static_cast<uint32_t>(hosts_.size()))] = kFree;
    }
    const bool rebalance = Below(2) == 0;
    const Hosts placed = Place(workers_, hosts_, rebalance);
    SCOPED_TRACE(absl::StrCat(workers_, " workers, ", absl::StrJoin(hosts_, " "),
                              rebalance ? " rebalanced" : "", " -> ", absl::StrJoin(placed, " ")));
    Judge(placed, rebalance);
    ASSERT_EQ(placed, Place(workers_, hosts_, rebalance));
    ASSERT_EQ(placed, Place(workers_, placed, rebalance)) << "the placement is not stable";
    hosts_ = placed;
  }

 private:
  uint32_t Below(uint32_t bound) {
    return std::uniform_int_distribution<uint32_t>(0, bound - 1)(random_);
  }

  void Remove(uint32_t gone) {
    --workers_;
    for (uint32_t& host : hosts_) {
      if (host >= kFixed) continue;
      host = host == gone ? kFree : host > gone ? host - 1 : host;
    }
  }

  Hosts Counts(const Hosts& hosts) const {
    Hosts counts(workers_);
    for (const uint32_t host : hosts) {
      if (host < workers_) ++counts[host];
    }
    return counts;
  }

  void Judge(const Hosts& placed, bool rebalance) const {
    ASSERT_EQ(placed.size(), hosts_.size());
    uint32_t moved = 0;
    for (size_t rank = 0; rank < placed.size(); ++rank) {
      if (hosts_[rank] == kFixed || workers_ == 0) {
        ASSERT_EQ(placed[rank], hosts_[rank]);
        continue;
      }
      ASSERT_LT(placed[rank], workers_);
      moved += hosts_[rank] != kFree && hosts_[rank] != placed[rank];
    }
    if (workers_ == 0) return;
    const Hosts before = Counts(hosts_);
    const Hosts after = Counts(placed);
    const auto [min, max] = std::minmax_element(after.begin(), after.end());
    if (!rebalance) {
      ASSERT_EQ(moved, 0u);
      // A worker that got a rank has at most one more than the workers with the fewest.
      for (uint32_t worker = 0; worker < workers_; ++worker) {
        if (after[worker] > before[worker]) {
          ASSERT_LE(after[worker], *min + 1);
        }
      }
      return;
    }
    ASSERT_LE(*max, *min + 1);
    // No balanced placement keeps more ranks in place.
    uint32_t total = 0;
    for (const uint32_t count : after) total += count;
    Hosts sorted = before;
    std::sort(sorted.rbegin(), sorted.rend());
    uint32_t needed = 0;
    for (uint32_t i = 0; i < workers_; ++i) {
      const uint32_t share = total / workers_ + (i < total % workers_);
      needed += sorted[i] > share ? sorted[i] - share : 0;
    }
    ASSERT_EQ(moved, needed);
  }

  std::mt19937 random_;
  uint32_t workers_;
  Hosts hosts_;
};

TEST(RankPlacementTest, RandomPlacementsAreBalancedWithTheFewestMoves) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomCluster cluster(seed);
    for (int step = 0; step < 30; ++step) {
      cluster.Step();
      ASSERT_FALSE(testing::Test::HasFatalFailure());
    }
  }
}

}  // namespace
}  // namespace pawl
