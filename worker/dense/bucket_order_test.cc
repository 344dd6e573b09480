#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "worker/dense/dense_layout.h"

namespace pawl {
namespace {

// Returns all buckets of a step, each started when it is returned. The last value of `ready_from`
// is used for the rest.
std::vector<size_t> Order(BucketOrder order, const std::vector<size_t>& ready_from) {
  std::vector<size_t> started;
  while (const std::optional<size_t> next =
             order.Next(ready_from[std::min(started.size(), ready_from.size() - 1)])) {
    order.Start(*next);
    started.push_back(*next);
  }
  return started;
}

TEST(BucketOrderTest, ReadyBucketsGoInTheOrderOfNeed) {
  BucketOrder order;
  order.Begin({true, true, true, true});
  EXPECT_EQ(Order(order, {0}), (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(Order(order, {2, 2, 1, 0}), (std::vector<size_t>{2, 3, 1, 0}));
}

TEST(BucketOrderTest, WithoutReadyBucketsTheFirstToBecomeReadyGoes) {
  BucketOrder order;
  order.Begin({true, true, true, true});
  EXPECT_EQ(Order(order, {4}), (std::vector<size_t>{3, 2, 1, 0}));
  // The second is not ready yet when the first starts; the buckets with the longest possible wait
  // come last.
  EXPECT_EQ(Order(order, {4, 3, 0}), (std::vector<size_t>{3, 2, 0, 1}));
}

TEST(BucketOrderTest, BucketsFinishedByAFormerGroupAreSkipped) {
  BucketOrder order;
  order.Begin({true, false, true, false});
  EXPECT_FALSE(order.IsLeft(1));
  EXPECT_EQ(Order(order, {0}), (std::vector<size_t>{0, 2}));
  EXPECT_EQ(Order(order, {4}), (std::vector<size_t>{2, 0}));
  order.Begin({false, false});
  EXPECT_EQ(order.Next(0), std::nullopt);
}

}  // namespace
}  // namespace pawl
