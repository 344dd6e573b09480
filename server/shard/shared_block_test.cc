#include "server/shard/shared_block.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

SharedBlock Filled(size_t floats, float value) {
  SharedBlock block(floats);
  float* data = block.Mutable();
  for (size_t i = 0; i < floats; ++i) data[i] = value;
  return block;
}

TEST(SharedBlock, BeginsOnACacheLine) {
  for (const size_t floats : {size_t{0}, size_t{1}, size_t{17}, size_t{65536}}) {
    SharedBlock block(floats);
    EXPECT_EQ(block.size(), floats);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data()) % 64, 0u);
  }
}

TEST(SharedBlock, LoanReadsTheSameMemory) {
  const SharedBlock block = Filled(100, 1);
  const BlockLoan loan = block.Lend();
  EXPECT_EQ(loan.data(), block.data());
  EXPECT_EQ(loan.size(), 100u);
}

TEST(SharedBlock, WriteDoesNotChangeALoan) {
  SharedBlock block = Filled(100, 1);
  const BlockLoan first = block.Lend();
  block.Mutable()[99] = 2;
  const BlockLoan second = block.Lend();
  block.Mutable()[99] = 3;
  EXPECT_EQ(first.data()[99], 1);
  EXPECT_EQ(second.data()[99], 2);
  EXPECT_EQ(block.data()[99], 3);
  EXPECT_EQ(block.data()[0], 1);
}

TEST(SharedBlock, CopiesOnlyWhileLent) {
  SharedBlock block = Filled(100, 1);
  const float* const before = block.data();
  { const BlockLoan over = block.Lend(); }
  EXPECT_EQ(block.Mutable(), before);
  const BlockLoan loan = block.Lend();
  float* const copy = block.Mutable();
  EXPECT_NE(copy, before);
  EXPECT_EQ(block.Mutable(), copy);
}

TEST(SharedBlock, LoanOutlivesTheBlock) {
  std::optional<SharedBlock> block = Filled(100, 1);
  const BlockLoan loan = block->Lend();
  block.reset();
  EXPECT_EQ(loan.data()[99], 1);
}

// A writer must have seen that the loans on other threads have ended (a test for ThreadSanitizer).
TEST(SharedBlock, LoansEndOnOtherThreads) {
  constexpr size_t kFloats = 1000;
  constexpr int kRounds = 2000;
  SharedBlock block = Filled(kFloats, 0);
  for (int round = 0; round < kRounds; ++round) {
    constexpr int kReaders = 2;
    std::vector<std::thread> readers;
    readers.reserve(kReaders);
    std::atomic<int> wrong = 0;
    for (int i = 0; i < kReaders; ++i) {
      readers.emplace_back([&wrong, round, loan = block.Lend()]() mutable {
        const BlockLoan mine = std::move(loan);
        for (size_t k = 0; k < mine.size(); ++k)
          wrong += mine.data()[k] != static_cast<float>(round);
      });
    }
    float* data = block.Mutable();
    for (size_t k = 0; k < kFloats; ++k) data[k] += 1;
    for (std::thread& reader : readers) reader.join();
    ASSERT_EQ(wrong, 0);
  }
}

}  // namespace
}  // namespace pawl
