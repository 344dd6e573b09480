#include "client_lib/rpc/node_link.h"

#include <deque>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/rpc/control_channel.h"
#include "client_lib/rpc/futures.h"
#include "client_lib/rpc/lease.h"
#include "client_lib/rpc/retry.h"
#include "client_lib/rpc/version.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kRegister[] = "/pawl.Scheduler/Register";
constexpr char kHeartbeat[] = "/pawl.Scheduler/Heartbeat";
constexpr char kGetRouting[] = "/pawl.Scheduler/GetRouting";
constexpr char kGoodbye[] = "/pawl.Scheduler/Goodbye";
constexpr milliseconds kInterval{200};
constexpr milliseconds kLease{3000};

IncomingMessage Message(const google::protobuf::MessageLite& message) {
  auto bytes = std::make_shared<std::string>(message.SerializeAsString());
  IncomingMessage out;
  out.bytes.Append(bytes->data(), bytes->size());
  out.owner = std::move(bytes);
  return out;
}

// Keeps requests until the test answers them, and runs timers when the test advances time. All on
// the test's thread.
class ScriptedChannel final : public ControlChannel {
 public:
  struct Sent {
    std::string method;
    std::string bytes;
    MonotonicDuration timeout;
    Transport::Done done;
  };

  explicit ScriptedChannel(SimulatedClock& clock) : clock_(clock) {}

  void Call(const std::string& method, OutgoingMessage request, MonotonicDuration timeout,
            Transport::Done done) override {
    std::string bytes(request.bytes.size(), '\0');
    request.bytes.CopyTo(bytes.data());
    if (method == kGoodbye) {
      goodbyes.push_back(bytes);
      done(absl::OkStatus(), Message(GoodbyeResponse()));
      return;
    }
    sent.push_back({method, std::move(bytes), timeout, std::move(done)});
  }

  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override {
    timers_.emplace(clock_.Now() + delay, std::move(action));
  }

  void Shutdown() override {}

  // Runs the timers due by then, in order.
  void Advance(MonotonicDuration by) {
    const MonotonicTime end = clock_.Now() + by;
    while (!timers_.empty() && timers_.begin()->first <= end) {
      if (timers_.begin()->first > clock_.Now())
        clock_.Advance(timers_.begin()->first - clock_.Now());
      absl::AnyInvocable<void()> action = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      action();
    }
    clock_.Advance(end - clock_.Now());
  }

  size_t Waiting(const std::string& method) const {
    size_t count = 0;
    for (const Sent& call : sent) count += call.method == method ? 1 : 0;
    return count;
  }

  // Takes the oldest call of the method; the test fails if there is none.
  Sent Take(const std::string& method) {
    for (auto it = sent.begin(); it != sent.end(); ++it) {
      if (it->method != method) continue;
      Sent call = std::move(*it);
      sent.erase(it);
      return call;
    }
    ADD_FAILURE() << "no call of " << method;
    return {method, "", MonotonicDuration::zero(), [](absl::Status, IncomingMessage) {}};
  }

  void Answer(const std::string& method, const google::protobuf::MessageLite& answer) {
    Take(method).done(absl::OkStatus(), Message(answer));
  }
  void Refuse(const std::string& method, const absl::Status& status) {
    Take(method).done(status, IncomingMessage());
  }

  std::deque<Sent> sent;
  std::vector<std::string> goodbyes;

 private:
  SimulatedClock& clock_;
  std::multimap<MonotonicTime, absl::AnyInvocable<void()>> timers_;
};

RegisterResponse Registration(uint64_t incarnation) {
  RegisterResponse response;
  response.set_node("server-3");
  response.set_incarnation(incarnation);
  response.set_heartbeat_interval_ms(kInterval.count());
  response.set_lease_ms(kLease.count());
  return response;
}

RoutingTable Routing(uint64_t epoch) {
  RoutingTable table;
  table.set_epoch(epoch);
  return table;
}

