// Tables, barriers, and calls that wait.
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "client_lib/rpc/transport.h"
#include "gtest/gtest.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/testing/coordinator_fixture.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class CoordinatorCallsTest : public CoordinatorFixture {};

TEST_F(CoordinatorCallsTest, TableIsCreatedOnEveryServerBeforeTheAnswer) {
  Begin(kTraining, 2, 1);
  const auto early = CreateTable("early");
  EXPECT_TRUE(servers_.TakeCalls().empty());
  Join(SERVER_ROLE);
  Join(SERVER_ROLE);
  EXPECT_EQ(servers_.TakeCalls(), (std::vector<std::string>{"s:1 CreateTable", "s:2 CreateTable"}));
  ASSERT_TRUE(early->has_value());
  EXPECT_EQ((**early)->table().id(), 1u);
  EXPECT_TRUE(servers_.last_table().optimizer().has_sgd());

  servers_.Hold();
  const auto late = CreateTable("late");
  const auto same = CreateTable("late");
  EXPECT_FALSE(late->has_value());
  EXPECT_EQ(Tables(), 1);
  servers_.Release();
  ASSERT_TRUE(late->has_value());
  EXPECT_EQ((**late)->table().id(), 2u);
  EXPECT_EQ((**same)->table().id(), 2u);
  EXPECT_EQ(Tables(), 2);
  EXPECT_EQ((*CreateTable("late", 5))->status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(CoordinatorCallsTest, RefusedTableDoesNotExist) {
  Begin(kTraining, 1, 1);
  Join(SERVER_ROLE);
  servers_.FailNext("s:1 CreateTable", absl::InvalidArgumentError("too wide"));
  const auto refused = CreateTable("t");
  EXPECT_EQ((*refused)->status(),
            absl::InvalidArgumentError("server-0: creating table t: too wide"));
  EXPECT_EQ(Tables(), 0);
  EXPECT_EQ((**CreateTable("t"))->table().id(), 2u);
}

TEST_F(CoordinatorCallsTest, UnreachableServerIsAskedAgain) {
  Begin(kTraining, 1, 1);
  Join(SERVER_ROLE);
  servers_.FailNext("s:1 CreateTable", absl::UnavailableError("connection refused"));
  const auto table = CreateTable("t");
  EXPECT_FALSE(table->has_value());
  Pass(milliseconds(100));
  ASSERT_TRUE(table->has_value());
  EXPECT_TRUE((*table)->ok());
}

TEST_F(CoordinatorCallsTest, SlowTableKeepsItsIdAndItsCallers) {
  Begin(kTraining, 1, 1);
  Join(SERVER_ROLE);
  absl::Status full = absl::ResourceExhaustedError("the disk is full");
  full.SetPayload(kPushbackPayloadUrl, absl::Cord("20"));
  // Asked at every tick, for longer than one round takes.
  for (int i = 0; i < (kCreateTableTimeout + seconds(1)) / kTickInterval; ++i)
    servers_.FailNext("s:1 CreateTable", full);
  const auto impatient = CreateTable("t");
  const Ticket ticket = ticket_;
  const auto patient = CreateTable("t");
  Pass(kCreateTableTimeout + milliseconds(500));
  EXPECT_FALSE(patient->has_value()) << (*patient)->status();
  coordinator_->Cancel(ticket, /*deadline_passed=*/true);
  ASSERT_TRUE(impatient->has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded((*impatient)->status()));
  Pass(seconds(1));
  ASSERT_TRUE(patient->has_value());
  ASSERT_TRUE((*patient)->ok()) << (*patient)->status();
  EXPECT_EQ((**patient)->table().id(), 1u);
  EXPECT_EQ((**CreateTable("t"))->table().id(), 1u);
  EXPECT_EQ(Tables(), 1);
}

TEST_F(CoordinatorCallsTest, BarrierAnswersAllPartiesWhenTheLastArrives) {
  Begin(kTraining, 1, 2);
  const RegisterResponse first = Join(WORKER_ROLE);
  const RegisterResponse second = Join(WORKER_ROLE);
  const auto waiting = Barrier(first, 2, 0);
  EXPECT_FALSE(waiting->has_value());
  const auto last = Barrier(second, 2, 1);
  EXPECT_TRUE((*waiting)->ok());
  EXPECT_TRUE((*last)->ok());
  EXPECT_TRUE((*Barrier(first, 2, 0))->ok());
}

TEST_F(CoordinatorCallsTest, ClientsDoNotDisturbABarrierOfTheRanks) {
  Begin(kTraining, 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse first = Join(WORKER_ROLE, {0, 1});
  const RegisterResponse second = Join(WORKER_ROLE, {2, 3});
  const RegisterResponse client = Join(CLIENT_ROLE);
  const auto of_client = Barrier(client, 4, 0);
  EXPECT_EQ((*Barrier(first, 4, 2))->status().code(), absl::StatusCode::kFailedPrecondition);
  const auto waiting = Barrier(first, 4, 0);
  Barrier(first, 4, 1);
  Barrier(second, 4, 2);
  EXPECT_FALSE(waiting->has_value());
  const auto last = Barrier(second, 4, 3);
  ASSERT_TRUE(last->has_value());
  EXPECT_TRUE((*last)->ok()) << (*last)->status();
  ASSERT_TRUE(waiting->has_value());
  EXPECT_TRUE((*waiting)->ok()) << (*waiting)->status();
  EXPECT_FALSE(of_client->has_value()) << "clients meet apart";
  for (uint32_t party = 1; party < 4; ++party) Barrier(client, 4, party);
  ASSERT_TRUE(of_client->has_value());
  EXPECT_TRUE((*of_client)->ok()) << (*of_client)->status();
}

TEST_F(CoordinatorCallsTest, PartyWhoseDeadlinePassesFailsTheBarrierForAll) {
  Begin(kTraining, 1, 2);
  const RegisterResponse first = Join(WORKER_ROLE);
  const RegisterResponse second = Join(WORKER_ROLE);
  const auto patient = Barrier(first, 3, 0);
  const auto impatient = Barrier(second, 3, 1);
  coordinator_->Cancel(ticket_, /*deadline_passed=*/true);
  EXPECT_EQ((*impatient)->status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ((*patient)->status().code(), absl::StatusCode::kAborted);
  EXPECT_NE((*patient)->status().message().find("worker-1"), absl::string_view::npos);
}

TEST_F(CoordinatorCallsTest, DisconnectedPartyMayReturn) {
  Begin(kTraining, 1, 2);
  const RegisterResponse first = Join(WORKER_ROLE);
  const RegisterResponse second = Join(WORKER_ROLE);
  const auto lost = Barrier(first, 2, 0);
  coordinator_->Cancel(ticket_, /*deadline_passed=*/false);
  EXPECT_EQ((*lost)->status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE((*Barrier(second, 2, 1))->ok());
  EXPECT_TRUE((*Barrier(first, 2, 0))->ok());
}

TEST_F(CoordinatorCallsTest, CancelledCallIsAnsweredOnce) {
  Begin(kTraining, 1, 1);
  const auto routing = GetRouting();
  coordinator_->Cancel(ticket_, true);
  coordinator_->Cancel(ticket_, true);
  EXPECT_EQ((*routing)->status().code(), absl::StatusCode::kDeadlineExceeded);
  Join(SERVER_ROLE);
}

TEST_F(CoordinatorCallsTest, CallsOfUnknownNodesAreAborted) {
  Begin(kTraining, 1, 1);
  RegisterResponse worker = Join(WORKER_ROLE);
  worker.set_incarnation(worker.incarnation() + 1);
  EXPECT_EQ((*GetAssignment(worker))->status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ((*Barrier(worker, 1, 0))->status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ((*Report(worker, 0, 1, true))->status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Finish(worker).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Beat(worker).status().code(), absl::StatusCode::kAborted);
}

TEST_F(CoordinatorCallsTest, WaitingCallsAreBounded) {
  Begin(kTraining, 1, 1);
  for (size_t i = 0; i < kMaxPendingCalls; ++i) GetRouting();
  EXPECT_EQ((*GetRouting())->status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace pawl
