#include "server/threads/shared_work.h"

#include <atomic>
#include <memory>
#include <vector>

#include "client_lib/base/testing/eventually.h"
#include "gtest/gtest.h"
#include "server/replication/waiting_call.h"
#include "server/threads/helper_threads.h"

namespace pawl {
namespace {

using Ready = std::vector<std::shared_ptr<WaitingCall>>;

// The only helper, which has other work as long as this lives.
class BusyHelper {
 public:
  BusyHelper() {
    helpers_.Offer([this] {
      busy_ = true;
      EXPECT_TRUE(Eventually([this] { return over_.load(); }));
    });
    EXPECT_TRUE(Eventually([this] { return busy_.load(); }));
  }
  ~BusyHelper() { over_ = true; }

  HelperThreads* helpers() { return &helpers_; }

 private:
  std::atomic<bool> busy_{false};
  std::atomic<bool> over_{false};
  HelperThreads helpers_{1};
};

TEST(SharedWorkTest, WithoutHelpItIsDoneInOrderAndWhatIsReadyGoesOnInBetween) {
  HelperThreads nobody(0);
  for (HelperThreads* helpers : {static_cast<HelperThreads*>(nullptr), &nobody}) {
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

TEST(SharedWorkTest, NothingIsDoneAtOnce) {
  bool done = false;
  ShareWork(
      nullptr, 0, [](size_t) { return Ready(); }, [&] { done = true; });
  EXPECT_TRUE(done);
}

TEST(SharedWorkTest, EveryPieceIsDoneOnceBeforeTheEnd) {
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

// Each holds its piece until as many others have begun as there are threads.
TEST(SharedWorkTest, AllWhoMayHelpDo) {
  constexpr size_t kThreads = 3;
  std::atomic<size_t> begun{0};
  std::atomic<bool> done{false};
  HelperThreads helpers(kThreads);
  ShareWork(
      &helpers, kPartitionsAPiece * kThreads + 1,
      [&](size_t) {
        ++begun;
        EXPECT_TRUE(Eventually([&] { return begun > kThreads; }));
        return Ready();
      },
      [&] { done = true; });
  EXPECT_TRUE(Eventually([&] { return done.load(); }));
}

TEST(SharedWorkTest, HelpThatDoesNotComeIsNotWaitedFor) {
  BusyHelper busy;
  bool done = false;
  ShareWork(
      busy.helpers(), 100, [](size_t) { return Ready(); }, [&] { done = true; });
  EXPECT_TRUE(done);
}

TEST(SharedWorkTest, HelpThatComesTooLateKeepsNothing) {
  BusyHelper busy;
  auto message = std::make_shared<int>(0);
  const std::weak_ptr<int> kept = message;
  ShareWork(
      busy.helpers(), 100, [message](size_t) { return Ready(); }, [message] {});
  message.reset();
  EXPECT_TRUE(kept.expired());
}

TEST(SharedWorkTest, WhoStopsWaitsForTheHelpThatIsBeingGiven) {
  std::atomic<bool> helps{false};
  std::atomic<bool> goes_on{false};
  std::atomic<bool> over{false};
  HelperThreads helpers(1);
  helpers.Offer([&] {
    helps = true;
    EXPECT_TRUE(Eventually([&] { return goes_on.load(); }));
    over = true;
  });
  ASSERT_TRUE(Eventually([&] { return helps.load(); }));
  goes_on = true;
  helpers.Stop();
  EXPECT_TRUE(over);
  helpers.Offer([] { ADD_FAILURE(); });
}

}  // namespace
}  // namespace pawl
