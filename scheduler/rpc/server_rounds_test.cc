#include "scheduler/rpc/server_rounds.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/cord.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/rpc/transport.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Records the calls_in_flight; the test answers them.
class SilentServers final : public ServerCaller {
 public:
  struct PendingCall {
    std::string address;
    uint64_t epoch = 0;
    MonotonicDuration timeout{};
    std::shared_ptr<google::protobuf::Message> response;
    Done done;
  };

  void Call(const std::string& address, const std::string&,
            const google::protobuf::Message& request, MonotonicDuration timeout,
            std::shared_ptr<google::protobuf::Message> response, Done done) override {
    const uint64_t epoch = request.GetReflection()->GetUInt64(
        request, request.GetDescriptor()->FindFieldByName("routing_epoch"));
    calls_in_flight.push_back({address, epoch, timeout, std::move(response), std::move(done)});
  }

  // Unanswered calls_in_flight, oldest first.
  std::deque<PendingCall> calls_in_flight;
};

class ServerRoundsTest : public testing::Test {
 protected:
  void SetServers(std::vector<int> numbers, uint64_t epoch = 1) {
    ServerRounds::Targets targets;
    targets.epoch = epoch;
    for (const int number : numbers) {
      targets.servers.push_back(
          {"server-" + std::to_string(number), "s:" + std::to_string(number)});
    }
    DeferredActions actions;
    rounds_.SetTargets(std::move(targets), clock_.Now(), actions);
  }
  void SetNoServers() {
    DeferredActions actions;
    rounds_.SetTargets(std::nullopt, clock_.Now(), actions);
  }
  void Ask() {
    DeferredActions actions;
    rounds_.Ask(
        "asking", {clock_.Now(), seconds(2)}, kCreateTableRpc, CreateTableOnServerRequest(),
        [this](const absl::Status& status, DeferredActions&) { result_ = status; }, actions);
  }
  void Ask(int servers) {
    SetServers(UpTo(servers));
    Ask();
  }
  void Gather(int servers, MonotonicDuration call_timeout = MonotonicDuration::max()) {
    SetServers(UpTo(servers));
    DeferredActions actions;
    rounds_.Gather(
        "gathering", {clock_.Now(), seconds(2), call_timeout}, kInspectRpc, InspectRequest(),
        [this](const absl::StatusOr<std::vector<InspectResponse>>& answers, DeferredActions&) {
          result_ = answers.status();
          steps_.clear();
          if (!answers.ok()) return;
          for (const InspectResponse& answer : *answers) steps_.push_back(answer.counters().step());
        },
        actions);
  }
  static std::vector<int> UpTo(int servers) {
    std::vector<int> numbers;
    for (int i = 0; i < servers; ++i) numbers.push_back(i);
    return numbers;
  }
  // The servers that have not answered.
  std::vector<std::string> Asked() const {
    std::vector<std::string> addresses;
    for (const SilentServers::PendingCall& pending : servers_.calls_in_flight)
      addresses.push_back(pending.address);
    return addresses;
  }
  // Answers the oldest pending to `server`.
  void Answer(int server, const absl::Status& status, uint64_t step = 0) {
    const auto it = std::find_if(
        servers_.calls_in_flight.begin(), servers_.calls_in_flight.end(),
        [&](const auto& pending) { return pending.address == "s:" + std::to_string(server); });
    ASSERT_NE(it, servers_.calls_in_flight.end());
    SilentServers::PendingCall pending = std::move(*it);
    servers_.calls_in_flight.erase(it);
    if (auto* inspected = dynamic_cast<InspectResponse*>(pending.response.get()))
      inspected->mutable_counters()->set_step(step);
    pending.done(status);
  }
  void Done(int server) { Answer(server, absl::OkStatus()); }
  void DoneAtStep(int server, uint64_t step) { Answer(server, absl::OkStatus(), step); }
  void Tick() {
    DeferredActions actions;
    rounds_.Tick(clock_.Now(), actions);
  }

  SimulatedClock clock_;
  SilentServers servers_;
  ServerRounds rounds_{servers_, [](absl::FunctionRef<void(DeferredActions&)> take) {
                         DeferredActions actions;
                         take(actions);
                       }};
  std::optional<absl::Status> result_;
  std::vector<uint64_t> steps_;
};

TEST_F(ServerRoundsTest, RoundEndsWithTheLastAnswer) {
  Ask(2);
  EXPECT_EQ(Asked(), (std::vector<std::string>{"s:0", "s:1"}));
  Done(1);
  EXPECT_FALSE(result_.has_value());
  Done(0);
  EXPECT_TRUE(result_->ok());
}

TEST_F(ServerRoundsTest, TransientRefusalIsRetried) {
  Ask(1);
  absl::Status full = absl::ResourceExhaustedError("the disk is full");
  full.SetPayload(kPushbackPayloadUrl, absl::Cord("20"));
  Answer(0, full);
  EXPECT_FALSE(result_.has_value());
  EXPECT_TRUE(Asked().empty()) << "not before the next tick";
  Tick();
  EXPECT_EQ(Asked(), (std::vector<std::string>{"s:0"}));
  Answer(0, absl::ResourceExhaustedError("the message is too large"));
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ServerRoundsTest, UnavailableServerIsAskedAgainAtTheNextTick) {
  Ask(2);
  Answer(0, absl::UnavailableError("connection refused"));
  Done(1);
  Tick();
  EXPECT_EQ(Asked(), (std::vector<std::string>{"s:0"}));
  Tick();
  EXPECT_EQ(Asked().size(), 1u) << "asked twice at one time";
  Done(0);
  EXPECT_TRUE(result_->ok());
}

