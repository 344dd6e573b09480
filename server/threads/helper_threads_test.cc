#include "server/threads/helper_threads.h"

#include <atomic>
#include <memory>
#include <vector>

#include "client_lib/base/testing/eventually.h"
#include "gtest/gtest.h"
#include "server/replication/waiting_calls.h"

namespace pawl {
namespace {

using Ready = std::vector<std::shared_ptr<WaitingCall>>;

// A single helper thread that is busy until this object is destroyed.
class BusyHelper {
 public:
  BusyHelper() {
    helpers_.Offer([this] {
      busy_ = true;
      EXPECT_TRUE(Eventually([this] { return finished_.load(); }));
    });
    EXPECT_TRUE(Eventually([this] { return busy_.load(); }));
  }
  ~BusyHelper() { finished_ = true; }

  HelperThreads* helpers() { return &helpers_; }

 private:
  std::atomic<bool> busy_{false};
  std::atomic<bool> finished_{false};
  HelperThreads helpers_{1};
};

TEST(SharedWorkTest, WithoutHelpersWorkRunsInOrder) {
  HelperThreads none(0);
  for (HelperThreads* helpers : {static_cast<HelperThreads*>(nullptr), &none}) {
    std::vector<int> order;
    const auto work = [&](size_t i) {
      order.push_back(static_cast<int>(i));
      return Ready{std::make_shared<WaitingCall>(
          CallContext(), [&order](const absl::Status&) { order.push_back(-1); })};
    };
    ShareWork(helpers, 2, work, [&] { order.push_back(100); });
    EXPECT_EQ(order, (std::vector<int>{0, -1, 1, 100, -1}));
  }
}

TEST(SharedWorkTest, EmptyWorkIsDoneAtOnce) {
  bool done = false;
  ShareWork(
      nullptr, 0, [](size_t) { return Ready(); }, [&] { done = true; });
  EXPECT_TRUE(done);
}

TEST(SharedWorkTest, EveryPieceRunsOnceBeforeDone) {
  constexpr size_t kPieces = 1000;
  HelperThreads helpers(4);
  for (int round = 0; round < 20; ++round) {
    const auto times = std::make_shared<std::vector<std::atomic<int>>>(kPieces);
    std::atomic<size_t> at_end{0};
    ShareWork(
        &helpers, kPieces,
        [times](size_t i) {
          ++(*times)[i];
          return Ready();
        },
        [&, times] {
          size_t once = 0;
          for (const std::atomic<int>& count : *times) once += count == 1;
          at_end = once;
        });
    EXPECT_TRUE(Eventually([&] { return at_end == kPieces; }));
  }
}

// Each thread holds its piece until all threads have started one.
TEST(SharedWorkTest, AllHelpersTakePart) {
  constexpr size_t kThreads = 3;
  std::atomic<size_t> started{0};
  std::atomic<bool> done{false};
  HelperThreads helpers(kThreads);
  ShareWork(
      &helpers, kMinPartitionsPerThread * kThreads + 1,
      [&](size_t) {
        ++started;
        EXPECT_TRUE(Eventually([&] { return started > kThreads; }));
        return Ready();
      },
      [&] { done = true; });
  EXPECT_TRUE(Eventually([&] { return done.load(); }));
}

TEST(SharedWorkTest, BusyHelperIsNotWaitedFor) {
  BusyHelper busy;
  bool done = false;
  ShareWork(
      busy.helpers(), 100, [](size_t) { return Ready(); }, [&] { done = true; });
  EXPECT_TRUE(done);
}

TEST(SharedWorkTest, UnusedOfferKeepsNothingAlive) {
  BusyHelper busy;
  auto message = std::make_shared<int>(0);
  const std::weak_ptr<int> kept = message;
  ShareWork(
      busy.helpers(), 100, [message](size_t) { return Ready(); }, [message] {});
  message.reset();
  EXPECT_TRUE(kept.expired());
}

TEST(HelperThreadsTest, StopWaitsForRunningOffers) {
  std::atomic<bool> helps{false};
  std::atomic<bool> released{false};
  std::atomic<bool> finished{false};
  HelperThreads helpers(1);
  helpers.Offer([&] {
    helps = true;
    EXPECT_TRUE(Eventually([&] { return released.load(); }));
    finished = true;
  });
  ASSERT_TRUE(Eventually([&] { return helps.load(); }));
  released = true;
  helpers.Stop();
  EXPECT_TRUE(finished);
  helpers.Offer([] { ADD_FAILURE(); });
}

}  // namespace
}  // namespace pawl
