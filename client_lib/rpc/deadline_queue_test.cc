#include "client_lib/rpc/deadline_queue.h"

#include <future>
#include <utility>
#include <vector>

#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Timers that the test runs.
class ManualTimers final : public Transport {
 public:
  void Call(const std::string&, Method, OutgoingMessage, MonotonicDuration, Done) override {}
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override {
    timers.emplace_back(delay, std::move(action));
  }
  void Shutdown() override {}
  void RunFirst() {
    auto action = std::move(timers.front().second);
    timers.erase(timers.begin());
    action();
  }

  std::vector<std::pair<MonotonicDuration, absl::AnyInvocable<void()>>> timers;
};

class DeadlineQueueTest : public testing::Test {
 protected:
  DeadlineQueue::Id Add(MonotonicDuration from_now, int name) {
    return queue_->Add(clock_.Now() + from_now, [this, name] { expired_.push_back(name); });
  }

  SimulatedClock clock_;
  ManualTimers timers_;
  std::shared_ptr<DeadlineQueue> queue_ = std::make_shared<DeadlineQueue>(timers_, clock_);
  std::vector<int> expired_;
};

TEST_F(DeadlineQueueTest, EntriesExpireInTheOrderOfDeadlines) {
  Add(seconds(2), 2);
  Add(seconds(1), 1);
  Add(seconds(3), 3);
  clock_.Advance(milliseconds(2500));
  while (expired_.size() < 2) timers_.RunFirst();
  EXPECT_EQ(expired_, (std::vector<int>{1, 2}));
}

TEST_F(DeadlineQueueTest, RemovedEntryDoesNotExpire) {
  const DeadlineQueue::Id id = Add(seconds(1), 1);
  Add(seconds(1), 2);
  EXPECT_TRUE(queue_->Remove(id));
  EXPECT_FALSE(queue_->Remove(id));
  clock_.Advance(seconds(2));
  timers_.RunFirst();
  EXPECT_EQ(expired_, std::vector<int>{2});
}

TEST_F(DeadlineQueueTest, ManyDeadlinesUseFewTimers) {
  for (int i = 0; i < 1000; ++i) queue_->Remove(Add(seconds(100 + i), i));
  EXPECT_EQ(timers_.timers.size(), 1);
  EXPECT_LE(timers_.timers[0].first, seconds(10));
  clock_.Advance(seconds(10));
  timers_.RunFirst();
  // Without entries the timers end.
  EXPECT_TRUE(timers_.timers.empty());
}

TEST_F(DeadlineQueueTest, EarlierDeadlineGetsItsOwnTimer) {
  Add(seconds(9), 9);
  Add(seconds(1), 1);
  ASSERT_EQ(timers_.timers.size(), 2);
  EXPECT_LE(timers_.timers[1].first, milliseconds(1100));
}

TEST_F(DeadlineQueueTest, AddAfterTheLastTimerSetsAnother) {
  Add(seconds(1), 1);
  clock_.Advance(seconds(2));
  timers_.RunFirst();
  EXPECT_TRUE(timers_.timers.empty());
  Add(seconds(1), 2);
  clock_.Advance(seconds(2));
  ASSERT_EQ(timers_.timers.size(), 1);
  timers_.RunFirst();
  EXPECT_EQ(expired_, (std::vector<int>{1, 2}));
}

TEST_F(DeadlineQueueTest, NothingExpiresAfterClose) {
  Add(seconds(1), 1);
  queue_->Close();
  clock_.Advance(seconds(2));
  timers_.RunFirst();
  EXPECT_TRUE(expired_.empty());
  EXPECT_TRUE(timers_.timers.empty());
}

}  // namespace
}  // namespace pawl
