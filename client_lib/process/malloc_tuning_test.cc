#include "client_lib/process/malloc_tuning.h"

#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr char kOnRequest[] = "always [madvise] never";

TEST(MallocTuningTest, HugePagesAreRequestedBesideOtherTunables) {
  EXPECT_EQ(TunablesWithHugePages(kOnRequest, ""), "glibc.malloc.hugetlb=1");
  EXPECT_EQ(TunablesWithHugePages(kOnRequest, "glibc.malloc.arena_max=2"),
            "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1");
}

TEST(MallocTuningTest, DecisionOfTheUserIsKept) {
  EXPECT_EQ(TunablesWithHugePages(kOnRequest, "glibc.malloc.hugetlb=0"), std::nullopt);
  EXPECT_EQ(TunablesWithHugePages(kOnRequest, "glibc.malloc.hugetlb=1"), std::nullopt);
}

TEST(MallocTuningTest, NothingIsRequestedFromAKernelThatDoesNotListen) {
  EXPECT_EQ(TunablesWithHugePages("[always] madvise never", ""), std::nullopt);
  EXPECT_EQ(TunablesWithHugePages("always madvise [never]", ""), std::nullopt);
  EXPECT_EQ(TunablesWithHugePages("", ""), std::nullopt);
}

}  // namespace
}  // namespace pawl