HeartbeatResponse Running() {
  HeartbeatResponse response;
  response.set_job_state(RUNNING);
  return response;
}

class NodeLinkTest : public testing::Test {
 protected:
  NodeLinkTest()
      : link_(channel_, clock_, "scheduler:1",
              {.fill_heartbeat =
                   [this](HeartbeatRequest& request) { request.set_draining(draining_); },
               .heartbeat_answered =
                   [this](const HeartbeatRequest& request) {
                     answered_.push_back(request.draining());
                   },
               .routing =
                   [this](const RoutingTable& table) {
                     epochs_.push_back(table.epoch());
                     last_routing_ = table;
                   },
               .job_state =
                   [this](JobState state, const std::string& failure) {
                     states_.emplace_back(state, failure);
                   },
               .disowned =
                   [this](const absl::Status& why) {
                     disowned_.push_back(why);
                     if (when_disowned_ != nullptr) when_disowned_();
                   }}) {}

  void RegisterAndStart(uint64_t incarnation = 5) {
    auto registered = Register(RegisterRequest(), MonotonicTime::max());
    channel_.Answer(kRegister, Registration(incarnation));
    ASSERT_TRUE(registered.get().ok());
    link_.Start();
    channel_.Advance(milliseconds(0));
  }

  std::future<absl::StatusOr<RegisterResponse>> Register(const RegisterRequest& request,
                                                         MonotonicTime deadline) {
    std::future<absl::StatusOr<RegisterResponse>> registered;
    link_.Register(request, deadline, Fulfilling(registered));
    return registered;
  }

  SimulatedClock clock_;
  ScriptedChannel channel_{clock_};
  bool draining_ = false;
  // `draining` of the heartbeats that the scheduler has answered.
  std::vector<bool> answered_;
  std::vector<uint64_t> epochs_;
  RoutingTable last_routing_;
  std::vector<std::pair<JobState, std::string>> states_;
  std::vector<absl::Status> disowned_;
  std::function<void()> when_disowned_;
  NodeLink link_;
};

TEST(NodeLinkRoutingChannelTest, HeartbeatsContinueWhileRoutingIsAdopted) {
  SimulatedClock clock;
  ScriptedChannel heartbeats(clock);
  ScriptedChannel routing(clock);
  std::promise<void> adopting;
  std::promise<void> adopt;
  NodeLink link(heartbeats, clock, "scheduler:1",
                {.fill_heartbeat = [](HeartbeatRequest&) {},
                 .routing =
                     [&](const RoutingTable&) {
                       adopting.set_value();
                       adopt.get_future().wait();
                     },
                 .job_state = nullptr,
                 .disowned = nullptr},
                &routing);
  std::future<absl::StatusOr<RegisterResponse>> registered;
  link.Register(RegisterRequest(), MonotonicTime::max(), Fulfilling(registered));
  heartbeats.Answer(kRegister, Registration(5));
  ASSERT_TRUE(registered.get().ok());
  link.Start();
  heartbeats.Advance(milliseconds(0));
  routing.Advance(milliseconds(0));
  std::thread adopter([&] { routing.Answer(kGetRouting, Routing(1)); });
  adopting.get_future().wait();
  for (int i = 0; i < 5; ++i) {
    heartbeats.Answer(kHeartbeat, Running());
    heartbeats.Advance(kInterval);
  }
  EXPECT_EQ(heartbeats.Waiting(kHeartbeat), 1u);
  EXPECT_EQ(link.lease_until(), clock.Now() - kInterval + HeldFor(kLease));
  adopt.set_value();
  adopter.join();
}

