#include "scheduler/membership/membership.h"

#include <limits>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/rpc/transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/store/state_store.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;

RegisterRequest Server(uint64_t nonce) {
  RegisterRequest request;
  request.set_role(SERVER_ROLE);
  request.set_process_nonce(nonce);
  request.set_address(absl::StrCat("127.0.0.1:", 4000 + nonce));
  request.set_description(absl::StrCat("host pid ", nonce));
  return request;
}

RegisterRequest Other(Role role, uint64_t nonce) {
  RegisterRequest request;
  request.set_role(role);
  request.set_process_nonce(nonce);
  return request;
}

// As the node server-0 in a later incarnation.
RegisterRequest Returning(RegisterRequest request, uint32_t start_count) {
  request.set_node("server-0");
  request.set_start_count(start_count);
  return request;
}

HeartbeatRequest From(const Node& node) {
  HeartbeatRequest request;
  request.set_node(node.name);
  request.set_incarnation(node.incarnation);
  return request;
}

Membership::Options Options() {
  return {
      .job_id = 77, .lease = milliseconds(1000), .silence = milliseconds(0), .logical_workers = 4};
}

class MembershipTest : public testing::Test {
 protected:
  absl::StatusOr<Node> Join(const RegisterRequest& request) {
    const auto registration = membership_.Register(request, clock_.Now());
    if (!registration.ok()) return registration.status();
    return *registration->node;
  }
  absl::Status Beat(const Node& node) {
    return membership_.Heartbeat(From(node), 0, clock_.Now()).status();
  }
  // Returns how many nodes have died.
  size_t ExpireAll() {
    clock_.Advance(milliseconds(1001));
    return membership_.ExpireLeases(clock_.Now()).size();
  }

  SimulatedClock clock_;
  Membership membership_{Options()};
};

TEST_F(MembershipTest, NodesAreNumberedByRoleAndIncarnationsGrow) {
  EXPECT_EQ(Join(Server(1))->name, "server-0");
  EXPECT_EQ(Join(Other(WORKER_ROLE, 2))->name, "worker-0");
  const Node second = *Join(Server(3));
  EXPECT_EQ(second.name, "server-1");
  EXPECT_EQ(second.incarnation, 3u);
  EXPECT_EQ(NodeText(second), "server-1 (host pid 3, 127.0.0.1:4003)");
}

TEST_F(MembershipTest, RepeatedRegistrationReturnsTheSameNode) {
  const Node first = *Join(Server(1));
  const auto again = membership_.Register(Server(1), clock_.Now());
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->is_new);
  EXPECT_EQ(again->node->incarnation, first.incarnation);
  EXPECT_EQ(membership_.PresentCount(), 1u);
}

