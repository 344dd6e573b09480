#include "worker/data/feature_key.h"

#include <cstdint>
#include <limits>
#include <set>

#include "gtest/gtest.h"

namespace pawl {
namespace {

// Never change these: every parameter stored under the old keys would be lost.
TEST(FeatureKeyTest, ValuesArePinned) {
  const FeatureKey origin("origin");
  const FeatureKey hour("hour");
  EXPECT_EQ(origin.OfCategory("LAS"), 6108944475798487922u);
  EXPECT_EQ(origin.OfCategory(""), 250766445698304742u);
  EXPECT_EQ(FeatureKey("distance").OfBucket(-21), 18413934665689535962u);
  EXPECT_EQ(FeatureKey("origin_hour").OfCross({origin.OfCategory("LAS"), hour.OfCategory("0")}),
            6774034664873490218u);
}

TEST(FeatureKeyTest, KeysDifferByFeatureAndCategory) {
  std::set<uint64_t> keys;
  for (const char* feature : {"a", "b", "ab", ""}) {
    for (const char* category : {"a", "b", "ab", ""})
      keys.insert(FeatureKey(feature).OfCategory(category));
  }
  EXPECT_EQ(keys.size(), 16u);
}

TEST(FeatureKeyTest, BucketsAreHashedAsDecimalNumbers) {
  const FeatureKey key("x");
  EXPECT_EQ(key.OfBucket(12), key.OfCategory("12"));
  EXPECT_EQ(key.OfBucket(std::numeric_limits<int64_t>::min()),
            key.OfCategory("-9223372036854775808"));
  EXPECT_EQ(
      key.OfHashed(std::numeric_limits<uint64_t>::max(), std::numeric_limits<uint64_t>::max()),
      key.OfCategory("0"));
  EXPECT_EQ(key.OfHashed(23, 10), key.OfCategory("3"));
}

TEST(FeatureKeyTest, CrossesDependOnOrder) {
  const FeatureKey key("x");
  EXPECT_NE(key.OfCross({1, 2}), key.OfCross({2, 1}));
}

}  // namespace
}  // namespace pawl
