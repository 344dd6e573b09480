#include "scheduler/state_saver.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kPatience{60};

// Fails as it is told; the rest works.
class ScriptedStore final : public StateStore {
 public:
  absl::Status Campaign(MonotonicTime) override { return absl::OkStatus(); }
  bool IsLeader() const override { return true; }
  void WhenLeadershipLost(std::function<void(const absl::Status&)>) override {}
  absl::StatusOr<std::optional<StoredState>> Load() override { return std::optional<StoredState>(); }
  absl::Status Save(uint64_t revision, absl::string_view state) override {
    MutexLock lock(mu_);
    saves_.emplace_back(revision, std::string(state));
    if (failures_.empty()) return absl::OkStatus();
    absl::Status status = failures_.front();
    failures_.pop_front();
    return status;
  }
  std::string Describe() const override { return "scripted"; }

  void FailNext(absl::Status status) {
    MutexLock lock(mu_);
    failures_.push_back(std::move(status));
  }
  std::vector<std::pair<uint64_t, std::string>> saves() {
    MutexLock lock(mu_);
    return saves_;
  }

 private:
  Mutex mu_;
  std::deque<absl::Status> failures_ PAWL_GUARDED_BY(mu_);
  std::vector<std::pair<uint64_t, std::string>> saves_ PAWL_GUARDED_BY(mu_);
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

TEST_F(StateSaverTest, NewestStateIsSavedUnderGrowingRevisions) {
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

TEST_F(StateSaverTest, FailedSaveIsRepeatedUnchangedBeforeAnythingElse) {
  Begin();
  store_.FailNext(absl::ResourceExhaustedError("disk full"));
  store_.FailNext(absl::UnavailableError("no answer"));
  Change();
  ASSERT_TRUE(WaitUntilSaved());
  const auto saves = store_.saves();
  ASSERT_EQ(saves.size(), 3u);
  EXPECT_EQ(saves[0], saves[1]);
  EXPECT_EQ(saves[1], saves[2]);
}

TEST_F(StateSaverTest, SaverThatIsOvertakenSaysSoAndSavesNoMore) {
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

TEST_F(StateSaverTest, EndsWhileTheStoreFails) {
  Begin();
  for (int i = 0; i < 1000; ++i) store_.FailNext(absl::UnavailableError("no answer"));
  Change();
  EXPECT_FALSE(saver_->WaitUntilSaved(Clock::Real().Now()));
  saver_.reset();
  MutexLock lock(mu_);
  EXPECT_EQ(saved_, 0u);
}

}  // namespace
}  // namespace pawl
