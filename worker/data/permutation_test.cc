#include "worker/data/permutation.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

std::vector<uint64_t> All(const Permutation& permutation) {
  std::vector<uint64_t> images;
  for (uint64_t i = 0; i < permutation.size(); ++i) images.push_back(permutation[i]);
  return images;
}

TEST(PermutationTest, IsABijectionForEverySize) {
  std::vector<uint64_t> sizes;
  for (uint64_t size = 1; size <= 300; ++size) sizes.push_back(size);
  for (const uint64_t size : {1023, 1024, 1025, 65535, 65536, 65537, 99999, 502228})
    sizes.push_back(size);
  for (const uint64_t size : sizes) {
    const Permutation permutation(size, 7, size % 5);
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t image = permutation[i];
      ASSERT_LT(image, size) << "size " << size << ", position " << i;
      ASSERT_FALSE(seen[image]) << "size " << size << ", position " << i;
      seen[image] = true;
    }
  }
}

TEST(PermutationTest, StaysInRangeForHugeSizes) {
  for (const uint64_t size :
       {(uint64_t{1} << 32) - 1, (uint64_t{1} << 32) + 1, uint64_t{1} << 62}) {
    const Permutation permutation(size, 1, 2);
    for (uint64_t i = 0; i < 1000; ++i) {
      EXPECT_LT(permutation[i], size);
      EXPECT_LT(permutation[size - 1 - i], size);
    }
  }
}

TEST(PermutationTest, DependsOnSeedAndStream) {
  const std::vector<uint64_t> base = All(Permutation(1000, 1, 1));
  EXPECT_EQ(base, All(Permutation(1000, 1, 1)));
  EXPECT_NE(base, All(Permutation(1000, 2, 1)));
  EXPECT_NE(base, All(Permutation(1000, 1, 2)));
  EXPECT_NE(base, All(Permutation(1000, uint64_t{1} << 32 | 1, 1)));
}

// Never change these: the results of every job would change.
TEST(PermutationTest, ValuesArePinned) {
  EXPECT_EQ(All(Permutation(10, 7, 0)), (std::vector<uint64_t>{1, 4, 7, 9, 5, 3, 2, 0, 8, 6}));
  const Permutation flights(2497772, 7, 3);
  EXPECT_EQ(flights[0], 1404663u);
  EXPECT_EQ(flights[1], 1047267u);
  EXPECT_EQ(flights[2497771], 1129840u);
}

// Every image is equally likely at every position, and so is every pair of images at two adjacent
// positions: chi-square over many streams.
TEST(PermutationTest, ImagesAreEvenlySpread) {
  for (const uint64_t size : {2, 3, 7, 10, 16, 33}) {
    constexpr uint64_t kStreams = 20000;
    std::vector<uint64_t> single(size * size);
    std::vector<uint64_t> pair(size * size);
    for (uint64_t stream = 0; stream < kStreams; ++stream) {
      const Permutation permutation(size, 99, stream);
      for (uint64_t i = 0; i < size; ++i) ++single[i * size + permutation[i]];
      ++pair[permutation[0] * size + permutation[1]];
    }
    double chi_square = 0;
    const double expected = static_cast<double>(kStreams) / static_cast<double>(size);
    for (const uint64_t count : single)
      chi_square += (count - expected) * (count - expected) / expected;
    // (size - 1)^2 degrees of freedom; the standard deviation of the statistic is about sqrt(2 *
    // degrees).
    double degrees = static_cast<double>((size - 1) * (size - 1));
    EXPECT_LT(chi_square, degrees + 5 * std::sqrt(2 * degrees)) << "size " << size;

    chi_square = 0;
    const double expected_pair =
        static_cast<double>(kStreams) / static_cast<double>(size * (size - 1));
    for (uint64_t i = 0; i < size * size; ++i) {
      if (i / size == i % size) continue;
      chi_square += (pair[i] - expected_pair) * (pair[i] - expected_pair) / expected_pair;
    }
    degrees = static_cast<double>(size * (size - 1) - 1);
    EXPECT_LT(chi_square, degrees + 5 * std::sqrt(2 * degrees)) << "size " << size;
  }
}

TEST(PermutationTest, FillEqualsSinglePositions) {
  for (const uint64_t size : {1, 2, 7, 8, 9, 1000, 12345}) {
    const Permutation permutation(size, 5, 3);
    for (const uint64_t first : {uint64_t{0}, size / 3, size - 1}) {
      std::vector<uint64_t> filled(size - first), expected;
      permutation.Fill(first, filled.size(), filled.data());
      for (uint64_t i = first; i < size; ++i) expected.push_back(permutation[i]);
      EXPECT_EQ(filled, expected) << size << " from " << first;
    }
  }
}

}  // namespace
}  // namespace pawl
