#include "scheduler/membership.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "client_lib/base/simulated_clock.h"
#include "gtest/gtest.h"

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

class MembershipTest : public testing::Test {
 protected:
  absl::StatusOr<Node> Join(const RegisterRequest& request) {
    const auto registration = membership_.Register(request, clock_.Now());
    if (!registration.ok()) return registration.status();
    return *registration->node;
  }
  absl::Status Beat(const Node& node) {
    HeartbeatRequest request;
    request.set_node(node.name);
    request.set_incarnation(node.incarnation);
    return membership_.Heartbeat(request, clock_.Now()).status();
  }

  SimulatedClock clock_;
  Membership membership_{{.lease = milliseconds(1000), .max_servers = 2, .max_workers = 3}};
};

TEST_F(MembershipTest, NodesAreNumberedByRoleAndIncarnationsGrowOverAll) {
  EXPECT_EQ(Join(Server(1))->name, "server-0");
  EXPECT_EQ(Join(Other(WORKER_ROLE, 2))->name, "worker-0");
  const Node second = *Join(Server(3));
  EXPECT_EQ(second.name, "server-1");
  EXPECT_EQ(second.incarnation, 3u);
  EXPECT_EQ(NodeText(second), "server-1 (host pid 3, 127.0.0.1:4003)");
}

TEST_F(MembershipTest, SameProcessGetsTheSameAnswerAgain) {
  const Node first = *Join(Server(1));
  const auto again = membership_.Register(Server(1), clock_.Now());
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->is_new);
  EXPECT_EQ(again->node->incarnation, first.incarnation);
  EXPECT_EQ(membership_.PresentCount(), 1u);
}

TEST_F(MembershipTest, ImpossibleRegistrationsAreRefused) {
  EXPECT_EQ(Join(Other(ROLE_UNSPECIFIED, 1)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Join(Server(0)).status().code(), absl::StatusCode::kInvalidArgument);
  for (const char* address : {"", "host", ":80", "host:0", "host:65536", "host:x"}) {
    RegisterRequest request = Server(1);
    request.set_address(address);
    EXPECT_EQ(Join(request).status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
  RegisterRequest request = Server(1);
  request.set_description(std::string(257, 'x'));
  EXPECT_EQ(Join(request).status().code(), absl::StatusCode::kInvalidArgument);
  request = Server(1);
  request.add_logical_workers(0);
  EXPECT_EQ(Join(request).status().code(), absl::StatusCode::kInvalidArgument);
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

TEST_F(MembershipTest, LimitsAreTyped) {
  ASSERT_TRUE(Join(Server(1)).ok());
  ASSERT_TRUE(Join(Server(2)).ok());
  EXPECT_EQ(Join(Server(3)).status().code(), absl::StatusCode::kResourceExhausted);
  for (uint64_t nonce = 11; nonce < 14; ++nonce) ASSERT_TRUE(Join(Other(WORKER_ROLE, nonce)).ok());
  EXPECT_EQ(Join(Other(WORKER_ROLE, 14)).status().code(), absl::StatusCode::kResourceExhausted);
  for (uint64_t nonce = 100; nonce < 100 + kMaxClients; ++nonce) ASSERT_TRUE(Join(Other(CLIENT_ROLE, nonce)).ok());
  EXPECT_EQ(Join(Other(CLIENT_ROLE, 99999)).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(MembershipTest, LeaseRunsOutOnlyWithoutHeartbeats) {
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

TEST_F(MembershipTest, DeadNodeIsAbortedForGood) {
  const Node node = *Join(Server(1));
  clock_.Advance(milliseconds(1001));
  ASSERT_EQ(membership_.ExpireLeases(clock_.Now()).size(), 1u);
  EXPECT_EQ(Beat(node).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Join(Server(1)).status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(membership_.All().at(0)->gone);
}

TEST_F(MembershipTest, WrongIncarnationAndUnknownNodeAreAborted) {
  Node node = *Join(Server(1));
  ++node.incarnation;
  EXPECT_EQ(Beat(node).code(), absl::StatusCode::kAborted);
  node.name = "server-9";
  EXPECT_EQ(Beat(node).code(), absl::StatusCode::kAborted);
}

TEST_F(MembershipTest, LeavingIsIdempotentAndAnOldLifeCannotEndANewOne) {
  const Node first = *Join(Other(CLIENT_ROLE, 1));
  EXPECT_TRUE(membership_.Leave(first.name, first.incarnation).ok());
  EXPECT_TRUE(membership_.Leave(first.name, first.incarnation).ok());
  const Node second = *Join(Other(CLIENT_ROLE, 2));
  EXPECT_EQ(second.name, first.name);
  EXPECT_TRUE(membership_.Leave(first.name, first.incarnation).ok());
  EXPECT_TRUE(Beat(second).ok());
}

TEST_F(MembershipTest, ClientNumberIsUsedAgainOnlyWithAHigherIncarnation) {
  const Node first = *Join(Other(CLIENT_ROLE, 1));
  clock_.Advance(milliseconds(1001));
  membership_.ExpireLeases(clock_.Now());
  EXPECT_TRUE(membership_.All().empty());
  const Node second = *Join(Other(CLIENT_ROLE, 2));
  EXPECT_EQ(second.client, first.client);
  EXPECT_GT(second.incarnation, first.incarnation);
}

TEST_F(MembershipTest, ExtendedLeasesRunOutLater) {
  ASSERT_TRUE(Join(Server(1)).ok());
  clock_.Advance(milliseconds(3000));
  membership_.ExtendLeases(milliseconds(3000));
  EXPECT_TRUE(membership_.ExpireLeases(clock_.Now()).empty());
  clock_.Advance(milliseconds(1001));
  EXPECT_EQ(membership_.ExpireLeases(clock_.Now()).size(), 1u);
}

TEST_F(MembershipTest, HeartbeatsKeepTheFiguresOfTheirRole) {
  const Node worker = *Join(Other(WORKER_ROLE, 1));
  HeartbeatRequest request;
  request.set_node(worker.name);
  request.set_incarnation(worker.incarnation);
  request.mutable_worker()->set_samples(7);
  request.mutable_server()->set_rows(9);
  ASSERT_TRUE(membership_.Heartbeat(request, clock_.Now()).ok());
  EXPECT_EQ(membership_.All().at(0)->progress.samples(), 7u);
  EXPECT_EQ(membership_.All().at(0)->counters.rows(), 0u);
}

TEST_F(MembershipTest, GoneNodesAreForgottenBeyondTheLimit) {
  for (uint64_t nonce = 1; nonce <= kMaxGoneNodes + 5; ++nonce) {
    const Node worker = *Join(Other(WORKER_ROLE, nonce));
    ASSERT_TRUE(membership_.Leave(worker.name, worker.incarnation).ok());
  }
  EXPECT_EQ(membership_.All().size(), kMaxGoneNodes);
  EXPECT_EQ(membership_.All().front()->name, "worker-5");
}

}  // namespace
}  // namespace pawl
