#include "worker/process/interrupt.h"

#include <thread>

#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr std::chrono::hours kLong{1};

TEST(InterruptTest, FirstReasonStays) {
  Interrupt interrupt;
  EXPECT_TRUE(interrupt.reason().ok());
  interrupt.Set(absl::CancelledError("first"));
  interrupt.Set(absl::InternalError("second"));
  EXPECT_EQ(interrupt.reason(), absl::CancelledError("first"));
}

TEST(InterruptTest, EndsASleep) {
  Interrupt interrupt;
  std::thread setter([&] { interrupt.Set(absl::CancelledError("enough")); });
  EXPECT_EQ(interrupt.SleepFor(kLong), absl::CancelledError("enough"));
  setter.join();
}

TEST(InterruptTest, ParentSetsTheChild) {
  Interrupt parent;
  Interrupt own(&parent);
  Interrupt other(&parent);
  own.Set(absl::CancelledError("own"));
  EXPECT_TRUE(other.reason().ok());
  std::thread setter([&] { parent.Set(absl::CancelledError("all")); });
  EXPECT_EQ(other.SleepFor(kLong), absl::CancelledError("all"));
  setter.join();
  EXPECT_EQ(own.reason(), absl::CancelledError("own"));
}

TEST(InterruptTest, SleepEndsByItself) {
  Interrupt interrupt;
  const MonotonicTime begin = Clock::Real().Now();
  EXPECT_TRUE(interrupt.SleepFor(std::chrono::milliseconds(5)).ok());
  EXPECT_GE(Clock::Real().Now() - begin, std::chrono::milliseconds(5));
}

TEST(InterruptTest, AwaitReturnsTheResult) {
  Interrupt interrupt;
  std::promise<absl::StatusOr<int>> promise;
  std::future<absl::StatusOr<int>> future = promise.get_future();
  promise.set_value(7);
  EXPECT_EQ(*Await(future, kLong, interrupt, "seven"), 7);
}

TEST(InterruptTest, ReadyAnswerWinsOverTheInterrupt) {
  Interrupt interrupt;
  interrupt.Set(absl::CancelledError("enough"));
  std::promise<absl::Status> promise;
  std::future<absl::Status> future = promise.get_future();
  promise.set_value(absl::OkStatus());
  EXPECT_TRUE(Await(future, kLong, interrupt, "answer").ok());
}

TEST(InterruptTest, EndsAWaitForAnAnswer) {
  Interrupt interrupt;
  std::promise<absl::Status> promise;
  std::future<absl::Status> future = promise.get_future();
  std::thread setter([&] { interrupt.Set(absl::CancelledError("enough")); });
  EXPECT_EQ(Await(future, kLong, interrupt, "answer"), absl::CancelledError("enough"));
  setter.join();
}

TEST(InterruptTest, AwaitHasADeadline) {
  Interrupt interrupt;
  std::promise<absl::Status> promise;
  std::future<absl::Status> future = promise.get_future();
  EXPECT_EQ(Await(future, std::chrono::milliseconds(3), interrupt, "answer").code(),
            absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace pawl
