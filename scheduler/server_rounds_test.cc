#include "scheduler/server_rounds.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "client_lib/base/simulated_clock.h"
#include "client_lib/rpc/transport.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ServerRoundsTest : public testing::Test {
 protected:
  void SetServers(std::vector<int> numbers, uint64_t epoch = 1) {
    ServerRounds::Targets targets;
    targets.epoch = epoch;
    for (const int number : numbers) {
      targets.servers.push_back({"server-" + std::to_string(number), "s:" + std::to_string(number)});
    }
    DeferredActions actions;
    rounds_.SetTargets(std::move(targets), clock_.Now(), actions);
  }
  void SetNoServers() {
    DeferredActions actions;
    rounds_.SetTargets(std::nullopt, clock_.Now(), actions);
  }
  void Start() {
    DeferredActions actions;
    rounds_.Start(
        "asking", clock_.Now(), seconds(2),
        [this](const ServerRounds::Question& question) {
          question_ = question;
          asked_.push_back(question.address);
        },
        [this](const absl::Status& status, DeferredActions&) { result_ = status; }, actions);
  }
  void Start(int servers) {
    std::vector<int> numbers;
    for (int i = 0; i < servers; ++i) numbers.push_back(i);
    SetServers(numbers);
    Start();
  }
  void Answer(size_t server, const absl::Status& status) { Answer(question_.attempt, server, status); }
  void Answer(uint64_t attempt, size_t server, const absl::Status& status) {
    DeferredActions actions;
    rounds_.Answer(attempt, server, status, actions);
  }
  void Tick() {
    DeferredActions actions;
    rounds_.Tick(clock_.Now(), actions);
  }

  SimulatedClock clock_;
  ServerRounds rounds_;
  ServerRounds::Question question_;
  std::vector<std::string> asked_;
  std::optional<absl::Status> result_;
};

TEST_F(ServerRoundsTest, EndsWhenTheLastServerHasAnswered) {
  Start(2);
  EXPECT_EQ(asked_, (std::vector<std::string>{"s:0", "s:1"}));
  Answer(1, absl::OkStatus());
  Answer(1, absl::OkStatus());
  EXPECT_FALSE(result_.has_value());
  Answer(0, absl::OkStatus());
  EXPECT_TRUE(result_->ok());
}

TEST_F(ServerRoundsTest, WhoHasNoRoomNowIsAskedAgainAndWhoNeverHasIsNot) {
  Start(1);
  absl::Status full = absl::ResourceExhaustedError("the disk is full");
  full.SetPayload(kPushbackPayloadUrl, absl::Cord("20"));
  Answer(0, full);
  EXPECT_FALSE(result_.has_value());
  asked_.clear();
  Tick();
  EXPECT_EQ(asked_, (std::vector<std::string>{"s:0"}));
  Answer(0, absl::ResourceExhaustedError("the message is too large"));
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ServerRoundsTest, UnavailableServerIsAskedAgainAtTheNextTick) {
  Start(2);
  Answer(0, absl::UnavailableError("connection refused"));
  Answer(1, absl::OkStatus());
  asked_.clear();
  Tick();
  EXPECT_EQ(asked_, (std::vector<std::string>{"s:0"}));
  Tick();
  EXPECT_EQ(asked_.size(), 1u) << "asked twice at one time";
  Answer(0, absl::OkStatus());
  EXPECT_TRUE(result_->ok());
}

TEST_F(ServerRoundsTest, ServerThatDoesNotGetItDoneInItsTimeIsAskedAgain) {
  Start(1);
  Answer(0, absl::DeadlineExceededError("a backup is away"));
  EXPECT_FALSE(result_.has_value());
  Tick();
  Answer(0, absl::OkStatus());
  EXPECT_TRUE(result_->ok());
}

TEST_F(ServerRoundsTest, TimeInWhichNoQuestionCouldGoOutIsGiven) {
  Start(1);
  clock_.Advance(seconds(60));
  rounds_.Postpone(seconds(60));
  Tick();
  EXPECT_FALSE(result_.has_value());
  clock_.Advance(seconds(2));
  Tick();
  EXPECT_TRUE(result_.has_value());
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

TEST_F(ServerRoundsTest, WithoutPrimariesItWaitsAndItsTimeDoesNotRun) {
  Start();
  clock_.Advance(seconds(100));
  Tick();
  EXPECT_FALSE(result_.has_value());
  EXPECT_TRUE(asked_.empty());
  SetServers({3}, 9);
  EXPECT_EQ(asked_, (std::vector<std::string>{"s:3"}));
  EXPECT_EQ(question_.epoch, 9u);
  EXPECT_EQ(question_.timeout, seconds(2));
  Answer(0, absl::OkStatus());
  EXPECT_TRUE(result_->ok());
}

TEST_F(ServerRoundsTest, NewPrimariesAreAskedAnewAndOldAnswersCountForNothing) {
  Start(2);
  const uint64_t old = question_.attempt;
  Answer(old, 0, absl::OkStatus());
  asked_.clear();
  SetServers({0, 2}, 5);
  EXPECT_EQ(asked_, (std::vector<std::string>{"s:0", "s:2"})) << "server-0 may have got partitions";
  EXPECT_FALSE(rounds_.Awaits(old, 1));
  Answer(old, 1, absl::OkStatus());
  Answer(old, 0, absl::InvalidArgumentError("no"));
  EXPECT_FALSE(result_.has_value());
  Answer(0, absl::OkStatus());
  Answer(1, absl::OkStatus());
  EXPECT_TRUE(result_->ok());
}

TEST_F(ServerRoundsTest, RoundThatLosesItsPrimariesBeginsAnewWhenTheyAreBack) {
  Start(1);
  SetNoServers();
  Answer(0, absl::OkStatus());
  clock_.Advance(seconds(60));
  Tick();
  EXPECT_FALSE(result_.has_value());
  SetServers({0}, 4);
  EXPECT_EQ(asked_.size(), 2u);
  Answer(0, absl::OkStatus());
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
