// How a server treats its data directory when it registers with different jobs.
#include "server/server_node.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "client_lib/base/testing/fault_env.h"
#include "client_lib/base/testing/job_specs.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/daemon/node_file.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/testing/in_process_transport.h"
#include "gtest/gtest.h"
#include "server/storage/server_log.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;

// A scheduler of one job. Answers on the thread of the test, in Advance.
class FakeScheduler final : public ControlChannel {
 public:
  FakeScheduler(SimulatedClock& clock, const std::string& job, uint64_t job_id) : clock_(clock) {
    registration_.set_node("server-0");
    registration_.set_job_id(job_id);
    registration_.set_heartbeat_interval_ms(100);
    registration_.set_lease_ms(1000);
    *registration_.mutable_job() = ServerJob(SYNC, /*partitions=*/4, /*logical_workers=*/1);
    registration_.mutable_job()->set_name(job);
    registration_.mutable_job()->set_durability(LOG);
    registration_.mutable_job()->mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
  }

  void SetState(JobState state) { state_ = state; }
  void SetDurability(Durability durability) {
    registration_.mutable_job()->set_durability(durability);
  }
  // Ignores RegisterRequest.that_job_only, as an old scheduler does.
  void AcceptOtherJobs() { accepts_other_jobs_ = true; }
  // The job ends while it has no members; registrations for this job only get `refusal`.
  void End(absl::Status refusal = absl::OutOfRangeError("the job has completed")) {
    end_ = std::move(refusal);
  }
  void Disown() { disowns_ = true; }
  void DisownOnce() { disowns_once_ = true; }
  // Stops answering registrations.
  void IgnoreRegistrations() { ignores_registrations_ = true; }
  int members() const { return members_; }
  // From now on routings need a confirmation, which gets `status` at the next Advance.
  void AnswerConfirmations(absl::Status status) { confirmation_ = std::move(status); }
  // The time and epoch of each request for a confirmation.
  const std::vector<std::pair<MonotonicTime, uint64_t>>& confirmations() const {
    return confirmations_;
  }
  // Publishes a routing in which `node` is the primary of all partitions. It has two servers, or
  // `node` alone.
  void GiveAllTo(const std::string& node, bool alone = false) {
    routing_.set_job_id(registration_.job_id());
    routing_.set_epoch(routing_.epoch() + 1);
    routing_.clear_servers();
    routing_.clear_primary();
    for (const char* server : {"server-0", "server-1"}) {
      if (alone && server != node) continue;
      ServerAddress& address = *routing_.add_servers();
      address.set_node(server);
      address.set_incarnation(registration_.incarnation());
    }
    routing_.clear_replicas();
    for (uint32_t p = 0; p < registration_.job().partitions(); ++p) {
      routing_.add_primary(node == "server-0" || alone ? 0 : 1);
      PartitionReplicas& replicas = *routing_.add_replicas();
      if (confirmation_.has_value()) replicas.set_confirm_since(routing_.epoch());
    }
    for (Transport::Done& done : std::exchange(waiting_, {}))
      done(absl::OkStatus(), Message(routing_));
  }

  void Call(const std::string& method, OutgoingMessage request, MonotonicDuration,
            Transport::Done done) override {
    std::string bytes(request.bytes.size(), '\0');
    request.bytes.CopyTo(bytes.data());
    if (method == "/pawl.Scheduler/Register") {
      RegisterRequest registration;
      EXPECT_TRUE(registration.ParseFromString(bytes));
      if (registration.that_job_only() && registration.job_id() != registration_.job_id() &&
          !accepts_other_jobs_) {
        return done(absl::NotFoundError("the job of this scheduler is another one"),
                    IncomingMessage());
      }
      if (registration.that_job_only() && !end_.ok()) return done(end_, IncomingMessage());
      if (ignores_registrations_) return waiting_.push_back(std::move(done));
      ++members_;
      registration_.set_incarnation(registration_.incarnation() + 1);
      return done(absl::OkStatus(), Message(registration_));
    }
    if (method == "/pawl.Scheduler/Goodbye")
      return done(absl::OkStatus(), Message(GoodbyeResponse()));
    if (method == "/pawl.Scheduler/Heartbeat") {
      HeartbeatRequest heartbeat;
      EXPECT_TRUE(heartbeat.ParseFromString(bytes));
      EXPECT_EQ(heartbeat.job_id(), registration_.job_id());
      if (disowns_ || std::exchange(disowns_once_, false))
        return done(absl::AbortedError("its lease has run out"), IncomingMessage());
      HeartbeatResponse response;
      response.set_job_state(state_);
      response.set_lease_ms(1000);
      return done(absl::OkStatus(), Message(response));
    }
    if (method == "/pawl.Scheduler/ConfirmRouting") {
      ConfirmRoutingRequest confirmed;
      EXPECT_TRUE(confirmed.ParseFromString(bytes));
      confirmations_.emplace_back(clock_.Now(), confirmed.epoch());
      // Answer later: the caller may be inside an event.
      return After(MonotonicDuration::zero(),
                   [answer = *confirmation_, done = std::move(done)]() mutable {
                     done(std::move(answer), Message(ConfirmRoutingResponse()));
                   });
    }
    GetRoutingRequest asked;
    EXPECT_EQ(method, "/pawl.Scheduler/GetRouting");
    EXPECT_TRUE(asked.ParseFromString(bytes));
    if (routing_.epoch() > asked.newer_than_epoch())
      return done(absl::OkStatus(), Message(routing_));
    waiting_.push_back(std::move(done));
  }
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override {
    timers_.emplace(clock_.Now() + delay, std::move(action));
  }
  void Shutdown() override {
    while (!waiting_.empty()) {
      Transport::Done done = std::move(waiting_.front());
      waiting_.pop_front();
      done(absl::CancelledError("the channel is shut down"), IncomingMessage());
    }
  }

