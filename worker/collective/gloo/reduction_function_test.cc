#include "worker/collective/gloo/reduction_function.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(ReductionFunctionTest, IntegersWrapAroundAndKeepTheirSigns) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const std::vector<int64_t> a = {kMost, kLeast, -5, 16}, b = {2, -1, 3, 16};
  std::vector<int64_t> out(4);
  FindReductionFunction(CollectiveType::kInt64, Reduction::kSum)(out.data(), a.data(), b.data(), 4);
  EXPECT_EQ(out, (std::vector<int64_t>{kLeast + 1, kMost, -2, 32}));
  FindReductionFunction(CollectiveType::kInt64, Reduction::kMin)(out.data(), a.data(), b.data(), 4);
  EXPECT_EQ(out, (std::vector<int64_t>{2, kLeast, -5, 16}));
}

TEST(ReductionFunctionTest, OutputMayBeEitherInput) {
  std::vector<float> a(67, 2), b(67, 3);
  const ReductionFunction sum = FindReductionFunction(CollectiveType::kFloat32, Reduction::kSum);
  sum(a.data(), a.data(), b.data(), a.size());
  EXPECT_EQ(a, std::vector<float>(67, 5));
  sum(b.data(), a.data(), b.data(), a.size());
  EXPECT_EQ(b, std::vector<float>(67, 8));
}

TEST(ReductionFunctionTest, UnknownTypeOrReductionHasNoFunction) {
  EXPECT_EQ(FindReductionFunction(static_cast<CollectiveType>(99), Reduction::kSum), nullptr);
  EXPECT_EQ(FindReductionFunction(CollectiveType::kFloat32, static_cast<Reduction>(99)), nullptr);
}

}  // namespace
}  // namespace pawl