TEST_F(NodeLinkTest, RegistrationIsRetriedUnderOneNonce) {
  RegisterRequest request;
  request.set_node("server-3");
  auto registered = Register(request, clock_.Now() + seconds(60));
  std::vector<uint64_t> nonces;
  for (int i = 0; i < 5; ++i) {
    ScriptedChannel::Sent call = channel_.Take(kRegister);
    RegisterRequest sent;
    ASSERT_TRUE(sent.ParseFromString(call.bytes));
    EXPECT_EQ(sent.node(), "server-3");
    nonces.push_back(sent.process_nonce());
    call.done(absl::UnavailableError("connection refused"), IncomingMessage());
    channel_.Advance(seconds(1));
  }
  EXPECT_EQ(nonces, std::vector<uint64_t>(5, nonces[0]));
  channel_.Answer(kRegister, Registration(7));
  EXPECT_EQ(registered.get()->incarnation(), 7u);
}

TEST_F(NodeLinkTest, RegistrationEndsAtItsDeadline) {
  auto registered = Register(RegisterRequest(), clock_.Now() + seconds(2));
  for (int i = 0; i < 10 && channel_.Waiting(kRegister) > 0; ++i) {
    channel_.Refuse(kRegister, absl::UnavailableError("connection refused"));
    channel_.Advance(seconds(1));
  }
  const absl::Status status = registered.get().status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("scheduler:1"), std::string::npos) << status;
  EXPECT_NE(status.message().find("connection refused"), std::string::npos) << status;
}

