#include "client_lib/session/messenger.h"

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/call.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Holds calls until the test ends them.
class HeldTransport final : public Transport {
 public:
  struct HeldCall {
    std::string address;
    Done done;
  };

  void Call(const std::string& address, Method, OutgoingMessage, MonotonicDuration,
            Done done) override {
    if (before_call != nullptr) std::exchange(before_call, nullptr)();
    calls.push_back({address, std::move(done)});
  }
  void CancelCalls(const std::string& address) override { cancelled.push_back(address); }
  void Forget(const std::string& address) override { forgotten.push_back(address); }
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override {
    delays.push_back(delay);
    actions.push_back(std::move(action));
  }
  void Shutdown() override {}

  void EndFirst(const absl::Status& status) {
    HeldCall call = std::move(calls.front());
    calls.pop_front();
    call.done(status, IncomingMessage());
  }

  // Runs once, on the way of the next call: stands for another thread.
  std::function<void()> before_call;
  std::deque<HeldCall> calls;
  std::vector<std::string> cancelled;
  std::vector<std::string> forgotten;
  std::vector<MonotonicDuration> delays;
  std::deque<absl::AnyInvocable<void()>> actions;
};

class CountedCall final : public Call {
 public:
  CountedCall(MonotonicTime deadline, bool may_wait)
      : Call({.method = Method::kPush,
              .name = "the push",
              .deadline = deadline,
              .may_wait = may_wait},
             RequestHeader()) {}
  OutgoingMessage Encode(const Message&, const RequestHeader&) const override { return {}; }
  absl::Status TakeAnswer(const Message&, const IncomingMessage&) override { return taken; }
  void Finish(const absl::Status& status) override { statuses.push_back(status); }

  absl::Status taken;
  std::vector<absl::Status> statuses;
};

class MessengerTest : public testing::Test {
 protected:
  // Places partition p at the p-th address.
  void Adopt(uint64_t epoch, const std::vector<std::string>& addresses,
             const std::vector<uint32_t>& primaries = {0, 1}) {
    RoutingTable table;
    table.set_job_id(7);
    table.set_epoch(epoch);
    for (const std::string& address : addresses) table.add_servers()->set_address(address);
    for (const uint32_t primary : primaries) table.add_primary(primary);
    ASSERT_TRUE(messenger_->Adopt(table).ok());
  }

  std::shared_ptr<CountedCall> Push(uint32_t partition, size_t bytes = 1, bool may_wait = false,
                                    MonotonicDuration timeout = seconds(3600)) {
    auto call = std::make_shared<CountedCall>(clock_.Now() + timeout, may_wait);
    auto message = std::make_shared<Message>();
    message->call = call;
    message->segments.emplace_back().partition = partition;
    message->bytes = bytes;
    messenger_->Send(std::move(message));
    return call;
  }

  std::vector<std::string> Addresses() const {
    std::vector<std::string> addresses;
    for (const HeldTransport::HeldCall& call : transport_.calls) addresses.push_back(call.address);
    return addresses;
  }

  // Calls in flight and waiting messages keep the messenger alive.
  void TearDown() override {
    while (!transport_.calls.empty())
      transport_.EndFirst(absl::InvalidArgumentError("the test is over"));
    messenger_->Fail(absl::CancelledError("the test is over"));
  }

  SimulatedClock clock_;
  HeldTransport transport_;
  const std::shared_ptr<Router> router_ = std::make_shared<Router>(7);
  std::shared_ptr<DeadlineQueue> deadlines_ = std::make_shared<DeadlineQueue>(transport_, clock_);
  std::shared_ptr<Messenger> messenger_ =
      std::make_shared<Messenger>(transport_, clock_, router_, deadlines_);
};

TEST_F(MessengerTest, NewRoutingCancelsCallsAndForgetsAddresses) {
  Adopt(1, {"a", "b", "c"});
  EXPECT_TRUE(transport_.forgotten.empty());
  Adopt(2, {"a", "b", "d"}, {0, 0});
  EXPECT_EQ(transport_.cancelled, std::vector<std::string>{"b"});
  EXPECT_EQ(transport_.forgotten, std::vector<std::string>{"c"});
  Adopt(3, {"b", "d"});
  EXPECT_EQ(transport_.forgotten, (std::vector<std::string>{"c", "a"}));
}

TEST_F(MessengerTest, CallToAForgottenAddressLeavesNoConnection) {
  Adopt(1, {"a", "b"});
  transport_.before_call = [&] { Adopt(2, {"c", "b"}); };
  Push(0);
  EXPECT_EQ(Addresses(), std::vector<std::string>{"a"});
  EXPECT_EQ(transport_.forgotten, (std::vector<std::string>{"a", "a"}))
      << "the second one after the call";
}

