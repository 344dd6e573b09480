#include "client_lib/base/random_number.h"

#include <set>
#include <thread>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(RandomNumber, NoneComesTwiceOnAnyThread) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(seen.insert(RandomNumber()).second);
  std::thread([&] {
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(seen.insert(RandomNumber()).second);
  }).join();
}

TEST(RandomNumber, ComesFromAScriptWhileThereIsOneOnThisThreadAlone) {
  uint64_t next = 0;
  {
    const ScopedRandomNumbers outer([&] { return ++next; });
    EXPECT_EQ(RandomNumber(), 1u);
    {
      const ScopedRandomNumbers inner([] { return uint64_t{77}; });
      EXPECT_EQ(RandomNumber(), 77u);
    }
    EXPECT_EQ(RandomNumber(), 2u);
    std::thread([] { EXPECT_GT(RandomNumber(), 1000u); }).join();
    EXPECT_EQ(RandomNumber(), 3u);
  }
  EXPECT_GT(RandomNumber(), 1000u);
}

}  // namespace
}  // namespace pawl
