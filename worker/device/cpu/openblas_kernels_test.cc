#include "worker/device/cpu/openblas_kernels.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr VectorFeatures kNone;
constexpr VectorFeatures kAvx2{.avx2 = true};
constexpr VectorFeatures kAvx512{.avx2 = true, .avx512 = true};

TEST(OpenBlasKernelsTest, UnknownModelGetsTheKernelsOfItsFeatures) {
  EXPECT_EQ(BetterCoreType("Prescott", kAvx512), "SKYLAKEX");
  EXPECT_EQ(BetterCoreType("Barcelona", kAvx512), "SKYLAKEX");
  EXPECT_EQ(BetterCoreType("Zen", kAvx512), "SKYLAKEX");
  EXPECT_EQ(BetterCoreType("Prescott", kAvx2), "HASWELL");
  EXPECT_EQ(BetterCoreType("Sandybridge", kAvx2), "HASWELL");
}

TEST(OpenBlasKernelsTest, SuitableKernelsAreKept) {
  EXPECT_EQ(BetterCoreType("Prescott", kNone), "");
  EXPECT_EQ(BetterCoreType("Sandybridge", kNone), "");
  for (const char* name : {"Haswell", "Zen", "Excavator"})
    EXPECT_EQ(BetterCoreType(name, kAvx2), "") << name;
  for (const char* name : {"SkylakeX", "Cooperlake", "SapphireRapids", "NewerThanThisTest"}) {
    EXPECT_EQ(BetterCoreType(name, kAvx512), "") << name;
  }
}

}  // namespace
}  // namespace pawl