TEST_F(MessengerTest, WaitingMessagesGoToTheNewAddress) {
  Adopt(1, {"a", "b"});
  const auto first = Push(0, kMaxBytesInFlightPerServer);
  const auto second = Push(0);
  EXPECT_EQ(Addresses(), std::vector<std::string>{"a"});
  Adopt(2, {"c", "b"});
  transport_.EndFirst(absl::CancelledError("the call was cancelled"));
  // All of them at once, in the order of their turns at the new server.
  EXPECT_EQ(Addresses(), std::vector<std::string>{"c"});
  transport_.EndFirst(absl::OkStatus());
  EXPECT_EQ(Addresses(), std::vector<std::string>{"c"});
  transport_.EndFirst(absl::OkStatus());
  for (const auto& call : {first, second})
    EXPECT_EQ(call->statuses, std::vector<absl::Status>{absl::OkStatus()});
}

TEST_F(MessengerTest, MessageOverTheRetryBudgetIsSentByNewRouting) {
  Adopt(1, {"a", "b"});
  for (int64_t i = 0; i < RetryBudget::kMaxTokens; ++i) {
    Push(0);
    transport_.EndFirst(absl::UnavailableError("it is dead"));
  }
  const auto push = Push(0, 1, false, milliseconds(500));
  transport_.EndFirst(absl::UnavailableError("it is dead"));
  EXPECT_TRUE(push->statuses.empty());
  Adopt(2, {"c", "b"});
  EXPECT_EQ(transport_.calls.back().address, "c");
  EXPECT_TRUE(push->statuses.empty());
}

TEST_F(MessengerTest, MalformedAnswerIsNoMistakeOfTheCaller) {
  Adopt(1, {"a", "b"});
  const auto push = Push(0);
  push->taken = absl::InvalidArgumentError("PushResponse is malformed");
  transport_.EndFirst(absl::OkStatus());
  ASSERT_EQ(push->statuses.size(), 1u);
  EXPECT_EQ(push->statuses[0].code(), absl::StatusCode::kInternal) << push->statuses[0];
}

TEST_F(MessengerTest, OldFailureWakesOnlyOlderAttempts) {
  Adopt(1, {"a", "b"});
  Push(0);
  Adopt(2, {"a", "b"});
  Push(1);
  Push(0);
  std::swap(transport_.calls[0], transport_.calls[1]);
  transport_.EndFirst(absl::UnavailableError("busy"));
  EXPECT_EQ(Addresses(), (std::vector<std::string>{"a", "a"}));
  transport_.EndFirst(absl::UnavailableError("gone"));
  // It is sent at once, by the newer routing; the message to b stays in its pause.
  EXPECT_EQ(Addresses(), (std::vector<std::string>{"a", "a"}));
  transport_.EndFirst(absl::UnavailableError("busy"));
  EXPECT_EQ(Addresses(), std::vector<std::string>{"a"});
  // Every message that has tried the earlier routing is sent when newer routing arrives.
  Adopt(3, {"c", "d"});
  EXPECT_EQ(Addresses(), (std::vector<std::string>{"a", "d", "c"}));
}

TEST_F(MessengerTest, PendingCallIsRepeatedWithoutSpendingARetry) {
  Adopt(1, {"a", "b"});
  const auto pending = Push(0, 1, /*may_wait=*/true);
  for (int i = 0; i < 2 * RetryBudget::kMaxTokens; ++i) {
    clock_.Advance(seconds(11));
    transport_.EndFirst(absl::DeadlineExceededError("it waits for a step"));
    ASSERT_EQ(Addresses(), std::vector<std::string>{"a"}) << i;
  }
  EXPECT_EQ(messenger_->counters().retries, 0u);
  // The budget is not spent: soon, but not at once.
  transport_.delays.clear();
  transport_.EndFirst(absl::UnavailableError("the server is gone"));
  EXPECT_TRUE(Addresses().empty());
  ASSERT_EQ(transport_.delays.size(), 1u);
  EXPECT_LT(transport_.delays[0], kMaxBackoff / 2);
  EXPECT_EQ(messenger_->counters().retries, 1u);
  EXPECT_TRUE(pending->statuses.empty());
}

TEST_F(MessengerTest, EarlyLossCountsAsARetry) {
  Adopt(1, {"a", "b"});
  const auto pending = Push(0, 1, /*may_wait=*/true);
  clock_.Advance(seconds(1));
  transport_.EndFirst(absl::DeadlineExceededError("lost"));
  EXPECT_TRUE(Addresses().empty());
  const auto other = Push(1);
  clock_.Advance(seconds(11));
  transport_.EndFirst(absl::DeadlineExceededError("lost"));
  EXPECT_TRUE(Addresses().empty());
  EXPECT_EQ(messenger_->counters().retries, 2u);
}

TEST_F(MessengerTest, PendingCallEndsAtItsDeadline) {
  Adopt(1, {"a", "b"});
  const auto pending = Push(0, 1, /*may_wait=*/true);
  clock_.Advance(seconds(3600));
  transport_.EndFirst(absl::DeadlineExceededError("it waits for a step"));
  ASSERT_EQ(pending->statuses.size(), 1u);
  EXPECT_EQ(pending->statuses[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Addresses().empty());
}

}  // namespace
}  // namespace pawl
