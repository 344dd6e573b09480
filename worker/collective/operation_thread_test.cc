#include "worker/collective/operation_thread.h"

#include <future>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::seconds;

// An operation that runs until it is interrupted.
class Hanging {
 public:
  absl::Status Run(MonotonicTime) {
    began_.set_value();
    interrupted_.get_future().wait();
    return absl::UnavailableError("interrupted");
  }
  void Interrupt() { interrupted_.set_value(); }
  void AwaitBeginning() { began_.get_future().wait(); }

 private:
  std::promise<void> began_;
  std::promise<void> interrupted_;
};

absl::Status Nothing(MonotonicTime) { return absl::OkStatus(); }

// Records the results of operations in the order in which they ended.
struct Results {
  Collective::Done Into(int number) {
    return [this, number](absl::Status status) { ended.emplace_back(number, status); };
  }
  std::vector<std::pair<int, absl::Status>> ended;
};

TEST(OperationThreadTest, OperationsRunInOrderUntilTheFirstError) {
  Results results;
  int interrupts = 0;
  int ran = 0;
  {
    OperationThread thread(nullptr, [&] { ++interrupts; });
    thread.Add(
        seconds(1), [&](MonotonicTime) { return ++ran, absl::OkStatus(); }, results.Into(0));
    thread.Add(
        seconds(1), [&](MonotonicTime) { return ++ran, absl::UnavailableError("gone"); },
        results.Into(1));
    thread.Add(
        seconds(1), [&](MonotonicTime) { return ++ran, absl::OkStatus(); }, results.Into(2));
  }
  ASSERT_EQ(results.ended.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(results.ended[i].first, i);
  EXPECT_TRUE(results.ended[0].second.ok() || absl::IsCancelled(results.ended[0].second));
  EXPECT_FALSE(results.ended[2].second.ok());
  EXPECT_LE(ran, 2);
  EXPECT_EQ(interrupts, 1);
}

TEST(OperationThreadTest, AbortEndsRunningAndQueuedOperations) {
  Results results;
  Hanging hanging;
  OperationThread thread(nullptr, [&] { hanging.Interrupt(); });
  std::promise<void> all;
  thread.Add(
      seconds(100), [&](MonotonicTime deadline) { return hanging.Run(deadline); }, results.Into(0));
  thread.Add(seconds(100), Nothing, results.Into(1));
  hanging.AwaitBeginning();
  thread.Abort(absl::AbortedError("the group is over"));
  thread.Abort(absl::InternalError("too late"));
  thread.Add(seconds(100), Nothing, [&](absl::Status status) {
    results.ended.emplace_back(2, status);
    all.set_value();
  });
  all.get_future().wait();
  ASSERT_EQ(results.ended.size(), 3u);
  for (const auto& [number, status] : results.ended)
    EXPECT_EQ(status, absl::AbortedError("the group is over")) << number;
}

TEST(OperationThreadTest, DeadlineCountsFromTheStart) {
  std::promise<MonotonicTime> first, second;
  OperationThread thread(nullptr, [] {});
  const MonotonicTime begin = Clock::Real().Now();
  const auto add = [&](MonotonicDuration timeout, std::promise<MonotonicTime>& deadline) {
    thread.Add(
        timeout,
        [&](MonotonicTime at) {
          deadline.set_value(at);
          return absl::OkStatus();
        },
        [](absl::Status) {});
  };
  add(seconds(100), first);
  add(MonotonicDuration::max(), second);
  EXPECT_GE(first.get_future().get() - begin, seconds(100));
  EXPECT_GT(second.get_future().get(), begin) << "no overflow";
}

TEST(OperationThreadTest, QueueOverflowBreaksTheGroup) {
  Hanging hanging;
  Results results;
  std::atomic<size_t> refused{0};
  {
    OperationThread thread(nullptr, [&] { hanging.Interrupt(); });
    thread.Add(
        seconds(100), [&](MonotonicTime deadline) { return hanging.Run(deadline); },
        [](absl::Status) {});
    hanging.AwaitBeginning();
    for (size_t i = 0; i < kMaxQueuedOperations; ++i) {
      thread.Add(seconds(100), Nothing,
                 [&](absl::Status status) { refused += absl::IsResourceExhausted(status); });
    }
    thread.Add(seconds(100), Nothing, results.Into(0));
    ASSERT_EQ(results.ended.size(), 1u) << "at once";
    EXPECT_TRUE(absl::IsResourceExhausted(results.ended[0].second)) << results.ended[0].second;
  }
  EXPECT_EQ(refused, kMaxQueuedOperations);
}

TEST(OperationThreadTest, OperationsAddedByADoneEndToo) {
  int ended = 0;
  {
    OperationThread thread(nullptr, [] {});
    thread.Add(seconds(1), Nothing, [&](absl::Status) {
      ++ended;
      thread.Add(seconds(1), Nothing, [&](absl::Status) { ++ended; });
    });
  }
  EXPECT_EQ(ended, 2);
}

}  // namespace
}  // namespace pawl
