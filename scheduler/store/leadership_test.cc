#include "scheduler/store/leadership.h"

#include <deque>
#include <string>

#include "gtest/gtest.h"

namespace pawl {
namespace {

// Answers Campaign with the test's statuses, in order, and then with OK.
class FakeStore final : public StateStore {
 public:
  absl::Status Campaign(MonotonicTime) override {
    if (answers.empty()) return absl::OkStatus();
    absl::Status answer = answers.front();
    answers.pop_front();
    return answer;
  }
  bool IsLeader() const override { return answers.empty(); }
  absl::StatusOr<std::optional<StoredState>> Load() override {
    if (load_errors.empty()) return std::optional<StoredState>();
    absl::Status error = load_errors.front();
    load_errors.pop_front();
    return error;
  }
  absl::StatusOr<std::optional<StoredState>> Peek() override { return peeked; }
  absl::Status Save(uint64_t, absl::string_view) override {
    if (save_errors.empty()) return absl::OkStatus();
    absl::Status error = save_errors.front();
    save_errors.pop_front();
    return error;
  }
  std::string Describe() const override { return "fake"; }

  std::deque<absl::Status> answers;
  std::deque<absl::Status> load_errors;
  std::deque<absl::Status> save_errors;
  absl::StatusOr<std::optional<StoredState>> peeked = std::optional<StoredState>();
};

class LeadershipTest : public testing::Test {
 protected:
  absl::StatusOr<Leadership> Become() {
    return BecomeLeader(
        store_, [this](MonotonicDuration pause) { return MustEnd(pause); },
        [this](const std::optional<StoredState>&) {
          ++checks_;
          return check_;
        });
  }
  absl::StatusOr<std::optional<StoredState>> Load() {
    return LoadState(store_, [this](MonotonicDuration pause) { return MustEnd(pause); });
  }
  absl::Status Save() {
    return SaveState(store_, 1, "state",
                     [this](MonotonicDuration pause) { return MustEnd(pause); });
  }
  bool MustEnd(MonotonicDuration pause) {
    pauses_.push_back(pause);
    return pauses_.size() == ends_after_;
  }

  const absl::Status another_ = absl::DeadlineExceededError("another scheduler leads");
  FakeStore store_;
  absl::StatusOr<bool> check_ = true;
  int checks_ = 0;
  std::deque<MonotonicDuration> pauses_;
  size_t ends_after_ = 100;
};

TEST_F(LeadershipTest, SingleProcessLeadsAtOnce) {
  EXPECT_EQ(*Become(), Leadership::kLeads);
  EXPECT_EQ(checks_, 0);
}

TEST_F(LeadershipTest, StandbyPeeksUntilThereIsAState) {
  store_.answers = {another_, another_, another_};
  check_ = false;
  EXPECT_EQ(*Become(), Leadership::kLeads);
  EXPECT_EQ(checks_, 3);
  store_.answers = {another_, another_, another_};
  check_ = true;
  EXPECT_EQ(*Become(), Leadership::kLeads);
  EXPECT_EQ(checks_, 4);
}

TEST_F(LeadershipTest, StateOfAnotherJobEndsTheWait) {
  store_.answers = {another_, another_};
  check_ = absl::FailedPreconditionError("another job");
  EXPECT_EQ(Become().status(), check_.status());
}

TEST_F(LeadershipTest, UnreadableStateIsCheckedLater) {
  store_.answers = {another_, another_};
  store_.peeked = absl::UnavailableError("it is being written");
  EXPECT_EQ(*Become(), Leadership::kLeads);
  EXPECT_EQ(checks_, 0);
}

TEST_F(LeadershipTest, ErrorsThatMayPassAreRetriedAfterAPause) {
  store_.answers = {absl::UnavailableError("away"), absl::ResourceExhaustedError("full"),
                    absl::InternalError("odd"), absl::NotFoundError("lease expired")};
  EXPECT_EQ(*Become(), Leadership::kLeads);
  EXPECT_EQ(pauses_, std::deque<MonotonicDuration>(4, kCampaignInterval));
}

TEST_F(LeadershipTest, LoadIsRetriedAfterErrorsThatMayPass) {
  store_.load_errors = {absl::UnavailableError("away"), absl::InternalError("odd")};
  EXPECT_TRUE(Load().ok());
  EXPECT_EQ(pauses_, std::deque<MonotonicDuration>(2, kCampaignInterval));
  store_.load_errors = {absl::DataLossError("damaged")};
  EXPECT_EQ(Load().status(), absl::DataLossError("damaged"));
  store_.load_errors = {absl::UnavailableError("away"), absl::UnavailableError("away")};
  ends_after_ = 3;
  EXPECT_TRUE(absl::IsCancelled(Load().status()));
}

TEST_F(LeadershipTest, SaveIsRetriedAfterErrorsThatMayPass) {
  store_.save_errors = {absl::ResourceExhaustedError("full"), absl::UnavailableError("away")};
  EXPECT_TRUE(Save().ok());
  EXPECT_EQ(pauses_, std::deque<MonotonicDuration>(2, kCampaignInterval));
  store_.save_errors = {absl::AbortedError("another leads")};
  EXPECT_EQ(Save(), absl::AbortedError("another leads"));
  store_.save_errors = {absl::UnavailableError("away"), absl::UnavailableError("away")};
  ends_after_ = 3;
  EXPECT_TRUE(absl::IsCancelled(Save()));
}

TEST_F(LeadershipTest, ProcessAskedToEndNeverLeads) {
  store_.answers = {another_, another_, another_};
  ends_after_ = 2;
  EXPECT_EQ(*Become(), Leadership::kStopped);
  EXPECT_EQ(store_.answers.size(), 1u);
}

TEST_F(LeadershipTest, OtherErrorEndsTheWait) {
  store_.answers = {absl::DataLossError("damaged")};
  EXPECT_EQ(Become().status(), absl::DataLossError("damaged"));
}

}  // namespace
}  // namespace pawl