  void Advance(MonotonicDuration by) {
    const MonotonicTime end = clock_.Now() + by;
    while (!timers_.empty() && timers_.begin()->first <= end) {
      clock_.Advance(std::max(timers_.begin()->first - clock_.Now(), MonotonicDuration::zero()));
      absl::AnyInvocable<void()> action = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      action();
    }
    clock_.Advance(end - clock_.Now());
  }

 private:
  static IncomingMessage Message(const google::protobuf::MessageLite& message) {
    OutgoingMessage encoded = EncodeSmall(message);
    return {encoded.bytes, encoded.owner};
  }

  SimulatedClock& clock_;
  RegisterResponse registration_;
  JobState state_ = RUNNING;
  bool accepts_other_jobs_ = false;
  absl::Status end_;
  bool disowns_ = false;
  bool disowns_once_ = false;
  bool ignores_registrations_ = false;
  RoutingTable routing_;
  std::optional<absl::Status> confirmation_;
  std::vector<std::pair<MonotonicTime, uint64_t>> confirmations_;
  int members_ = 0;
  std::multimap<MonotonicTime, absl::AnyInvocable<void()>> timers_;
  std::deque<Transport::Done> waiting_;
};

class ServerNodeTest : public testing::Test {
 protected:
  static constexpr int kRounds = 20;
  static constexpr milliseconds kRound{100};

  // Runs one incarnation of the server with that scheduler for at most kRounds rounds. Returns how
  // it ended; OK if it was still running. `each` is called before each round.
  absl::Status RunIncarnation(
      FakeScheduler& scheduler, bool discard_other_job = false,
      const std::function<void(int round, ServerNode& node)>& each = nullptr) {
    ServerLogOptions log_options;
    log_options.data_folder = "/data";
    auto log = ServerLog::Open(env_, log_options);
    if (!log.ok()) return log.status();
    ServerNodeOptions options;
    options.scheduler = "10.0.0.1:7000";
    options.discard_other_job = discard_other_job;
    InProcessTransport peers;
    ServerNode node(options, DataPlaneOptions(), *std::move(log), scheduler, peers, clock_);
    absl::Status ended = node.Start("10.0.0.2:7001");
    bool runs = ended.ok();
    for (int i = 0; runs && i < kRounds; ++i) {
      if (each != nullptr) each(i, node);
      scheduler.Advance(kRound);
      if (const auto end = node.Tick(); end.has_value()) {
        ended = *end;
        runs = false;
      }
    }
    scheduler.Shutdown();
    node.Close();
    peers.Shutdown();
    return ended;
  }
  // Runs an incarnation that ends well, and returns its last round.
  int LastRound(FakeScheduler& scheduler,
                const std::function<void(int round, ServerNode& node)>& each) {
    int last = -1;
    const absl::Status ended =
        RunIncarnation(scheduler, /*discard_other_job=*/false, [&](int round, ServerNode& node) {
          last = round;
          each(round, node);
        });
    EXPECT_TRUE(ended.ok()) << ended;
    return last;
  }
  NodeIdentity Identity() {
    return ReadNodeFile(env_, "/data", kServerDaemon).value_or(NodeIdentity());
  }

  FaultEnv env_{1};
  SimulatedClock clock_;
};

