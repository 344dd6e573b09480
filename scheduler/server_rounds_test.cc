#include "scheduler/server_rounds.h"

#include <optional>
#include <vector>

#include "client_lib/base/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ServerRoundsTest : public testing::Test {
 protected:
  void Start(size_t servers) {
    std::vector<std::string> names;
    for (size_t i = 0; i < servers; ++i) names.push_back("server-" + std::to_string(i));
    DeferredActions actions;
    rounds_.Start(
        "asking", names, clock_.Now(), seconds(2),
        [this](uint64_t round, size_t server, MonotonicDuration) {
          round_ = round;
          asked_.push_back(server);
        },
        [this](const absl::Status& status, DeferredActions&) { result_ = status; }, actions);
  }
  void Answer(size_t server, const absl::Status& status) {
    DeferredActions actions;
    rounds_.Answer(round_, server, status, actions);
  }
  void Tick() {
    DeferredActions actions;
    rounds_.Tick(clock_.Now(), actions);
  }

  SimulatedClock clock_;
  ServerRounds rounds_;
  uint64_t round_ = 0;
  std::vector<size_t> asked_;
  std::optional<absl::Status> result_;
};

TEST_F(ServerRoundsTest, EndsWhenTheLastServerHasAnswered) {
  Start(2);
  EXPECT_EQ(asked_, (std::vector<size_t>{0, 1}));
  Answer(1, absl::OkStatus());
  Answer(1, absl::OkStatus());
  EXPECT_FALSE(result_.has_value());
  Answer(0, absl::OkStatus());
  EXPECT_TRUE(result_->ok());
}

TEST_F(ServerRoundsTest, UnavailableServerIsAskedAgainAtTheNextTick) {
  Start(2);
  Answer(0, absl::UnavailableError("connection refused"));
  Answer(1, absl::OkStatus());
  asked_.clear();
  Tick();
  EXPECT_EQ(asked_, (std::vector<size_t>{0}));
  Tick();
  EXPECT_EQ(asked_.size(), 1u) << "asked twice at one time";
  Answer(0, absl::OkStatus());
  EXPECT_TRUE(result_->ok());
}

TEST_F(ServerRoundsTest, AnyOtherErrorEndsTheRoundNamingTheServer) {
  Start(2);
  Answer(1, absl::InvalidArgumentError("row_width is 0"));
  EXPECT_EQ(*result_, absl::InvalidArgumentError("server-1: asking: row_width is 0"));
  Answer(0, absl::OkStatus());
}

TEST_F(ServerRoundsTest, DeadlineEndsTheRoundWithTheLastError) {
  Start(2);
  Answer(0, absl::UnavailableError("connection refused"));
  clock_.Advance(milliseconds(1999));
  Tick();
  EXPECT_FALSE(result_.has_value());
  clock_.Advance(milliseconds(1));
  Tick();
  EXPECT_EQ(*result_, absl::UnavailableError("server-0: asking: connection refused"));
}

TEST_F(ServerRoundsTest, SilentServerEndsTheRoundAtItsDeadline) {
  Start(1);
  clock_.Advance(seconds(2));
  Tick();
  EXPECT_EQ(result_->code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ServerRoundsTest, WithoutServersItEndsAtOnce) {
  Start(0);
  EXPECT_TRUE(result_->ok());
}

TEST_F(ServerRoundsTest, AbandonedRoundSaysNothing) {
  Start(1);
  rounds_.Abandon();
  Answer(0, absl::OkStatus());
  EXPECT_FALSE(result_.has_value());
}

}  // namespace
}  // namespace pawl