TEST_F(NodeLinkTest, RefusedRegistrationIsNotRepeated) {
  auto registered = Register(RegisterRequest(), MonotonicTime::max());
  channel_.Refuse(kRegister, absl::ResourceExhaustedError("full"));
  channel_.Advance(seconds(1));
  channel_.Refuse(kRegister, absl::InvalidArgumentError("no address"));
  EXPECT_EQ(registered.get().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(channel_.Waiting(kRegister), 0u);
}

TEST_F(NodeLinkTest, ClaimOnADeadNodeIsRetried) {
  auto registered = Register(RegisterRequest(), clock_.Now() + seconds(30));
  for (int i = 0; i < 5; ++i) {
    channel_.Refuse(kRegister, absl::AlreadyExistsError("address a:1 is that of server-0"));
    channel_.Advance(seconds(2));
  }
  channel_.Answer(kRegister, Registration(5));
  EXPECT_TRUE(registered.get().ok()) << "the other node's lease has expired";
  auto refused = Register(RegisterRequest(), clock_.Now() + seconds(3));
  for (int i = 0; i < 3 && channel_.Waiting(kRegister) > 0; ++i) {
    channel_.Refuse(kRegister, absl::AlreadyExistsError("rank 1 is hosted by worker-0"));
    channel_.Advance(seconds(2));
  }
  EXPECT_NE(refused.get().status().message().find("rank 1 is hosted by worker-0"),
            absl::string_view::npos);
}

TEST_F(NodeLinkTest, ClaimOnALiveNodeIsGivenUp) {
  auto registered = Register(RegisterRequest(), MonotonicTime::max());
  for (int i = 0; i < 60 && channel_.Waiting(kRegister) > 0; ++i) {
    channel_.Refuse(kRegister, absl::AlreadyExistsError("address a:1 is that of server-0"));
    channel_.Advance(seconds(2));
  }
  ASSERT_TRUE(IsReady(registered));
  EXPECT_EQ(registered.get().status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(NodeLinkTest, FinalRefusalOfARegistrationIsNotRepeated) {
  auto registered = Register(RegisterRequest(), MonotonicTime::max());
  absl::Status refused = absl::AlreadyExistsError("server-3 is alive");
  refused.SetPayload(kPushbackPayloadUrl, absl::Cord(kNeverAgain));
  channel_.Refuse(kRegister, refused);
  ASSERT_TRUE(IsReady(registered));
  const absl::Status status = registered.get().status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_TRUE(IsFinal(status));
}

TEST_F(NodeLinkTest, RegistrationObeysThePushback) {
  auto registered = Register(RegisterRequest(), MonotonicTime::max());
  absl::Status held = absl::UnavailableError("server-3 may be alive");
  held.SetPayload(kPushbackPayloadUrl, absl::Cord("400"));
  channel_.Refuse(kRegister, held);
  channel_.Advance(milliseconds(399));
  EXPECT_EQ(channel_.Waiting(kRegister), 0u);
  channel_.Advance(milliseconds(1));
  EXPECT_EQ(channel_.Waiting(kRegister), 1u);
}

TEST_F(NodeLinkTest, ServersRegistrationReturnsTheLatestRebuildChallenge) {
  RegisterRequest request;
  request.set_role(SERVER_ROLE);
  auto registered = Register(request, MonotonicTime::max());
  const auto take = [this] {
    ScriptedChannel::Sent call = channel_.Take(kRegister);
    RegisterRequest sent;
    EXPECT_TRUE(sent.ParseFromString(call.bytes));
    call.done(absl::UnavailableError("the scheduler starts"), IncomingMessage());
    channel_.Advance(kMaxBackoff);
    return sent;
  };
  RegisterRequest sent = take();
  EXPECT_TRUE(sent.has_rebuild_challenge());
  EXPECT_EQ(sent.rebuild_challenge(), 0u);
  for (int retries = 0; retries < 10; ++retries) take();
  for (const char* challenge : {"77", "18446744073709551615"}) {
    absl::Status rebuilding = absl::UnavailableError("rebuilding");
    rebuilding.SetPayload(kRebuildChallengePayloadUrl, absl::Cord(challenge));
    channel_.Refuse(kRegister, rebuilding);
    channel_.Advance(kFirstBackoff);
    ASSERT_EQ(channel_.Waiting(kRegister), 1u) << "it is answered at once";
    EXPECT_EQ(absl::StrCat(take().rebuild_challenge()), challenge) << "and kept by later answers";
    EXPECT_EQ(absl::StrCat(take().rebuild_challenge()), challenge);
  }
}

TEST_F(NodeLinkTest, HeartbeatReturnsTheLatestChallenge) {
  RegisterAndStart();
  HeartbeatResponse challenged = Running();
  challenged.set_challenge(77);
  channel_.Answer(kHeartbeat, challenged);
  channel_.Advance(kInterval);
  HeartbeatRequest sent;
  ASSERT_TRUE(sent.ParseFromString(channel_.Take(kHeartbeat).bytes));
  EXPECT_EQ(sent.challenge(), 77u);
}

TEST_F(NodeLinkTest, AnsweredHeartbeatIsReportedWithItsContent) {
  RegisterAndStart();
  draining_ = true;
  channel_.Advance(kInterval);
  ScriptedChannel::Sent first = channel_.Take(kHeartbeat);
  ScriptedChannel::Sent second = channel_.Take(kHeartbeat);
  EXPECT_TRUE(answered_.empty());
  second.done(absl::OkStatus(), Message(Running()));
  EXPECT_EQ(answered_, std::vector<bool>({true}));
  first.done(absl::UnavailableError("lost"), {});
  EXPECT_EQ(answered_, std::vector<bool>({true}));
}

TEST_F(NodeLinkTest, ConfirmationOfAnEarlierIncarnationIsIgnored) {
  RegisterAndStart();
  std::vector<absl::Status> confirmed;
  link_.ConfirmRouting(9, [&](absl::Status status) { confirmed.push_back(std::move(status)); });
  ScriptedChannel::Sent call = channel_.Take("/pawl.Scheduler/ConfirmRouting");
  ConfirmRoutingRequest request;
  ASSERT_TRUE(request.ParseFromString(call.bytes));
  EXPECT_EQ(request.node(), "server-3");
  EXPECT_EQ(request.incarnation(), 5u);
  EXPECT_EQ(request.epoch(), 9u);
  call.done(absl::OkStatus(), Message(ConfirmRoutingResponse()));
  EXPECT_EQ(confirmed.size(), 1u);
  link_.ConfirmRouting(10, [&](absl::Status status) { confirmed.push_back(std::move(status)); });
  ScriptedChannel::Sent late = channel_.Take("/pawl.Scheduler/ConfirmRouting");
  RegisterAndStart(6);
  late.done(absl::OkStatus(), Message(ConfirmRoutingResponse()));
  EXPECT_EQ(confirmed.size(), 1u);
}

TEST_F(NodeLinkTest, RegistrationsOfAProcessAreNumbered) {
  uint64_t nonce = 0;
  uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    auto registered = Register(RegisterRequest(), MonotonicTime::max());
    RegisterRequest sent;
    ScriptedChannel::Sent call = channel_.Take(kRegister);
    ASSERT_TRUE(sent.ParseFromString(call.bytes));
    EXPECT_GT(sent.registration(), last);
    last = sent.registration();
    if (i > 0) {
      EXPECT_EQ(sent.process_nonce(), nonce);
    }
    nonce = sent.process_nonce();
    call.done(absl::OkStatus(), Message(Registration(i + 1)));
    ASSERT_TRUE(registered.get().ok());
  }
}

TEST_F(NodeLinkTest, EndedIncarnationRegistersOnceMore) {
  auto registered = Register(RegisterRequest(), MonotonicTime::max());
  ScriptedChannel::Sent first = channel_.Take(kRegister);
  first.done(absl::AbortedError("an incarnation that has ended"), IncomingMessage());
  ScriptedChannel::Sent second = channel_.Take(kRegister);
  RegisterRequest before, after;
  ASSERT_TRUE(before.ParseFromString(first.bytes) && after.ParseFromString(second.bytes));
  EXPECT_EQ(after.process_nonce(), before.process_nonce());
  EXPECT_GT(after.registration(), before.registration());
  second.done(absl::AbortedError("another process is that node"), IncomingMessage());
  EXPECT_EQ(channel_.Waiting(kRegister), 0u);
  EXPECT_EQ(registered.get().status().code(), absl::StatusCode::kAborted);
}

TEST_F(NodeLinkTest, LostAnswerAllowsAnotherRegistration) {
  auto registered = Register(RegisterRequest(), MonotonicTime::max());
  RegisterRequest last;
  for (int i = 0; i < 3; ++i) {
    channel_.Take(kRegister).done(absl::AbortedError("an incarnation that has ended"),
                                  IncomingMessage());
    channel_.Take(kRegister).done(absl::DeadlineExceededError("lost"), IncomingMessage());
    channel_.Advance(kMaxBackoff);
  }
  ScriptedChannel::Sent sent = channel_.Take(kRegister);
  ASSERT_TRUE(last.ParseFromString(sent.bytes));
  EXPECT_EQ(last.registration(), 4u);
  sent.done(absl::OkStatus(), Message(Registration(5)));
  EXPECT_TRUE(registered.get().ok());
}

TEST_F(NodeLinkTest, SchedulerWithAnotherProtocolIsRefused) {
  auto registered = Register(RegisterRequest(), MonotonicTime::max());
  ScriptedChannel::Sent call = channel_.Take(kRegister);
  RegisterRequest sent;
  ASSERT_TRUE(sent.ParseFromString(call.bytes));
  EXPECT_EQ(sent.version(), kVersion);
  EXPECT_EQ(sent.oldest_protocol(), kOldestProtocol);
  EXPECT_EQ(sent.newest_protocol(), kNewestProtocol);
  RegisterResponse response = Registration(5);
  response.set_protocol(kNewestProtocol + 1);
  call.done(absl::OkStatus(), Message(response));
  EXPECT_EQ(registered.get().status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(link_.lease_until(), MonotonicTime::min());
}

TEST_F(NodeLinkTest, ServerRequiresItsProtocolOfTheScheduler) {
  RegisterRequest request;
  request.set_role(SERVER_ROLE);
  auto registered = Register(request, MonotonicTime::max());
  RegisterRequest sent;
  ASSERT_TRUE(sent.ParseFromString(channel_.Take(kRegister).bytes));
  EXPECT_EQ(sent.oldest_protocol(), kOldestServerProtocol);
  EXPECT_EQ(sent.newest_protocol(), kNewestProtocol);
}

TEST_F(NodeLinkTest, LeaseStartsWhenTheAnsweredHeartbeatWasSent) {
  EXPECT_EQ(link_.lease_until(), MonotonicTime::min());
  auto registered = Register(RegisterRequest(), MonotonicTime::max());
  const MonotonicTime registration_sent = clock_.Now();
  channel_.Advance(milliseconds(100));
  channel_.Answer(kRegister, Registration(5));
  ASSERT_TRUE(registered.get().ok());
  EXPECT_EQ(link_.lease_until(), registration_sent + HeldFor(kLease));
  link_.Start();
  channel_.Advance(milliseconds(0));
  const MonotonicTime first_sent = clock_.Now();
  channel_.Advance(kInterval);
  const MonotonicTime second_sent = clock_.Now();
  ASSERT_EQ(channel_.Waiting(kHeartbeat), 2u);
  ScriptedChannel::Sent first = channel_.Take(kHeartbeat);
  channel_.Advance(milliseconds(50));
  channel_.Answer(kHeartbeat, Running());
  EXPECT_EQ(link_.lease_until(), second_sent + HeldFor(kLease));
  // An older answer does not shorten the lease.
  first.done(absl::OkStatus(), Message(Running()));
  EXPECT_EQ(link_.lease_until(), second_sent + HeldFor(kLease));
  EXPECT_LT(first_sent, second_sent);
}

TEST_F(NodeLinkTest, LeaseExpiresDuringSuspendAndBeforeTheScheduler) {
  RegisterAndStart();
  ASSERT_GT(link_.lease_until(), clock_.LeaseNow());
  EXPECT_LT(link_.lease_until(), clock_.LeaseNow() + kLease);
  clock_.Suspend(kLease);
  EXPECT_LT(link_.lease_until(), clock_.LeaseNow());
  // The answer to a heartbeat sent before the suspension renews nothing.
  channel_.Answer(kHeartbeat, Running());
  EXPECT_LT(link_.lease_until(), clock_.LeaseNow());
}

TEST_F(NodeLinkTest, UnansweredHeartbeatsHaveALimit) {
  RegisterAndStart();
  draining_ = true;
  channel_.Advance(kInterval * 100);
  const size_t in_progress = channel_.Waiting(kHeartbeat);
  EXPECT_GE(in_progress, 4u);
  EXPECT_LE(in_progress, 16u);
  // A minute without the scheduler ends nothing.
  for (int i = 0; i < 300; ++i) {
    while (channel_.Waiting(kHeartbeat) > 0)
      channel_.Refuse(kHeartbeat, absl::UnavailableError("gone"));
    channel_.Advance(kInterval);
  }
  EXPECT_TRUE(disowned_.empty());
  EXPECT_GE(link_.silence(), seconds(60));
  EXPECT_LT(link_.lease_until(), clock_.Now());
  ScriptedChannel::Sent call = channel_.Take(kHeartbeat);
  HeartbeatRequest sent;
  ASSERT_TRUE(sent.ParseFromString(call.bytes));
  EXPECT_EQ(sent.node(), "server-3");
  EXPECT_EQ(sent.incarnation(), 5u);
  EXPECT_TRUE(sent.draining());
  call.done(absl::OkStatus(), Message(Running()));
  EXPECT_GT(link_.lease_until(), clock_.Now());
  EXPECT_EQ(link_.silence(), seconds(0));
}

TEST_F(NodeLinkTest, RoutingIsAlwaysBeingRequested) {
  RegisterAndStart();
  const auto asked_after = [&] {
    ScriptedChannel::Sent call = channel_.Take(kGetRouting);
    GetRoutingRequest sent;
    EXPECT_TRUE(sent.ParseFromString(call.bytes));
    const uint64_t epoch = sent.newer_than_epoch();
    channel_.sent.push_back(std::move(call));
    return epoch;
  };
  EXPECT_EQ(asked_after(), 0u);
  channel_.Answer(kGetRouting, Routing(1));
  EXPECT_EQ(asked_after(), 1u);
  // The scheduler had nothing new: the link asks again at once.
  channel_.Advance(seconds(10));
  channel_.Refuse(kGetRouting, absl::DeadlineExceededError("nothing new"));
  EXPECT_EQ(asked_after(), 1u);
  channel_.Answer(kGetRouting, Routing(4));
  EXPECT_EQ(asked_after(), 4u);
  // A table that is not newer is no event and causes no busy loop.
  channel_.Answer(kGetRouting, Routing(4));
  EXPECT_EQ(channel_.Waiting(kGetRouting), 0u);
  channel_.Advance(seconds(1));
  EXPECT_EQ(asked_after(), 4u);
  channel_.Refuse(kGetRouting, absl::UnavailableError("gone"));
  channel_.Advance(seconds(2));
  EXPECT_EQ(asked_after(), 4u);
  EXPECT_EQ(epochs_, (std::vector<uint64_t>{1, 4}));
}

TEST_F(NodeLinkTest, MisfitRoutingChangesCauseAFullRequest) {
  RegisterAndStart();
  const auto asked = [&] {
    ScriptedChannel::Sent call = channel_.Take(kGetRouting);
    GetRoutingRequest sent;
    EXPECT_TRUE(sent.ParseFromString(call.bytes));
    channel_.sent.push_back(std::move(call));
    return sent;
  };
  EXPECT_FALSE(asked().accepts_changes()) << "no table yet";
  RoutingTable whole = Routing(1);
  whole.add_servers()->set_node("server-0");
  for (int p = 0; p < 2; ++p) {
    whole.add_primary(0);
    whole.add_replicas();
  }
  channel_.Answer(kGetRouting, whole);
  EXPECT_TRUE(asked().accepts_changes());
  RoutingTable changes = Routing(3);
  changes.set_since_epoch(1);
  changes.add_changed(1);
  changes.add_primary(UINT32_MAX);
  changes.add_replicas();
  channel_.Answer(kGetRouting, changes);
  EXPECT_EQ(epochs_, (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(last_routing_.primary_size(), 2);
  EXPECT_EQ(last_routing_.primary(1), UINT32_MAX);
  EXPECT_EQ(last_routing_.servers_size(), 1);
  EXPECT_EQ(last_routing_.since_epoch(), 0u);

  changes.set_epoch(4);
  channel_.Answer(kGetRouting, changes);
  EXPECT_EQ(epochs_.size(), 2u) << "changes of another table";
  channel_.Advance(seconds(2));
  EXPECT_EQ(asked().newer_than_epoch(), 3u);
  EXPECT_FALSE(asked().accepts_changes());
  whole.set_epoch(4);
  channel_.Answer(kGetRouting, whole);
  EXPECT_EQ(epochs_, (std::vector<uint64_t>{1, 3, 4}));
  EXPECT_TRUE(asked().accepts_changes());
}

TEST_F(NodeLinkTest, JobStateNeverGoesBack) {
  RegisterAndStart();
  channel_.Advance(kInterval * 4);
  channel_.Answer(kHeartbeat, Running());
  HeartbeatResponse starting;
  starting.set_job_state(STARTING);
  channel_.Answer(kHeartbeat, starting);
  channel_.Answer(kHeartbeat, Running());
  HeartbeatResponse failed;
  failed.set_job_state(FAILED);
  failed.set_failure("worker-1 is dead");
  channel_.Answer(kHeartbeat, failed);
  HeartbeatResponse stopped;
  stopped.set_job_state(STOPPED);
  channel_.Answer(kHeartbeat, stopped);
  EXPECT_EQ(states_, (std::vector<std::pair<JobState, std::string>>{{RUNNING, ""},
                                                                    {FAILED, "worker-1 is dead"}}));
}

TEST_F(NodeLinkTest, DisownedNodeMayRegisterFromTheEvent) {
  absl::StatusOr<RegisterResponse> again;
  when_disowned_ = [&] {
    link_.Register(RegisterRequest(), MonotonicTime::max(),
                   [&](absl::StatusOr<RegisterResponse> response) {
                     again = std::move(response);
                     link_.Start();
                   });
  };
  RegisterAndStart(5);
  channel_.Answer(kGetRouting, Routing(3));
  channel_.Advance(kInterval * 2);
  ASSERT_GE(channel_.Waiting(kHeartbeat), 3u);
  channel_.Refuse(kHeartbeat, absl::AbortedError("its lease has run out"));
  ASSERT_EQ(disowned_.size(), 1u);
  EXPECT_EQ(link_.lease_until(), MonotonicTime::min());
  // A late answer of the old incarnation neither restores the lease nor causes a second event.
  channel_.Answer(kHeartbeat, Running());
  channel_.Refuse(kHeartbeat, absl::AbortedError("its lease has run out"));
  EXPECT_EQ(disowned_.size(), 1u);
  EXPECT_EQ(link_.lease_until(), MonotonicTime::min());
  channel_.Advance(seconds(5));
  EXPECT_EQ(channel_.Waiting(kHeartbeat), 0u);
  channel_.Answer(kRegister, Registration(9));
  ASSERT_TRUE(again.ok());
  channel_.Advance(milliseconds(0));
  HeartbeatRequest sent;
  ASSERT_TRUE(sent.ParseFromString(channel_.Take(kHeartbeat).bytes));
  EXPECT_EQ(sent.incarnation(), 9u);
  // Routing is requested afresh; the call of the old incarnation is ignored.
  channel_.Answer(kGetRouting, Routing(8));
  EXPECT_EQ(epochs_, (std::vector<uint64_t>{3}));
  channel_.Answer(kGetRouting, Routing(8));
  EXPECT_EQ(epochs_, (std::vector<uint64_t>{3, 8}));
}

TEST_F(NodeLinkTest, CloseSaysGoodbyeOnceAndLast) {
  RegisterAndStart();
  link_.Close();
  link_.Close();
  ASSERT_EQ(channel_.goodbyes.size(), 1u);
  GoodbyeRequest goodbye;
  ASSERT_TRUE(goodbye.ParseFromString(channel_.goodbyes[0]));
  EXPECT_EQ(goodbye.node(), "server-3");
  EXPECT_EQ(goodbye.incarnation(), 5u);
  channel_.Answer(kHeartbeat, Running());
  channel_.Answer(kGetRouting, Routing(1));
  channel_.Advance(seconds(10));
  EXPECT_TRUE(states_.empty());
  EXPECT_TRUE(epochs_.empty());
  EXPECT_EQ(link_.lease_until(), MonotonicTime::min());
  EXPECT_TRUE(channel_.sent.empty());
}

TEST_F(NodeLinkTest, RegistrationFromTheEventMayMissItsDeadline) {
  absl::StatusOr<RegisterResponse> again;
  when_disowned_ = [&] {
    link_.Register(RegisterRequest(), clock_.Now(),
                   [&](absl::StatusOr<RegisterResponse> response) { again = std::move(response); });
  };
  RegisterAndStart();
  channel_.Refuse(kHeartbeat, absl::AbortedError("its lease has run out"));
  channel_.Advance(milliseconds(0));
  EXPECT_EQ(again.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(NodeLinkTest, RegistrationAfterCloseIsCancelled) {
  link_.Close();
  auto registered = Register(RegisterRequest(), MonotonicTime::max());
  ASSERT_TRUE(IsReady(registered));
  EXPECT_EQ(registered.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(channel_.sent.empty());
}

TEST_F(NodeLinkTest, CloseEndsAPendingRegistration) {
  auto registered = Register(RegisterRequest(), MonotonicTime::max());
  link_.Close();
  EXPECT_EQ(registered.get().status().code(), absl::StatusCode::kCancelled);
  channel_.Answer(kRegister, Registration(5));
  EXPECT_EQ(link_.lease_until(), MonotonicTime::min());
  EXPECT_TRUE(channel_.goodbyes.empty());
}

}  // namespace
}  // namespace pawl
