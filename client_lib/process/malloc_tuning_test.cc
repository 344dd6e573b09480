#include "client_lib/process/malloc_tuning.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

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

// Memory of this process, in pages of 4 KiB.
long ResidentPages() {
  std::ifstream file("/proc/self/statm");
  long all = 0, resident = 0;
  file >> all >> resident;
  return resident;
}

// A server drops partitions that it allocated on several threads.
TEST(MallocTuningTest, MemoryOfThreadsIsReturnedWhenAllOfItIsFree) {
  constexpr size_t kBlocks = 32768, kBlockBytes = 16448;
  constexpr long kPages = kBlocks * kBlockBytes / 4096;
  // Only KeepFreedMemory reads it now.
  setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 1);
  KeepFreedMemory();
  const long before = ResidentPages();
  for (int round = 0; round < 3; ++round) {
    std::thread([&] {
      std::vector<void*> blocks;
      for (size_t i = 0; i < kBlocks; ++i) {
        blocks.push_back(std::aligned_alloc(64, kBlockBytes));
        std::memset(blocks.back(), 1, kBlockBytes);
      }
      EXPECT_GT(ResidentPages() - before, kPages * 9 / 10);
      for (void* const block : blocks) std::free(block);
    }).join();
    EXPECT_LT(ResidentPages() - before, kPages * 2 / 3);
  }
}

}  // namespace
}  // namespace pawl
