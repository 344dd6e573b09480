#include "server/shard/push_window.h"

#include <random>
#include <set>

#include "gtest/gtest.h"

namespace pawl {
namespace {

using Answer = PushWindow::Answer;

TEST(PushWindow, AcceptsEachOrdinalOnce) {
  PushWindow window;
  EXPECT_EQ(window.Take(0), Answer::kNew);
  EXPECT_EQ(window.Take(0), Answer::kDuplicate);
  EXPECT_EQ(window.Take(2), Answer::kNew);
  EXPECT_EQ(window.Take(2), Answer::kDuplicate);
  EXPECT_EQ(window.Take(1), Answer::kNew);
  EXPECT_EQ(window.Take(2), Answer::kDuplicate);
  EXPECT_EQ(window.contiguous(), 3u);
}

TEST(PushWindow, LookChangesNothing) {
  PushWindow window;
  EXPECT_EQ(window.Look(5), Answer::kNew);
  EXPECT_EQ(window.Take(5), Answer::kNew);
}

TEST(PushWindow, RefusesOrdinalsTooFarAhead) {
  PushWindow window;
  EXPECT_EQ(window.Take(kPushWindow), Answer::kBeyondWindow);
  EXPECT_EQ(window.Take(kPushWindow - 1), Answer::kNew);
  EXPECT_EQ(window.Take(0), Answer::kNew);
  EXPECT_EQ(window.Take(kPushWindow), Answer::kNew);
  EXPECT_EQ(window.Take(~uint64_t{0}), Answer::kBeyondWindow);
}

TEST(PushWindow, ReportsGaps) {
  PushWindow window;
  EXPECT_FALSE(window.has_gap());
  window.Take(1);
  EXPECT_TRUE(window.has_gap());
  window.Take(0);
  EXPECT_FALSE(window.has_gap());
}

TEST(PushWindow, AgreesWithASetInRandomOrders) {
  std::mt19937_64 random(17);
  PushWindow window;
  std::set<uint64_t> taken;
  uint64_t first_missing = 0;
  for (int i = 0; i < 100000; ++i) {
    const uint64_t ordinal =
        first_missing + random() % (kPushWindow + 100) - std::min<uint64_t>(first_missing, 50);
    const Answer answer = window.Take(ordinal);
    if (taken.contains(ordinal)) {
      ASSERT_EQ(answer, Answer::kDuplicate) << ordinal;
    } else if (ordinal >= first_missing + kPushWindow) {
      ASSERT_EQ(answer, Answer::kBeyondWindow) << ordinal;
    } else {
      ASSERT_EQ(answer, Answer::kNew) << ordinal;
      taken.insert(ordinal);
    }
    while (taken.contains(first_missing)) ++first_missing;
    ASSERT_EQ(window.contiguous(), first_missing);
  }
}

}  // namespace
}  // namespace pawl
