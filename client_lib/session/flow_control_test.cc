#include "client_lib/session/flow_control.h"

#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/rpc/testing/in_process_transport.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class FlowControlTest : public testing::Test {
 protected:
  void TearDown() override {
    flow_->Open();
    deadlines_->Close();
  }
  // The names of granted requests, in order; a refused one has a '-' before its name.
  FlowControl::Run Note(const std::string& name) {
    return [this, name](const absl::Status& status) {
      granted_.push_back((status.ok() ? "" : "-") + name);
    };
  }
  bool Acquire(uint64_t step, size_t bytes, const std::string& name) {
    const bool granted =
        flow_->Acquire(step, bytes, Clock::Real().Now() + seconds(600), Note(name));
    if (granted) granted_.push_back(name);
    return granted;
  }

  InProcessTransport transport_;
  std::shared_ptr<DeadlineQueue> deadlines_ =
      std::make_shared<DeadlineQueue>(transport_, Clock::Real());
  std::shared_ptr<FlowControl> flow_ = std::make_shared<FlowControl>(100, 3, deadlines_);
  std::vector<std::string> granted_;
};

TEST_F(FlowControlTest, RequestsThatDoNotFitWaitInOrder) {
  EXPECT_TRUE(Acquire(0, 60, "a"));
  EXPECT_TRUE(Acquire(0, 40, "b"));
  EXPECT_FALSE(Acquire(0, 50, "c"));
  // It would fit after b, but c comes before it.
  EXPECT_FALSE(Acquire(0, 10, "d"));
  flow_->Release(0, 40);
  EXPECT_EQ(granted_, (std::vector<std::string>{"a", "b"}));
  flow_->Release(0, 60);
  EXPECT_EQ(granted_, (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(flow_->bytes_in_flight(), 60);
}

TEST_F(FlowControlTest, RequestLargerThanTheLimitIsGrantedAlone) {
  EXPECT_TRUE(Acquire(0, 1000, "a"));
  EXPECT_FALSE(Acquire(0, 1, "b"));
  EXPECT_FALSE(Acquire(0, 1000, "c"));
  flow_->Release(0, 1000);
  EXPECT_EQ(granted_, (std::vector<std::string>{"a", "b"}));
  flow_->Release(0, 1);
  EXPECT_EQ(granted_, (std::vector<std::string>{"a", "b", "c"}));
}

// Otherwise a pending pull of the next step could delay the pull without which this step never
// ends.
TEST_F(FlowControlTest, EarlierStepDoesNotWaitForALaterOne) {
  EXPECT_TRUE(Acquire(1, 100, "later"));
  EXPECT_TRUE(Acquire(0, 100, "earlier"));
  EXPECT_FALSE(Acquire(1, 1, "later still"));
  EXPECT_FALSE(Acquire(0, 1, "earlier still"));
  flow_->Release(0, 100);
  EXPECT_EQ(granted_, (std::vector<std::string>{"later", "earlier", "earlier still"}));
  flow_->Release(1, 100);
  EXPECT_EQ(granted_.back(), "later still");
}

// Requests that are pending at a server take streams of its connection.
TEST_F(FlowControlTest, NumberOfRequestsIsLimitedByStep) {
  flow_ = std::make_shared<FlowControl>(1000, SIZE_MAX, deadlines_, /*max_requests=*/2);
  EXPECT_TRUE(Acquire(1, 1, "pending"));
  EXPECT_TRUE(Acquire(1, 1, "pending too"));
  EXPECT_FALSE(Acquire(1, 1, "waits"));
  EXPECT_TRUE(Acquire(0, 1, "earlier"));
  EXPECT_TRUE(Acquire(0, 1, "earlier too"));
  EXPECT_FALSE(Acquire(0, 1, "earlier, waits"));
  flow_->Release(0, 1);
  EXPECT_EQ(granted_.back(), "earlier, waits");
  flow_->Release(1, 1);
  EXPECT_EQ(granted_.back(), "earlier, waits");
  flow_->Release(0, 1);
  flow_->Release(0, 1);
  EXPECT_EQ(granted_.back(), "waits");
}

TEST_F(FlowControlTest, TooManyWaitersAreRefused) {
  EXPECT_TRUE(Acquire(0, 100, "a"));
  for (const char* name : {"b", "c", "d"}) EXPECT_FALSE(Acquire(0, 1, name));
  EXPECT_FALSE(Acquire(0, 1, "e"));
  EXPECT_EQ(granted_, (std::vector<std::string>{"a", "-e"}));
}

TEST_F(FlowControlTest, ExpiredWaiterLetsTheNextOneProceed) {
  EXPECT_TRUE(Acquire(0, 60, "a"));
  std::promise<absl::Status> ended, next;
  EXPECT_FALSE(flow_->Acquire(0, 100, Clock::Real().Now() + milliseconds(50),
                              [&](absl::Status status) { ended.set_value(std::move(status)); }));
  EXPECT_FALSE(flow_->Acquire(0, 40, Clock::Real().Now() + seconds(600),
                              [&](absl::Status status) { next.set_value(std::move(status)); }));
  EXPECT_EQ(ended.get_future().get().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(next.get_future().get().ok());
}

TEST_F(FlowControlTest, OpenGrantsEverything) {
  EXPECT_TRUE(Acquire(0, 100, "a"));
  EXPECT_FALSE(Acquire(0, 100, "b"));
  flow_->Open();
  EXPECT_EQ(granted_, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(Acquire(0, 100, "c"));
}

TEST_F(FlowControlTest, WaitersThatEndAtOnceDoNotGrowTheStack) {
  auto flow = std::make_shared<FlowControl>(1, SIZE_MAX, deadlines_);
  const MonotonicTime deadline = Clock::Real().Now() + seconds(600);
  ASSERT_TRUE(flow->Acquire(0, 1, deadline, nullptr));
  int depth = 0, max_depth = 0, count = 0;
  for (int i = 0; i < 10000; ++i) {
    EXPECT_FALSE(flow->Acquire(0, 1, deadline, [&](const absl::Status&) {
      max_depth = std::max(max_depth, ++depth);
      ++count;
      flow->Release(0, 1);
      --depth;
    }));
  }
  flow->Release(0, 1);
  EXPECT_EQ(count, 10000);
  EXPECT_EQ(max_depth, 1);
}

TEST_F(FlowControlTest, LimitHoldsAcrossThreads) {
  auto flow = std::make_shared<FlowControl>(100, SIZE_MAX, deadlines_);
  std::atomic<int64_t> in_flight{0}, highest{0};
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const int64_t bytes = 1 + (i * 7 + t) % 50;
        const auto use = [&, bytes] {
          const int64_t now = in_flight += bytes;
          int64_t before = highest;
          while (before < now && !highest.compare_exchange_weak(before, now)) {
          }
          in_flight -= bytes;
          flow->Release(0, static_cast<size_t>(bytes));
          ++done;
        };
        if (flow->Acquire(0, static_cast<size_t>(bytes), Clock::Real().Now() + seconds(600),
                          [use](const absl::Status&) { use(); })) {
          use();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  while (done < 2000) std::this_thread::yield();
  EXPECT_LE(highest, 100);
  EXPECT_EQ(flow->bytes_in_flight(), 0);
}

}  // namespace
}  // namespace pawl
