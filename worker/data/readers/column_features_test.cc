#include "worker/data/readers/column_features.h"

#include <google/protobuf/text_format.h>

#include <cmath>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ColumnFeatures Features(const std::string& column) {
  RecordSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "columns { name: 'x' " + column + " } columns { name: 'y' label {} } " +
          "columns { name: 'z' categorical {} }",
      &spec));
  auto features = ColumnFeatures::Create(spec);
  EXPECT_TRUE(features.ok()) << features.status();
  return *std::move(features);
}

uint64_t Key(const ColumnFeatures& features, const ColumnValue& value) {
  uint64_t key = 0;
  const absl::Status status = features.KeyOf(features.features()[0], value, &key);
  EXPECT_TRUE(status.ok()) << status;
  return key;
}

TEST(ColumnFeaturesTest, SameValueHasTheSameKeyInEachType) {
  const ColumnFeatures features = Features("hashed { buckets: 1000000 }");
  const FeatureKey x("x");
  const auto of = [&x](absl::string_view text) { return x.OfHashed(x.OfCategory(text), 1000000); };
  EXPECT_EQ(Key(features, ColumnValue::Text("5")), of("5"));
  EXPECT_EQ(Key(features, ColumnValue::Integer(5)), of("5"));
  EXPECT_EQ(Key(features, ColumnValue::Float32(5)), of("5"));
  EXPECT_EQ(Key(features, ColumnValue::Float64(5)), of("5"));
  EXPECT_EQ(Key(features, ColumnValue::Float32(-0.0f)), of("0"));
  EXPECT_EQ(Key(features, ColumnValue::Float32(0.1f)), of("0.1"));
  EXPECT_EQ(Key(features, ColumnValue::Float64(0.1)), of("0.1"));
  EXPECT_EQ(Key(features, ColumnValue::Float32(1e6f)), of("1000000"));
  EXPECT_EQ(Key(features, ColumnValue::Float64(-123456789012.0)), of("-123456789012"));
  EXPECT_EQ(Key(features, ColumnValue::Integer(std::numeric_limits<int64_t>::min())),
            of("-9223372036854775808"));
  EXPECT_EQ(Key(features, ColumnValue()), of(""));
  uint64_t key = 0;
  EXPECT_THAT(features.KeyOf(features.features()[0], ColumnValue::Float32(NAN), &key).message(),
              HasSubstr("column 'x': nan is not a finite number"));
}

TEST(ColumnFeaturesTest, NumbersAndBucketsTakeEachType) {
  const ColumnFeatures numeric = Features("numeric { mean: 1 scale: 2 missing: 7 }");
  const auto number = [&numeric](const ColumnValue& value) {
    float result = 0;
    const absl::Status status = numeric.NumberOf(numeric.features()[0], value, &result);
    EXPECT_TRUE(status.ok()) << status;
    return result;
  };
  for (const ColumnValue& value : {ColumnValue::Text("4"), ColumnValue::Integer(4),
                                   ColumnValue::Float32(4), ColumnValue::Float64(4)}) {
    EXPECT_EQ(number(value), 1.5f);
  }
  EXPECT_EQ(number(ColumnValue()), 3);
  EXPECT_EQ(number(ColumnValue::Text("")), 3);
  float result = 0;
  EXPECT_THAT(
      numeric.NumberOf(numeric.features()[0], ColumnValue::Float64(kInfinity), &result).message(),
      HasSubstr("inf is not a finite number"));
  EXPECT_THAT(
      numeric.NumberOf(numeric.features()[0], ColumnValue::Float64(1e300), &result).message(),
      HasSubstr("1e+300 is out of float32's range"));
  const ColumnFeatures buckets = Features("bucketized { width: 10 missing: 35 }");
  EXPECT_EQ(Key(buckets, ColumnValue::Integer(-1)), FeatureKey("x").OfBucket(-1));
  EXPECT_EQ(Key(buckets, ColumnValue::Float32(20.5f)), FeatureKey("x").OfBucket(2));
  EXPECT_EQ(Key(buckets, ColumnValue()), FeatureKey("x").OfBucket(3));
}

TEST(ColumnFeaturesTest, MissingCategoryStandsForAnEmptyField) {
  const ColumnFeatures features = Features("categorical { missing: 'unknown' }");
  EXPECT_EQ(Key(features, ColumnValue()), FeatureKey("x").OfCategory("unknown"));
  EXPECT_EQ(Key(features, ColumnValue::Text("")), FeatureKey("x").OfCategory("unknown"));
  EXPECT_EQ(Key(features, ColumnValue::Text("unknown")), FeatureKey("x").OfCategory("unknown"));
}

TEST(ColumnFeaturesTest, WeightsAreNotNegative) {
  const ColumnFeatures features = Features("weight {}");
  float weight = 0;
  EXPECT_TRUE(features.NumberOf(features.features()[0], ColumnValue::Float32(0.5f), &weight).ok());
  EXPECT_EQ(weight, 0.5f);
  EXPECT_THAT(
      features.NumberOf(features.features()[0], ColumnValue::Integer(-2), &weight).message(),
      HasSubstr("column 'x': -2 is no weight"));
  EXPECT_THAT(features.NumberOf(features.features()[0], ColumnValue(), &weight).message(),
              HasSubstr("column 'x': the sample has no value"));
}

}  // namespace
}  // namespace pawl