TEST_F(ServerNodeTest, DataOfAnotherRunningJobIsKept) {
  FakeScheduler flights(clock_, "flights", 77);
  ASSERT_TRUE(RunIncarnation(flights).ok());
  NodeIdentity before = Identity();
  for (const bool accepts_other_jobs : {false, true}) {
    FakeScheduler other(clock_, "other", 88);
    if (accepts_other_jobs) other.AcceptOtherJobs();
    const absl::Status refused = RunIncarnation(other);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    for (const char* words : {"data of server-0 in job 'flights' (77)", "not known to have ended",
                              "10.0.0.1:7000", "--discard_other_job", "another --data_dir"}) {
      EXPECT_TRUE(absl::StrContains(refused.message(), words))
          << words << " is not in: " << refused;
    }
    before.set_life(before.life() + 1);
    EXPECT_EQ(Identity().SerializeAsString(), before.SerializeAsString());
    // It never became a member, so it could not have been assigned partitions.
    EXPECT_EQ(other.members(), accepts_other_jobs ? 1 : 0);
  }
  EXPECT_TRUE(RunIncarnation(flights).ok()) << "its own job still takes it";
}

TEST_F(ServerNodeTest, DataOfAnEndedJobIsReplaced) {
  for (const JobState end : {COMPLETED, FAILED, STOPPED}) {
    FakeScheduler first(clock_, "first", 77);
    ASSERT_TRUE(RunIncarnation(first, /*discard_other_job=*/true).ok());
    EXPECT_FALSE(Identity().over());
    first.SetState(end);
    (void)RunIncarnation(first);
    EXPECT_TRUE(Identity().over());
    FakeScheduler second(clock_, "second", 88);
    const absl::Status status = RunIncarnation(second);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(Identity().job_id(), 88u);
    EXPECT_FALSE(Identity().over());
  }
}

TEST_F(ServerNodeTest, ServerThatMissedTheJobsEndEnds) {
  FakeScheduler scheduler(clock_, "flights", 77);
  ASSERT_TRUE(RunIncarnation(scheduler).ok());
  scheduler.End();
  EXPECT_EQ(RunIncarnation(scheduler).code(), absl::StatusCode::kCancelled) << "started again";
  EXPECT_TRUE(Identity().over());
  FakeScheduler next(clock_, "next", 88);
  next.End();
  next.Disown();
  EXPECT_EQ(RunIncarnation(next).code(), absl::StatusCode::kCancelled)
      << "declared dead at the end";
  EXPECT_TRUE(Identity().over());
}

TEST_F(ServerNodeTest, ServerThatMissedTheJobsFailureEndsWithIt) {
  FakeScheduler scheduler(clock_, "flights", 77);
  ASSERT_TRUE(RunIncarnation(scheduler).ok());
  absl::Status failure = absl::OutOfRangeError("the job has failed: server-1 died");
  failure.SetPayload(kPushbackPayloadUrl, absl::Cord(kNeverAgain));
  scheduler.End(failure);
  const absl::Status ended = RunIncarnation(scheduler);
  EXPECT_EQ(ended.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(ended.message(), "the job has failed: server-1 died")) << ended;
  EXPECT_TRUE(Identity().over()) << "the next job may use the folder";
}

TEST_F(ServerNodeTest, ServerThatWasStoppedAsksTheSchedulerFirst) {
  FakeScheduler scheduler(clock_, "flights", 77);
  const absl::Status status =
      RunIncarnation(scheduler, /*discard_other_job=*/false, [&](int round, ServerNode& node) {
        if (round % 5 != 4) return;
        clock_.Advance(std::chrono::hours(1));
        EXPECT_EQ(node.Tick(), std::nullopt);
      });
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ServerNodeTest, ServerEndsWithoutAScheduler) {
  FakeScheduler scheduler(clock_, "flights", 77);
  std::optional<absl::Status> end;
  (void)RunIncarnation(scheduler, /*discard_other_job=*/false, [&](int round, ServerNode& node) {
    // No answer comes while only the clock advances.
    for (int i = 0; round == 5 && i < 30 && !end.has_value(); ++i) {
      clock_.Advance(std::chrono::seconds(30));
      end = node.Tick();
    }
  });
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code(), absl::StatusCode::kUnavailable) << *end;
}

TEST_F(ServerNodeTest, DiscardOtherJobReplacesTheData) {
  FakeScheduler first(clock_, "first", 77);
  ASSERT_TRUE(RunIncarnation(first).ok());
  FakeScheduler second(clock_, "second", 88);
  EXPECT_TRUE(RunIncarnation(second, /*discard_other_job=*/true).ok());
  EXPECT_EQ(Identity().job_id(), 88u);
}

TEST_F(ServerNodeTest, JobWithoutLogLeavesNothingToKeep) {
  FakeScheduler first(clock_, "first", 77);
  first.SetDurability(MEMORY);
  ASSERT_TRUE(RunIncarnation(first).ok());
  FakeScheduler second(clock_, "second", 88);
  EXPECT_TRUE(RunIncarnation(second).ok());
}