TEST_F(MembershipTest, RefusedRegistrationLeavesNoTrace) {
  EXPECT_EQ(Join(Server(0)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(membership_.All().size(), 0u);
}

TEST_F(MembershipTest, AddressOfALivingServerIsRefused) {
  ASSERT_TRUE(Join(Server(1)).ok());
  RegisterRequest request = Server(2);
  request.set_address("127.0.0.1:4001");
  const auto second = Join(request);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(second.status().message().find("server-0"), absl::string_view::npos);
}

TEST_F(MembershipTest, RegistrationBeyondTheLimitIsRefused) {
  StoredMembership stored;
  for (uint32_t i = 0; i < kMaxServers + 1 + kMaxWorkers; ++i) {
    StoredNode& node = *stored.add_nodes();
    node.set_role(i <= kMaxServers ? SERVER_ROLE : WORKER_ROLE);
    node.set_number(i);
    node.set_name(absl::StrCat(i <= kMaxServers ? "server-" : "worker-", i));
    node.set_gone(i == 0);
  }
  membership_.Restore(stored, clock_.Now(), milliseconds(0));
  EXPECT_EQ(Join(Server(3)).status().message(), "there are 1024 servers, the limit");
  EXPECT_EQ(Join(Returning(Server(4), 1)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Join(Other(WORKER_ROLE, 14)).status().message(), "there are 16384 workers, the limit");
  for (uint64_t nonce = 100; nonce < 100 + kMaxClients; ++nonce)
    ASSERT_TRUE(Join(Other(CLIENT_ROLE, nonce)).ok());
  EXPECT_EQ(Join(Other(CLIENT_ROLE, 99999)).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(MembershipTest, LeaseExpiresOnlyWithoutHeartbeats) {
  const Node beating = *Join(Server(1));
  const Node silent = *Join(Server(2));
  for (int i = 0; i < 5; ++i) {
    clock_.Advance(milliseconds(200));
    ASSERT_TRUE(Beat(beating).ok());
    EXPECT_TRUE(membership_.ExpireLeases(clock_.Now()).empty());
  }
  clock_.Advance(milliseconds(1));
  const std::vector<Node> dead = membership_.ExpireLeases(clock_.Now());
  ASSERT_EQ(dead.size(), 1u);
  EXPECT_EQ(dead[0].name, "server-1");
  EXPECT_TRUE(membership_.ExpireLeases(clock_.Now()).empty());
}

TEST_F(MembershipTest, EndedIncarnationIsAbortedForGood) {
  const Node node = *Join(Server(1));
  ASSERT_EQ(ExpireAll(), 1u);
  EXPECT_TRUE(membership_.All().at(0)->gone);
  EXPECT_EQ(Beat(node).code(), absl::StatusCode::kAborted);
  const auto again = membership_.Register(Server(1), clock_.Now());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->is_new);
  EXPECT_TRUE(again->returned);
  EXPECT_FALSE(again->former.has_value()) << "it had ended before";
  EXPECT_EQ(again->node->name, node.name);
  EXPECT_GT(again->node->incarnation, node.incarnation);
  EXPECT_EQ(Beat(node).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(Beat(*again->node).ok());
}

TEST_F(MembershipTest, RepeatedRegistrationRenewsNoRefusedLease) {
  RegisterRequest request = Server(1);
  request.set_registration(1);
  const Node node = *Join(request);
  clock_.Advance(milliseconds(900));
  membership_.RefuseStaleServers(/*newest_epoch=*/5, milliseconds(500), clock_.Now());
  ASSERT_EQ(Beat(node).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Join(request).status().code(), absl::StatusCode::kUnavailable);
  clock_.Advance(milliseconds(101));
  EXPECT_EQ(membership_.ExpireLeases(clock_.Now()).size(), 1u);
  EXPECT_EQ(Join(request).status().code(), absl::StatusCode::kAborted);
  RegisterRequest next = request;
  next.set_registration(2);
  EXPECT_GT(Join(next)->incarnation, node.incarnation) << "its next incarnation";
}

TEST_F(MembershipTest, RepeatedRegistrationAfterDeathBeginsNoIncarnation) {
  RegisterRequest request = Server(1);
  request.set_registration(1);
  ASSERT_TRUE(Join(request).ok());
  ASSERT_EQ(ExpireAll(), 1u);
  EXPECT_EQ(Join(request).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(membership_.PresentCount(), 0u);
  EXPECT_TRUE(Join(Returning(Server(2), /*incarnation=*/1)).ok());
}

TEST_F(MembershipTest, LeasesOfAFormerSchedulerAreHonoured) {
  const Node node = *Join(Server(1));
  Membership restored(Options());
  restored.Restore(membership_.Save(), clock_.Now(), milliseconds(7000));
  // The response may be lost, and the node may rely on its previous lease.
  ASSERT_TRUE(restored.Heartbeat(From(node), 0, clock_.Now()).ok());
  clock_.Advance(milliseconds(7000));
  EXPECT_TRUE(restored.ExpireLeases(clock_.Now()).empty());
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(restored.ExpireLeases(clock_.Now()).size(), 1u);
}

TEST_F(MembershipTest, LateRegistrationOfAFormerIncarnationEndsNothing) {
  ASSERT_TRUE(Join(Server(1)).ok());
  // It is killed before the scheduler has heard of it.
  const RegisterRequest second = Returning(Server(2), /*incarnation=*/2);
  const RegisterRequest third = Returning(Server(3), /*incarnation=*/3);
  const Node present = *Join(third);
  const absl::Status late = Join(second).status();
  EXPECT_TRUE(absl::IsAborted(late));
  EXPECT_THAT(std::string(late.message()), testing::HasSubstr("incarnation 2"));
  EXPECT_TRUE(Beat(present).ok());
  EXPECT_EQ(Join(third)->incarnation, present.incarnation) << "a repeated registration";
  Membership restored(Options());
  restored.Restore(membership_.Save(), clock_.Now(), Options().lease);
  EXPECT_TRUE(absl::IsAborted(restored.Register(second, clock_.Now()).status()));
  EXPECT_TRUE(restored.Register(Returning(Server(4), /*incarnation=*/4), clock_.Now()).ok());
}

TEST_F(MembershipTest, LateRegistrationOfALivingProcessEndsNothing) {
  const RegisterRequest first = Server(1);
  ASSERT_TRUE(Join(first).ok());
  ASSERT_EQ(ExpireAll(), 1u);
  RegisterRequest second = Returning(first, /*incarnation=*/1);
  second.set_registration(2);
  const Node present = *Join(second);
  EXPECT_EQ(present.name, "server-0");
  EXPECT_TRUE(absl::IsAborted(Join(first).status()));
  EXPECT_TRUE(Beat(present).ok());
}

TEST_F(MembershipTest, ProcessesWithoutStartCountReplaceEachOther) {
  RegisterRequest first = Server(1);
  first.set_registration(3);
  ASSERT_TRUE(Join(first).ok());
  RegisterRequest second = Returning(Server(2), /*incarnation=*/0);
  second.set_registration(1);
  EXPECT_EQ(Join(second)->name, "server-0");
}

TEST_F(MembershipTest, LateRegistrationKeepsTheClientsNumber) {
  RegisterRequest client = Other(CLIENT_ROLE, 1);
  client.set_registration(1);
  const Node first = *Join(client);
  ExpireAll();
  EXPECT_NE(Join(client)->number, first.number) << "a duplicate registration";
  client.set_registration(2);
  client.set_node(first.name);
  client.set_job_id(77);
  const Node again = *Join(client);
  EXPECT_EQ(again.number, first.number);
  clock_.Advance(milliseconds(500));
  ASSERT_TRUE(Beat(again).ok());
  clock_.Advance(milliseconds(501));
  EXPECT_EQ(membership_.ExpireLeases(clock_.Now()).size(), 1u)
      << "the other client sends no heartbeats";
  const auto repeated = membership_.Register(client, clock_.Now());
  ASSERT_TRUE(repeated.ok());
  EXPECT_FALSE(repeated->is_new);
}

TEST_F(MembershipTest, SecondCopyOfADataDirectoryIsRefused) {
  ASSERT_TRUE(Join(Server(1)).ok());
  const Node present = *Join(Returning(Server(2), /*incarnation=*/2));
  const absl::Status copy = Join(Returning(Server(3), /*incarnation=*/2)).status();
  EXPECT_TRUE(absl::IsAborted(copy));
  EXPECT_THAT(std::string(copy.message()), testing::HasSubstr("copy"));
  EXPECT_TRUE(Beat(present).ok());
}

TEST_F(MembershipTest, RegistrationByNameEndsTheFormerIncarnation) {
  const Node first = *Join(Server(1));
  ASSERT_TRUE(Join(Server(2)).ok());
  RegisterRequest request = Server(3);
  request.set_node("server-0");
  request.set_job_id(77);
  const auto back = membership_.Register(request, clock_.Now());
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_TRUE(back->former.has_value());
  EXPECT_EQ(back->former->incarnation, first.incarnation);
  EXPECT_EQ(back->node->name, "server-0");
  EXPECT_EQ(back->node->number, 0u);
  EXPECT_EQ(Beat(first).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(membership_.PresentCount(), 2u);
}

// Two processes claim server-0: the present one, and a later start with its data directory.
class NewcomerTest : public MembershipTest {
 protected:
  static Membership::Options WithSilence() {
    Membership::Options options = Options();
    options.silence = milliseconds(500);
    return options;
  }
  NewcomerTest() : original_(*membership_of_newcomers_.Register(Server(1), clock_.Now())->node) {}

  // As NodeLink sends it, with the challenge from the last response.
  void BeatOfOriginal() {
    HeartbeatRequest request = From(original_);
    request.set_challenge(challenge_);
    const auto node = membership_of_newcomers_.Heartbeat(request, 0, clock_.Now());
    ASSERT_TRUE(node.ok()) << node.status();
    challenge_ = (*node)->claimant;
  }
  absl::Status Newcomer(uint64_t nonce = 2) {
    return membership_of_newcomers_.Register(Returning(Server(nonce), 2), clock_.Now()).status();
  }

  Membership membership_of_newcomers_{WithSilence()};
  const Node original_;
  uint64_t challenge_ = 0;
};

TEST_F(NewcomerTest, NextIncarnationReplacesASilentServer) {
  BeatOfOriginal();
  clock_.Advance(milliseconds(100));
  const absl::Status held = Newcomer();
  EXPECT_TRUE(absl::IsUnavailable(held)) << held;
  EXPECT_EQ(held.GetPayload(kPushbackPayloadUrl), absl::Cord("401"));
  clock_.Advance(milliseconds(401));
  EXPECT_TRUE(Newcomer().ok());
  EXPECT_EQ(membership_of_newcomers_.FindByName("server-0")->process_nonce, 2u);
}

TEST_F(NewcomerTest, LongSilentServerIsReplacedAtOnce) {
  BeatOfOriginal();
  clock_.Advance(milliseconds(600));
  EXPECT_TRUE(Newcomer().ok());
}

TEST_F(NewcomerTest, CopyOfALivingServerIsRefusedForGood) {
  BeatOfOriginal();
  EXPECT_TRUE(absl::IsUnavailable(Newcomer()));
  clock_.Advance(milliseconds(200));
  BeatOfOriginal();
  EXPECT_TRUE(absl::IsUnavailable(Newcomer())) << "that heartbeat may have been in flight";
  clock_.Advance(milliseconds(200));
  BeatOfOriginal();
  const absl::Status refused = Newcomer();
  EXPECT_TRUE(absl::IsAlreadyExists(refused)) << refused;
  EXPECT_EQ(refused.GetPayload(kPushbackPayloadUrl), absl::Cord(kNeverAgain));
  EXPECT_TRUE(
      absl::StrContains(refused.message(), "server-0 (host pid 1, 127.0.0.1:4001), incarnation 1"))
      << refused;
  EXPECT_TRUE(absl::IsUnavailable(Newcomer(3))) << "another process is not refused for this one";
}

TEST_F(NewcomerTest, LateHeartbeatsOfADeadServerRefuseNoNewcomer) {
  BeatOfOriginal();
  EXPECT_TRUE(absl::IsUnavailable(Newcomer()));
  challenge_ = 0;
  clock_.Advance(milliseconds(200));
  BeatOfOriginal();
  challenge_ = 0;
  clock_.Advance(milliseconds(200));
  BeatOfOriginal();
  clock_.Advance(milliseconds(500));
  EXPECT_TRUE(Newcomer().ok());
}

TEST_F(NewcomerTest, UnheardServerGetsTimeAfterASchedulerRestart) {
  BeatOfOriginal();
  Membership next(WithSilence());
  next.Restore(membership_of_newcomers_.Save(), clock_.Now() + milliseconds(2000), Options().lease);
  EXPECT_TRUE(absl::IsUnavailable(next.Register(Returning(Server(2), 2), clock_.Now()).status()));
  clock_.Advance(milliseconds(500));
  EXPECT_TRUE(next.Register(Returning(Server(2), 2), clock_.Now()).ok());
}

TEST_F(MembershipTest, WorkerThatSendsHeartbeatsIsNotReplaced) {
  Membership::Options options = Options();
  options.silence = milliseconds(500);
  Membership membership(options);
  const Node victim = *membership.Register(Other(WORKER_ROLE, 1), clock_.Now())->node;
  uint64_t challenge = 0;
  const auto beat = [&] {
    clock_.Advance(milliseconds(200));
    HeartbeatRequest request = From(victim);
    request.set_challenge(challenge);
    const auto node = membership.Heartbeat(request, 0, clock_.Now());
    if (node.ok()) challenge = (*node)->claimant;
    return node.status();
  };
  const auto take = [&](uint64_t nonce, uint32_t start_count) {
    RegisterRequest request = Other(WORKER_ROLE, nonce);
    request.set_node(victim.name);
    request.set_start_count(start_count);
    request.set_registration(1);
    return membership.Register(request, clock_.Now()).status();
  };
  ASSERT_TRUE(beat().ok());
  const absl::Status held = take(2, 1);
  EXPECT_TRUE(absl::IsUnavailable(held)) << held;
  EXPECT_TRUE(held.GetPayload(kPushbackPayloadUrl).has_value()) << "it tries again";
  EXPECT_TRUE(absl::IsUnavailable(take(3, 0)));
  EXPECT_TRUE(beat().ok());
  EXPECT_TRUE(beat().ok());
  const absl::Status refused = take(3, 0);
  EXPECT_TRUE(absl::IsAlreadyExists(refused)) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "PAWL_WORKER_DIR")) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "to add a worker")) << refused;
  clock_.Advance(milliseconds(501));
  EXPECT_TRUE(take(4, 1).ok());
  EXPECT_TRUE(absl::IsAborted(beat()));
}

TEST_F(MembershipTest, ImpossibleStartCountLocksNoNodeOut) {
  for (const RegisterRequest& first : {Server(1), Other(WORKER_ROLE, 2)}) {
    const Node node = *Join(first);
    ASSERT_EQ(ExpireAll(), 1u);
    RegisterRequest next = first;
    next.set_node(node.name);
    next.set_process_nonce(10 + first.process_nonce());
    next.set_start_count(std::numeric_limits<uint32_t>::max());
    EXPECT_EQ(Join(next).status().code(), absl::StatusCode::kInvalidArgument);
    next.set_start_count(kMaxStartCountStep + 1);
    EXPECT_EQ(Join(next).status().code(), absl::StatusCode::kInvalidArgument);
    next.set_start_count(1);
    EXPECT_TRUE(Join(next).ok());
    ASSERT_TRUE(membership_.Leave(node.name, Join(next)->incarnation).ok());
  }
}

TEST_F(MembershipTest, RestartedServerMayReuseItsAddress) {
  ASSERT_TRUE(Join(Server(1)).ok());
  RegisterRequest request = Server(2);
  request.set_address("127.0.0.1:4001");
  request.set_node("server-0");
  EXPECT_TRUE(Join(request).ok());
}

TEST_F(MembershipTest, NodeOfAnotherJobOrRoleIsUnknown) {
  ASSERT_TRUE(Join(Server(1)).ok());
  RegisterRequest request = Server(2);
  request.set_node("server-0");
  request.set_job_id(78);
  EXPECT_EQ(Join(request)->name, "server-1");
  request = Other(WORKER_ROLE, 3);
  request.set_node("server-0");
  EXPECT_EQ(Join(request)->name, "worker-0");
  EXPECT_EQ(membership_.PresentCount(), 3u);
}

TEST_F(MembershipTest, WorkOfEarlierIncarnationsIsAddedUp) {
  Node worker = *Join(Other(WORKER_ROLE, 1));
  for (uint64_t nonce = 2; nonce <= 3; ++nonce) {
    HeartbeatRequest beat = From(worker);
    beat.mutable_worker()->set_samples(100);
    beat.mutable_worker()->set_steps_min(5 * nonce);
    ASSERT_TRUE(membership_.Heartbeat(beat, 0, clock_.Now()).ok());
    RegisterRequest request = Other(WORKER_ROLE, nonce);
    request.set_node(worker.name);
    worker = *Join(request);
  }
  EXPECT_EQ(worker.earlier.samples(), 200u);
  EXPECT_EQ(worker.earlier.steps_min(), 15u);
}

TEST_F(MembershipTest, RestoredNodesContinueWithFreshLeases) {
  const Node server = *Join(Server(1));
  const Node gone = *Join(Other(WORKER_ROLE, 2));
  const Node client = *Join(Other(CLIENT_ROLE, 3));
  ASSERT_TRUE(membership_.Leave(gone.name, gone.incarnation).ok());
  const StoredMembership stored = membership_.Save();
  clock_.Advance(milliseconds(60000));
  Membership restored(Options());
  restored.Restore(stored, clock_.Now(), Options().lease);
  EXPECT_EQ(restored.PresentCount(), 2u);
  EXPECT_TRUE(restored.ExpireLeases(clock_.Now()).empty());
  EXPECT_TRUE(restored.Find(server.name, server.incarnation).ok());
  EXPECT_FALSE(restored.Find(gone.name, gone.incarnation).ok());
  const auto same = restored.Register(Other(CLIENT_ROLE, 3), clock_.Now());
  ASSERT_TRUE(same.ok());
  EXPECT_FALSE(same->is_new);
  EXPECT_EQ(same->node->incarnation, client.incarnation);
  const auto next = restored.Register(Other(WORKER_ROLE, 4), clock_.Now());
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->node->name, "worker-1");
  EXPECT_GT(next->node->incarnation, client.incarnation);
  EXPECT_EQ(stored.SerializeAsString(), [&] {
    Membership again({});
    again.Restore(stored, clock_.Now(), Options().lease);
    return again.Save().SerializeAsString();
  }());
}

TEST_F(MembershipTest, WrongIncarnationAndUnknownNodeAreAborted) {
  Node node = *Join(Server(1));
  ++node.incarnation;
  EXPECT_EQ(Beat(node).code(), absl::StatusCode::kAborted);
  node.name = "server-9";
  EXPECT_EQ(Beat(node).code(), absl::StatusCode::kAborted);
}

TEST_F(MembershipTest, LeavingIsIdempotentAndEndsOnlyItsIncarnation) {
  const Node first = *Join(Other(WORKER_ROLE, 1));
  EXPECT_TRUE(membership_.Leave(first.name, first.incarnation).ok());
  EXPECT_TRUE(membership_.Leave(first.name, first.incarnation).ok());
  RegisterRequest again = Other(WORKER_ROLE, 2);
  again.set_node(first.name);
  const Node second = *Join(again);
  EXPECT_EQ(second.name, first.name);
  EXPECT_TRUE(membership_.Leave(first.name, first.incarnation).ok());
  EXPECT_TRUE(Beat(second).ok());
}

TEST_F(MembershipTest, ClientNumbersAreReusedLast) {
  const Node first = *Join(Other(CLIENT_ROLE, 1));
  ExpireAll();
  EXPECT_TRUE(membership_.All().empty());
  for (uint32_t i = 1; i < kMaxClients; ++i) {
    const Node other = *Join(Other(CLIENT_ROLE, 1 + i));
    EXPECT_NE(other.number, first.number);
    EXPECT_TRUE(membership_.Leave(other.name, other.incarnation).ok());
  }
  const Node last = *Join(Other(CLIENT_ROLE, 1 + kMaxClients));
  EXPECT_EQ(last.number, first.number);
  EXPECT_GT(last.incarnation, first.incarnation);
}

TEST_F(MembershipTest, ReadersLeaveNumbersToClients) {
  const auto read = [&](uint64_t nonce) {
    return membership_.Register(Other(CLIENT_ROLE, nonce), clock_.Now(), /*only_reads=*/true)
        .status();
  };
  for (uint64_t nonce = 1; nonce <= kMaxClients; ++nonce)
    EXPECT_EQ(absl::IsResourceExhausted(read(nonce)), nonce > kMaxReaders);
  EXPECT_TRUE(read(1).ok()) << "a repeated registration";
  for (uint64_t i = kMaxReaders; i < kMaxClients; ++i)
    EXPECT_TRUE(Join(Other(CLIENT_ROLE, 10000 + i)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Join(Other(CLIENT_ROLE, 20000)).status()));
  ExpireAll();
  EXPECT_TRUE(read(kMaxClients).ok());
}

TEST_F(MembershipTest, ReturningClientGetsItsNumberIfFree) {
  const Node first = *Join(Other(CLIENT_ROLE, 1));
  const Node second = *Join(Other(CLIENT_ROLE, 2));
  ExpireAll();
  RegisterRequest again = Other(CLIENT_ROLE, 3);
  again.set_node(first.name);
  again.set_job_id(77);
  const Node returned = *Join(again);
  EXPECT_EQ(returned.name, first.name);
  EXPECT_EQ(returned.number, first.number);
  EXPECT_GT(returned.incarnation, second.incarnation);
  again.set_process_nonce(4);
  EXPECT_EQ(Join(again)->number, 2u) << "the number belongs to another living client";
  again.set_process_nonce(5);
  again.set_node(second.name);
  again.set_job_id(78);
  EXPECT_EQ(Join(again)->number, 3u) << "its number was from another job";
  again.set_job_id(77);
  uint32_t expected = 4;
  for (const std::string name :
       {"client-1024", "client-x", "client-01", "client-", "server-1", "1"}) {
    again.set_process_nonce(again.process_nonce() + 1);
    again.set_node(name);
    EXPECT_EQ(Join(again)->number, expected++) << name;
  }
}

TEST_F(MembershipTest, HeartbeatsUpdateTheFiguresOfTheirRole) {
  const Node worker = *Join(Other(WORKER_ROLE, 1));
  HeartbeatRequest request = From(worker);
  request.mutable_worker()->set_samples(7);
  request.mutable_server()->set_rows(9);
  ASSERT_TRUE(membership_.Heartbeat(request, 0, clock_.Now()).ok());
  EXPECT_EQ(membership_.All().at(0)->progress.samples(), 7u);
  EXPECT_EQ(membership_.All().at(0)->counters.rows(), 0u);
}

TEST_F(MembershipTest, ServerHasNotAdoptedAnUnpublishedRouting) {
  const Node server = *Join(Server(1));
  HeartbeatRequest request = From(server);
  request.set_routing_epoch(std::numeric_limits<uint64_t>::max());
  ASSERT_TRUE(membership_.Heartbeat(request, /*newest_epoch=*/5, clock_.Now()).ok());
  EXPECT_EQ(membership_.All().at(0)->adopted_epoch, 5u);
}

TEST_F(MembershipTest, GoneNodesAreForgottenBeyondTheLimit) {
  for (uint64_t nonce = 1; nonce <= kMaxGoneNodes + 5; ++nonce) {
    const Node worker = *Join(Other(WORKER_ROLE, nonce));
    ASSERT_TRUE(membership_.Leave(worker.name, worker.incarnation).ok());
  }
  EXPECT_EQ(membership_.All().size(), kMaxGoneNodes);
  EXPECT_EQ(membership_.All().front()->name, "worker-5");
}

TEST_F(MembershipTest, GoneNodesWithProgressFitIntoTheState) {
  Membership::Options options = Options();
  options.logical_workers = kMaxWorkers;
  Membership membership(options);
  const Node worker = *membership.Register(Other(WORKER_ROLE, 1), clock_.Now())->node;
  HeartbeatRequest request = From(worker);
  WorkerProgress& progress = *request.mutable_worker();
  progress.set_samples(7);
  progress.set_failure(std::string(kMaxFailureBytes, 'x'));
  for (uint32_t rank = 0; rank < 4000; ++rank) {
    progress.add_ranks()->set_rank(rank);
    progress.mutable_ranks(static_cast<int>(rank))->set_steps(uint64_t{1} << 40);
  }
  ASSERT_TRUE(membership.Heartbeat(request, 0, clock_.Now()).ok());
  const Node& kept = *membership.FindByName(worker.name);
  ASSERT_EQ(kept.progress.ranks_size(), 4000);
  ASSERT_TRUE(membership.Leave(worker.name, worker.incarnation).ok());
  EXPECT_LT(kMaxGoneNodes * membership.Save().nodes(0).ByteSizeLong(), kMaxStateBytes / 4);
  // Its samples are counted by rank, also after it returns.
  EXPECT_FALSE(kept.progress.ranks().empty());
  EXPECT_EQ(kept.progress.samples(), 7u);
  EXPECT_EQ(membership.Register(Other(WORKER_ROLE, 1), clock_.Now())->node->earlier.samples(), 0u);
}

TEST_F(MembershipTest, HeartbeatOfAnotherJobIsAborted) {
  const Node server = *Join(Server(1));
  HeartbeatRequest request = From(server);
  request.set_job_id(77);
  EXPECT_TRUE(membership_.Heartbeat(request, 0, clock_.Now()).ok());
  request.set_job_id(78);
  EXPECT_EQ(membership_.Heartbeat(request, 0, clock_.Now()).status().code(),
            absl::StatusCode::kAborted);
}

TEST_F(MembershipTest, OnlyKnownAndPossibleProgressIsKept) {
  const Node worker = *Join(Other(WORKER_ROLE, 1));
  HeartbeatRequest request = From(worker);
  WorkerProgress& progress = *request.mutable_worker();
  progress.set_samples(7);
  progress.set_failure("caf\xc3\xa9");
  // A field of a later version.
  progress.GetReflection()->MutableUnknownFields(&progress)->AddLengthDelimited(
      1000, std::string(1000, 'x'));
  ASSERT_TRUE(membership_.Heartbeat(request, 0, clock_.Now()).ok());
  StoredMembership stored = membership_.Save();
  EXPECT_EQ(stored.nodes(0).progress().samples(), 7u);
  EXPECT_EQ(stored.nodes(0).progress().failure(), "caf\xc3\xa9");
  EXPECT_LT(stored.ByteSizeLong(), 300u);

  progress.set_failure(std::string(2 * kMaxFailureBytes, 'x'));
  ASSERT_TRUE(membership_.Heartbeat(request, 0, clock_.Now()).ok());
  EXPECT_EQ(membership_.FindByName(worker.name)->progress.failure().size(), kMaxFailureBytes);

  progress.set_failure(std::string(kMaxProgressBytes, 'x'));
  const auto refusal = [&] {
    clock_.Advance(std::chrono::milliseconds(500));
    const auto node = membership_.Heartbeat(request, 0, clock_.Now());
    EXPECT_TRUE(node.ok()) << node.status();
    const Node& kept = *membership_.FindByName(worker.name);
    EXPECT_EQ(kept.last_heard, clock_.Now()) << "the worker is alive";
    return kept.refused_progress;
  };
  EXPECT_THAT(refusal(), testing::HasSubstr("progress has"));
  progress.clear_failure();
  for (uint32_t rank = 0; rank < 5; ++rank) progress.add_ranks()->set_rank(rank);
  EXPECT_THAT(refusal(), testing::HasSubstr("progress is of 5 ranks"));
  EXPECT_EQ(membership_.FindByName(worker.name)->progress.ranks_size(), 0);

  progress.clear_ranks();
  UserMetric& metric = *progress.add_metrics();
  metric.set_name("a");
  EXPECT_EQ(refusal(), "");
  // UserMetrics keeps them.
  EXPECT_EQ(membership_.FindByName(worker.name)->progress.metrics_size(), 0);
  metric.set_name("a b");
  EXPECT_THAT(refusal(), testing::HasSubstr("a b"));
}

}  // namespace
}  // namespace pawl
