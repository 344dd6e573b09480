#include "client_lib/security/admission/token_bucket.h"

#include <chrono>

#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr MonotonicTime kBegin{seconds(100)};

TEST(TokenBucketTest, StartsFullAndIsRefilledUpToItsBurst) {
  TokenBucket bucket(10, 40, kBegin);
  EXPECT_TRUE(bucket.IsFull(kBegin));
  bucket.Take(30, kBegin);
  EXPECT_EQ(bucket.TokensAt(kBegin), 10);
  EXPECT_FALSE(bucket.IsFull(kBegin));
  EXPECT_EQ(bucket.TokensAt(kBegin + seconds(2)), 30);
  EXPECT_EQ(bucket.TokensAt(kBegin + seconds(10)), 40);
  EXPECT_TRUE(bucket.IsFull(kBegin + seconds(10)));
}

TEST(TokenBucketTest, HasATokenInTime) {
  TokenBucket bucket(10, 40, kBegin);
  EXPECT_EQ(bucket.HasTokenAt(kBegin), kBegin);
  bucket.Take(40, kBegin);
  EXPECT_FALSE(bucket.HasToken(kBegin));
  const MonotonicTime at = bucket.HasTokenAt(kBegin);
  EXPECT_FALSE(bucket.HasToken(at - milliseconds(2)));
  EXPECT_TRUE(bucket.HasToken(at));
  EXPECT_EQ(std::chrono::round<milliseconds>(at - kBegin), milliseconds(101));
}

TEST(TokenBucketTest, DebtIsBounded) {
  TokenBucket bucket(10, 40, kBegin);
  bucket.Take(100, kBegin);
  EXPECT_EQ(bucket.TokensAt(kBegin), 0);
  bucket.Take(100, kBegin, 5);
  EXPECT_EQ(bucket.TokensAt(kBegin), -50);
  bucket.Take(1, kBegin, 5);
  EXPECT_EQ(bucket.TokensAt(kBegin), -50);
  EXPECT_EQ(bucket.TokensAt(kBegin + seconds(6)), 10);
}

TEST(TokenBucketTest, EarlierTimeRefillsNothing) {
  TokenBucket bucket(10, 40, kBegin);
  bucket.Take(40, kBegin);
  EXPECT_EQ(bucket.TokensAt(kBegin - seconds(1)), 0);
  EXPECT_EQ(bucket.TokensAt(kBegin + seconds(1)), 10);
}

}  // namespace
}  // namespace pawl