// A draining server that is declared dead may hold the only copies.
TEST_F(ServerNodeTest, DrainingServerDeclaredDeadRegistersAgainAndHandsOver) {
  FakeScheduler scheduler(clock_, "flights", 77);
  const int last = LastRound(scheduler, [&](int round, ServerNode& node) {
    if (round == 2) scheduler.GiveAllTo("server-0");
    if (round == 3) node.Drain();
    if (round == 12) scheduler.DisownOnce();
    if (round == 16) {
      EXPECT_EQ(scheduler.members(), 2);
      scheduler.GiveAllTo("server-0");
    }
    if (round == 18) scheduler.GiveAllTo("server-1");
  });
  EXPECT_EQ(last, 18) << "it ends exactly when it has no replicas left";
}

// It may be the first server that registers with a rebuilt scheduler.
TEST_F(ServerNodeTest, DrainingServerThatRegistersAgainWaitsForItsPeers) {
  for (const bool peers_return : {true, false}) {
    FakeScheduler scheduler(clock_, "flights", 77);
    const int last = LastRound(scheduler, [&](int round, ServerNode& node) {
      if (round == 2) scheduler.GiveAllTo("server-0");
      if (round == 3) node.Drain();
      if (round == 4) scheduler.DisownOnce();
      if (round == 6) scheduler.GiveAllTo("server-0", /*alone=*/true);
      if (round == 15 && peers_return) scheduler.GiveAllTo("server-1");
      if (round == 17) scheduler.Advance(std::chrono::seconds(3));
    });
    EXPECT_EQ(last, peers_return ? 15 : 17);
  }
}

TEST_F(ServerNodeTest, DrainingServerAloneInItsJobEndsAtOnce) {
  FakeScheduler scheduler(clock_, "flights", 77);
  const int last = LastRound(scheduler, [&](int round, ServerNode& node) {
    if (round == 2) scheduler.GiveAllTo("server-0", /*alone=*/true);
    if (round == 5) node.Drain();
  });
  EXPECT_EQ(last, 5);
}

TEST_F(ServerNodeTest, DrainingServerThatCannotRegisterAgainEndsInTime) {
  FakeScheduler scheduler(clock_, "flights", 77);
  const int last = LastRound(scheduler, [&](int round, ServerNode& node) {
    if (round == 2) scheduler.GiveAllTo("server-0");
    if (round == 3) node.Drain();
    if (round == 12) {
      scheduler.DisownOnce();
      scheduler.IgnoreRegistrations();
    }
    if (round == 16) scheduler.Advance(ServerNodeOptions().drain_timeout);
  });
  EXPECT_EQ(last, 16);
}

// A partition can be below min_in_sync for as long as a server is away.
TEST_F(ServerNodeTest, PauseAfterRefusedConfirmationGrowsUntilTheNextRouting) {
  FakeScheduler scheduler(clock_, "flights", 77);
  scheduler.AnswerConfirmations(
      absl::FailedPreconditionError("fewer replicas are in sync than min_in_sync"));
  constexpr milliseconds kStep{10};
  const auto pass = [&](ServerNode& node, milliseconds time) {
    for (milliseconds passed{}; passed < time; passed += kStep) {
      scheduler.Advance(kStep);
      EXPECT_FALSE(node.Tick().has_value());
    }
  };
  const absl::Status ended =
      RunIncarnation(scheduler, /*discard_other_job=*/false, [&](int round, ServerNode& node) {
        if (round != 2) return;
        scheduler.GiveAllTo("server-0");
        pass(node, milliseconds(5000));
        const auto& asked = scheduler.confirmations();
        const std::vector<int> pauses_ms = {50, 100, 200, 400, 800, 1000, 1000};
        ASSERT_GT(asked.size(), pauses_ms.size());
        EXPECT_LE(asked.size(), pauses_ms.size() + 2);
        for (size_t i = 0; i < pauses_ms.size(); ++i) {
          EXPECT_GE(asked[i + 1].first - asked[i].first, milliseconds(pauses_ms[i])) << i;
          EXPECT_LE(asked[i + 1].first - asked[i].first, milliseconds(pauses_ms[i]) + 3 * kStep)
              << i;
        }
        const size_t before = asked.size();
        scheduler.GiveAllTo("server-0");
        pass(node, 3 * kStep);
        ASSERT_EQ(asked.size(), before + 1) << "a new routing is confirmed at once";
        EXPECT_EQ(asked[before].second, asked[before - 1].second + 1);
        pass(node, milliseconds(100));
        EXPECT_EQ(asked.size(), before + 2) << "the pauses start over";
        scheduler.AnswerConfirmations(absl::OkStatus());
        pass(node, milliseconds(5000));
        EXPECT_EQ(asked.size(), before + 3) << "a confirmed routing is not confirmed again";
      });
  EXPECT_TRUE(ended.ok()) << ended;
}

}  // namespace
}  // namespace pawl