TEST_F(ServerRoundsTest, TimedOutServerIsAskedAgain) {
  Ask(1);
  Answer(0, absl::DeadlineExceededError("a backup is away"));
  EXPECT_FALSE(result_.has_value());
  Tick();
  Done(0);
  EXPECT_TRUE(result_->ok());
}

TEST_F(ServerRoundsTest, PostponedTimeDoesNotCount) {
  Ask(1);
  clock_.Advance(seconds(60));
  rounds_.Postpone(seconds(60));
  Tick();
  EXPECT_FALSE(result_.has_value());
  clock_.Advance(seconds(2));
  Tick();
  EXPECT_TRUE(result_.has_value());
}

TEST_F(ServerRoundsTest, PermanentErrorEndsTheRound) {
  Ask(2);
  Answer(1, absl::InvalidArgumentError("row_width is 0"));
  EXPECT_EQ(*result_, absl::InvalidArgumentError("server-1: asking: row_width is 0"));
  Done(0);
}

TEST_F(ServerRoundsTest, DeadlineEndsTheRoundWithTheLastError) {
  Ask(2);
  Answer(0, absl::UnavailableError("connection refused"));
  clock_.Advance(milliseconds(1999));
  Tick();
  EXPECT_FALSE(result_.has_value());
  clock_.Advance(milliseconds(1));
  Tick();
  EXPECT_EQ(*result_, absl::UnavailableError("server-0: asking: connection refused"));
}

TEST_F(ServerRoundsTest, SilentServerEndsTheRoundAtItsDeadline) {
  Ask(1);
  clock_.Advance(seconds(2));
  Tick();
  EXPECT_EQ(result_->code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ServerRoundsTest, RoundWithoutPrimariesHasNoDeadline) {
  Ask();
  clock_.Advance(seconds(100));
  Tick();
  EXPECT_FALSE(result_.has_value());
  EXPECT_TRUE(Asked().empty());
  SetServers({3}, 9);
  EXPECT_EQ(Asked(), (std::vector<std::string>{"s:3"}));
  EXPECT_EQ(servers_.calls_in_flight[0].epoch, 9u);
  EXPECT_EQ(servers_.calls_in_flight[0].timeout, seconds(2));
  Done(3);
  EXPECT_TRUE(result_->ok());
}

TEST_F(ServerRoundsTest, NewPrimariesRestartTheRound) {
  Ask(3);
  Done(0);
  SetServers({0, 2}, 5);
  EXPECT_EQ(Asked(), (std::vector<std::string>{"s:1", "s:2", "s:0", "s:2"}))
      << "server-0 may have new partitions";
  Answer(1, absl::InvalidArgumentError("no"));
  Done(2);
  EXPECT_FALSE(result_.has_value()) << "the answer is of the former attempt";
  Done(0);
  EXPECT_FALSE(result_.has_value()) << "server-2 has not answered in this attempt";
  Done(2);
  EXPECT_TRUE(result_->ok());
}

TEST_F(ServerRoundsTest, RoundRestartsWhenPrimariesReturn) {
  Ask(1);
  SetNoServers();
  Done(0);
  clock_.Advance(seconds(60));
  Tick();
  EXPECT_FALSE(result_.has_value());
  SetServers({0}, 4);
  EXPECT_EQ(Asked().size(), 1u);
  Done(0);
  EXPECT_TRUE(result_->ok());
}

TEST_F(ServerRoundsTest, LateRoundMayAbandonAnother) {
  SetServers({0});
  DeferredActions actions;
  int ended = 0;
  for (int i = 0; i < 2; ++i) {
    rounds_.Ask(
        "asking", {clock_.Now(), seconds(2)}, kCreateTableRpc, CreateTableOnServerRequest(),
        [&](const absl::Status&, DeferredActions&) {
          ++ended;
          rounds_.Abandon();
        },
        actions);
  }
  clock_.Advance(seconds(2));
  Tick();
  EXPECT_EQ(ended, 1);
}

TEST_F(ServerRoundsTest, AbandonedRoundHasNoResult) {
  Ask(1);
  rounds_.Abandon();
  Done(0);
  EXPECT_FALSE(result_.has_value());
}

TEST_F(ServerRoundsTest, GatherReturnsOneAnswerOfEachPrimary) {
  Gather(2);
  DoneAtStep(1, 11);
  EXPECT_FALSE(result_.has_value());
  DoneAtStep(0, 10);
  EXPECT_TRUE(result_->ok());
  EXPECT_EQ(steps_, (std::vector<uint64_t>{10, 11}));
}

TEST_F(ServerRoundsTest, AnswersOfFormerPrimariesAreDropped) {
  Gather(3);
  DoneAtStep(2, 12);
  SetServers({0, 1}, 5);
  DoneAtStep(0, 10);
  DoneAtStep(1, 11);
  EXPECT_FALSE(result_.has_value()) << "of the attempt before";
  DoneAtStep(0, 20);
  DoneAtStep(1, 21);
  EXPECT_EQ(steps_, (std::vector<uint64_t>{20, 21}));
}

TEST_F(ServerRoundsTest, CallTimeoutMayBeShorterThanTheRounds) {
  Gather(1, milliseconds(300));
  EXPECT_EQ(servers_.calls_in_flight[0].timeout, milliseconds(300));
  clock_.Advance(milliseconds(300));
  Answer(0, absl::DeadlineExceededError("no answer"));
  Tick();
  EXPECT_EQ(Asked(), (std::vector<std::string>{"s:0"}));
  clock_.Advance(milliseconds(1500));
  Answer(0, absl::DeadlineExceededError("no answer"));
  Tick();
  EXPECT_EQ(servers_.calls_in_flight[0].timeout, milliseconds(200)) << "the remaining time";
}

}  // namespace
}  // namespace pawl
