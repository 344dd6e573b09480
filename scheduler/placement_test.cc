#include "scheduler/placement.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(PlacementTest, EveryPartitionHasOneServerAndLoadsDifferByAtMostOne) {
  for (uint32_t servers = 1; servers <= 17; ++servers) {
    const std::vector<uint32_t> primary = PlacePartitions(servers, 256);
    ASSERT_EQ(primary.size(), 256u);
    std::vector<int> load(servers);
    for (const uint32_t server : primary) ++load.at(server);
    EXPECT_LE(*std::max_element(load.begin(), load.end()) - *std::min_element(load.begin(), load.end()), 1);
  }
}

TEST(PlacementTest, SameInputGivesTheSamePlacement) { EXPECT_EQ(PlacePartitions(3, 256), PlacePartitions(3, 256)); }

TEST(PlacementTest, MoreServersThanPartitionsLeavesSomeEmpty) {
  EXPECT_EQ(PlacePartitions(5, 2), (std::vector<uint32_t>{0, 1}));
}

}  // namespace
}  // namespace pawl
