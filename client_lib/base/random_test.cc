#include "client_lib/base/random.h"

#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "gtest/gtest.h"

namespace pawl {
namespace {

TEST(RandomNumber, IsUniqueAcrossThreads) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(seen.insert(RandomNumber()).second);
  std::thread([&] {
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(seen.insert(RandomNumber()).second);
  }).join();
}

TEST(RandomNumber, DiffersAmongForkedChildren) {
  RandomNumber();
  std::set<uint64_t> seen;
  for (int i = 0; i < 2; ++i) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const uint64_t number = RandomNumber();
      _exit(write(ends[1], &number, sizeof(number)) == sizeof(number) ? 0 : 1);
    }
    uint64_t number;
    EXPECT_EQ(read(ends[0], &number, sizeof(number)), ssize_t{sizeof(number)});
    EXPECT_TRUE(seen.insert(number).second);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    close(ends[0]);
    close(ends[1]);
  }
}

TEST(RandomNumber, ScopedSourceAppliesToItsThreadOnly) {
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

// The known answers that come with the authors' Random123 library for philox4x32-10.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

}  // namespace
}  // namespace pawl
