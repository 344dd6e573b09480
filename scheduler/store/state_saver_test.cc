#include "scheduler/store/state_saver.h"

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/base/testing/eventually.h"
#include "gtest/gtest.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kPatience{60};

// Saves fail on request.
class ScriptedStore final : public StateStore {
 public:
  absl::Status Campaign(MonotonicTime) override { return absl::OkStatus(); }
  bool IsLeader() const override { return true; }
  absl::StatusOr<std::optional<StoredState>> Load() override {
    return std::optional<StoredState>();
  }
  absl::StatusOr<std::optional<StoredState>> Peek() override {
    return std::optional<StoredState>();
  }
  absl::Status Save(uint64_t revision, absl::string_view state) override {
    MutexLock lock(mu_);
    saves_.emplace_back(revision, std::string(state));
    if (failures_.empty()) return absl::OkStatus();
    const auto [status, then] = failures_.front();
    failures_.pop_front();
    if (then != nullptr) then();
    return status;
  }
  std::string Describe() const override { return "scripted"; }

  // `then` runs during the Save.
  void FailNext(absl::Status status, std::function<void()> then = nullptr) {
    MutexLock lock(mu_);
    failures_.emplace_back(std::move(status), std::move(then));
  }
  std::vector<std::pair<uint64_t, std::string>> saves() {
    MutexLock lock(mu_);
    return saves_;
  }

 private:
  Mutex mu_;
  std::deque<std::pair<absl::Status, std::function<void()>>> failures_ PAWL_GUARDED_BY(mu_);
  std::vector<std::pair<uint64_t, std::string>> saves_ PAWL_GUARDED_BY(mu_);
};

class CountingSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::atomic<int> warnings{0};

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    warnings += message.level == spdlog::level::warn;
  }
  void flush_() override {}
};

class StateSaverTest : public testing::Test {
 protected:
  void Begin(uint64_t revision = 0) {
    StateSaver::Callbacks callbacks;
    callbacks.take = [this]() -> std::optional<UnsavedState> {
      MutexLock lock(mu_);
      if (saved_ == change_) return std::nullopt;
      UnsavedState unsaved;
      unsaved.change = change_;
      unsaved.state.set_job_id(change_);
      return unsaved;
    };
    callbacks.saved = [this](uint64_t change) {
      MutexLock lock(mu_);
      saved_ = change;
    };
    callbacks.lost = [this](const absl::Status& why) {
      MutexLock lock(mu_);
      lost_ = why;
      changed_.NotifyAll();
    };
    saver_ = std::make_unique<StateSaver>(store_, revision, std::move(callbacks));
  }
  void Change() {
    {
      MutexLock lock(mu_);
      ++change_;
    }
    saver_->Notify();
  }
  bool WaitUntilSaved() { return saver_->WaitUntilSaved(Clock::Real().Now() + kPatience); }

  ScriptedStore store_;
  Mutex mu_;
  CondVar changed_;
  uint64_t change_ PAWL_GUARDED_BY(mu_) = 0;
  uint64_t saved_ PAWL_GUARDED_BY(mu_) = 0;
  absl::Status lost_ PAWL_GUARDED_BY(mu_);
  std::unique_ptr<StateSaver> saver_;
};

TEST_F(StateSaverTest, NewestStateIsSavedWithGrowingRevisions) {
  Begin(41);
  Change();
  ASSERT_TRUE(WaitUntilSaved());
  Change();
  ASSERT_TRUE(WaitUntilSaved());
  const auto saves = store_.saves();
  ASSERT_EQ(saves.size(), 2u);
  EXPECT_EQ(saves[0].first, 42u);
  EXPECT_EQ(saves[1].first, 43u);
  SchedulerState last;
  ASSERT_TRUE(last.ParseFromString(saves[1].second));
  EXPECT_EQ(last.job_id(), 2u);
  MutexLock lock(mu_);
  EXPECT_EQ(saved_, 2u);
}

TEST_F(StateSaverTest, FailedSaveIsRepeatedWithNewestState) {
  Begin();
  store_.FailNext(absl::InvalidArgumentError("the state is too large"), [this] {
    MutexLock lock(mu_);
    ++change_;
  });
  store_.FailNext(absl::UnavailableError("no answer"));
  Change();
  ASSERT_TRUE(WaitUntilSaved());
  EXPECT_EQ(saver_->UnsavedFor(), MonotonicDuration::zero());
  const auto saves = store_.saves();
  ASSERT_EQ(saves.size(), 3u);
  const uint64_t expected[] = {1, 2, 2};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(saves[i].first, i + 1) << "the one before may have happened";
    SchedulerState state;
    ASSERT_TRUE(state.ParseFromString(saves[i].second));
    EXPECT_EQ(state.job_id(), expected[i]);
  }
  MutexLock lock(mu_);
  EXPECT_EQ(saved_, 2u);
}

TEST_F(StateSaverTest, ChangesDoNotShortenThePause) {
  auto log = std::make_shared<CountingSink>();
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", log));
  Begin();
  constexpr int kFailures = 8;
  for (int i = 0; i < kFailures; ++i) store_.FailNext(absl::UnavailableError("no answer"));
  const MonotonicTime started = Clock::Real().Now();
  Change();
  const MonotonicTime patience = started + kPatience;
  while (!saver_->WaitUntilSaved(Clock::Real().Now() + std::chrono::milliseconds(1)) &&
         Clock::Real().Now() < patience) {
    saver_->Notify();
  }
  const MonotonicDuration took = Clock::Real().Now() - started;
  EXPECT_EQ(store_.saves().size(), kFailures + 1u);
  EXPECT_GE(took, kFailures * kSaveRetryInterval);
  saver_.reset();
  spdlog::set_default_logger(before);
  EXPECT_GE(log->warnings, 1);
  EXPECT_LE(log->warnings, 1 + Seconds(took)) << "one a second";
  if (took < std::chrono::seconds(5)) {
    EXPECT_LT(log->warnings, kFailures);
  }
}

TEST_F(StateSaverTest, OvertakenSaverReportsLossAndStops) {
  Begin();
  store_.FailNext(absl::AbortedError("another leads"));
  Change();
  {
    MutexLock lock(mu_);
    const MonotonicTime deadline = Clock::Real().Now() + kPatience;
    while (lost_.ok() && changed_.WaitUntil(mu_, deadline)) {
    }
    EXPECT_EQ(lost_, absl::AbortedError("another leads"));
    EXPECT_EQ(saved_, 0u);
  }
  Change();
  EXPECT_FALSE(saver_->WaitUntilSaved(Clock::Real().Now()));
  EXPECT_EQ(store_.saves().size(), 1u);
}

TEST_F(StateSaverTest, EndsWhileStoreFails) {
  Begin();
  for (int i = 0; i < 1000; ++i) store_.FailNext(absl::UnavailableError("no answer"));
  EXPECT_EQ(saver_->UnsavedFor(), MonotonicDuration::zero());
  Change();
  EXPECT_TRUE(Eventually([&] { return saver_->UnsavedFor() > MonotonicDuration::zero(); }));
  saver_.reset();
  MutexLock lock(mu_);
  EXPECT_EQ(saved_, 0u);
}

}  // namespace
}  // namespace pawl
