#include "client_lib/daemon/floating_point_mode.h"

#include <cfenv>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(FloatingPointModeTest, FreshProcessPasses) { EXPECT_TRUE(CheckFloatingPointMode().ok()); }

TEST(FloatingPointModeTest, OtherRoundingIsRefused) {
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const absl::Status status = CheckFloatingPointMode();
  ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

#if defined(__SSE2__)
TEST(FloatingPointModeTest, FlushingOfSubnormalsIsRefused) {
  constexpr unsigned kFlushToZero = 0x8000, kSubnormalsAreZero = 0x0040;
  for (const unsigned bit : {kFlushToZero, kSubnormalsAreZero}) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | bit);
    const absl::Status status = CheckFloatingPointMode();
    _mm_setcsr(before);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << bit << ": " << status;
  }
}
#endif

}  // namespace
}  // namespace pawl
