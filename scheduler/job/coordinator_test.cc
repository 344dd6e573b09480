#include "scheduler/job/coordinator.h"

#include <algorithm>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/rpc/transport.h"
#include "client_lib/security/ticket.h"
#include "gtest/gtest.h"
#include "scheduler/status/digest.h"
#include "scheduler/testing/coordinator_fixture.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class CoordinatorTest : public CoordinatorFixture {};

TEST_F(CoordinatorTest, RoutingIsAnsweredOnceAllServersHaveJoined) {
  Begin(kTraining, 2, 1);
  const auto early = GetRouting();
  const auto next = GetRouting(1);
  Join(SERVER_ROLE);
  EXPECT_FALSE(early->has_value());
  const RegisterResponse second = Join(SERVER_ROLE);
  ASSERT_TRUE(early->has_value());
  EXPECT_EQ((**early)->epoch(), 1u);
  EXPECT_EQ((**early)->job_id(), 99u);
  EXPECT_EQ((**early)->primary_size(), 8);
  EXPECT_EQ((**early)->servers(1).node(), "server-1");
  EXPECT_FALSE(next->has_value());
  EXPECT_TRUE(GetRouting()->has_value());
  EXPECT_EQ(Beat(second)->routing_epoch(), 1u);
}

TEST_F(CoordinatorTest, RegistrationReturnsTheJobAndTheLease) {
  Begin(kTraining, 1, 1);
  const RegisterResponse server = Join(SERVER_ROLE);
  EXPECT_EQ(server.stall_timeout_ms(), 300000u) << "the longest of its timeouts";
  EXPECT_EQ(server.job_id(), 99u);
  EXPECT_EQ(server.job().name(), "flights");
  EXPECT_EQ(server.lease_ms(), 1000u);
  EXPECT_EQ(server.heartbeat_interval_ms(), 200u);
  const auto again = Register(Registration(SERVER_ROLE, nonce_));
  EXPECT_EQ(again->SerializeAsString(), server.SerializeAsString());
  EXPECT_TRUE(Register(Registration(SERVER_ROLE, 77)).ok())
      << "more than the initial servers may join";
}

TEST_F(CoordinatorTest, TicketsAreOnlyForOwnRanks) {
  Begin(kTraining, 1, 2, [](Coordinator::Options& options) { options.gives_tickets = true; });
  const RegisterResponse server = Join(SERVER_ROLE);
  const std::string key = server.ticket_key();
  const RegisterResponse first = Join(WORKER_ROLE, {0});
  EXPECT_EQ(first.ticket_key(), "");
  ASSERT_EQ(first.logical_workers_size(), 1);
  EXPECT_TRUE(IsTicketOf(key, TicketSender::kRank, 0, first.incarnation(),
                         first.logical_workers(0).ticket()));
  const auto code_of = [&](const std::string& node, uint64_t incarnation,
                           const std::string& ticket) {
    return coordinator_->CheckNodeTicket(node, incarnation, ticket).code();
  };
  EXPECT_EQ(code_of(first.node(), first.incarnation(), first.node_ticket()), absl::StatusCode::kOk);

  const RegisterResponse second = Join(WORKER_ROLE);
  EXPECT_EQ(second.logical_workers_size(), 0);
  EXPECT_EQ(code_of(first.node(), first.incarnation(), second.node_ticket()),
            absl::StatusCode::kUnauthenticated);
  // A node of an earlier job learns that it has no part in this one.
  EXPECT_EQ(code_of(first.node(), first.incarnation() + 1, second.node_ticket()),
            absl::StatusCode::kAborted);
  EXPECT_EQ(code_of("server-7", 1, second.node_ticket()), absl::StatusCode::kAborted);
  // A repeated registration cannot add ranks, its own or another worker's.
  const auto repeated = Register(Registration(WORKER_ROLE, nonce_, {0, 1}));
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  EXPECT_EQ(repeated->node(), second.node());
  for (const LogicalWorkerAssignment& rank : repeated->logical_workers())
    EXPECT_NE(rank.rank(), 0u);
  EXPECT_EQ(
      Register(Registration(WORKER_ROLE, nonce_, std::vector<uint32_t>(1000, 1))).status().code(),
      absl::StatusCode::kInvalidArgument);
}

TEST_F(CoordinatorTest, TicketKeySurvivesRestartWithoutTickets) {
  BeginWithStore(kTraining, 1, 1,
                 [](Coordinator::Options& options) { options.gives_tickets = true; });
  const std::string key = Join(SERVER_ROLE).ticket_key();
  ASSERT_EQ(key.size(), kTicketKeyBytes);
  options_.gives_tickets = false;
  Restart();
  EXPECT_EQ(Join(SERVER_ROLE).ticket_key(), "");
  options_.gives_tickets = true;
  Restart();
  EXPECT_EQ(Join(SERVER_ROLE).ticket_key(), key);
}

TEST_F(CoordinatorTest, JobRunsOnceAllNodesHaveJoined) {
  Begin(kTraining, 1, 2);
  const RegisterResponse first = Join(WORKER_ROLE);
  const auto assignment = GetAssignment(first);
  Join(SERVER_ROLE);
  EXPECT_FALSE(assignment->has_value());
  EXPECT_EQ(Status().state(), STARTING);
  const RegisterResponse second = Join(WORKER_ROLE);
  EXPECT_EQ(Status().state(), RUNNING);
  ASSERT_TRUE(assignment->has_value());
  EXPECT_EQ((**assignment)->logical_workers_total(), 4u);
  ASSERT_EQ((**assignment)->logical_workers_size(), 2);
  EXPECT_EQ((**assignment)->logical_workers(1).rank(), 1u);
  EXPECT_EQ((**GetAssignment(second))->logical_workers(0).rank(), 2u);
  // The same worker repeats the call after a lost answer.
  EXPECT_EQ(Register(Registration(WORKER_ROLE, nonce_))->node(), "worker-1");
}

TEST_F(CoordinatorTest, ServeOnlyJobRunsWithoutWorkers) {
  Begin("name: \"tables\" logical_workers: 2", 1, 0);
  Join(SERVER_ROLE);
  EXPECT_EQ(Status().state(), RUNNING);
  const RegisterResponse worker = Join(WORKER_ROLE, {1});
  EXPECT_EQ((**GetAssignment(worker))->logical_workers(0).rank(), 1u);
  EXPECT_EQ(Register(Registration(WORKER_ROLE, 77, {1})).status().code(),
            absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(Goodbye(worker).ok());
  EXPECT_EQ(Status().state(), RUNNING);
  const RegisterResponse successor = Join(WORKER_ROLE, {0, 1});
  ASSERT_TRUE(Finish(successor).ok());
  EXPECT_EQ(Status().state(), COMPLETED);
}

TEST_F(CoordinatorTest, LivingWorkerLosesItsNameToNoOtherProcess) {
  Begin(kTraining, 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse worker = Join(WORKER_ROLE);
  Pass(seconds(1));
  RegisterRequest thief = Return(worker.node(), 666);
  thief.set_registration(1);
  thief.set_start_count(std::numeric_limits<uint32_t>::max());
  EXPECT_TRUE(absl::IsInvalidArgument(Register(thief).status()));
  thief.set_start_count(1);
  const absl::Status refused = Register(thief).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_TRUE(Beat(worker).ok());
  Pass(seconds(10));
  EXPECT_FALSE(Register(thief).ok());
  EXPECT_TRUE(Beat(worker).ok());
  // The worker itself is restarted: its next process waits for less than the lease.
  Kill(worker.node());
  const auto killed = clock_.Now();
  const absl::StatusOr<RegisterResponse> restarted = ComeBack(worker.node());
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  EXPECT_EQ(restarted->node(), worker.node());
  EXPECT_LT(clock_.Now() - killed, options_.lease);
}

TEST_F(CoordinatorTest, StatusHasTheScheduledLearningRates) {
  Begin(absl::StrCat(kTraining,
                     "sparse_optimizer { adagrad { learning_rate: 0.5 } "
                     "schedule { polynomial { total_steps: 4 } } }"),
        1, 1);
  EXPECT_EQ(Status().learning_rate(), 0.1f);
  EXPECT_EQ(Status().sparse_learning_rate(), 0.5);
}

TEST_F(CoordinatorTest, ReadTimeoutGrowsWithTheModel) {
  Begin(absl::StrCat(kTraining, "evaluation { early_stopping { patience: 1 } }"), 2, 1);
  constexpr seconds kReading{500};
  for (const uint64_t share : {1, 4}) {
    const RegisterResponse server = Join(SERVER_ROLE);
    auto request = From<HeartbeatRequest>(server);
    request.mutable_server()->set_parameter_bytes(kMinReadBytesPerSecond * kReading.count() / 5 *
                                                  share);
    ASSERT_TRUE(coordinator_->Heartbeat(request).ok());
  }
  const RegisterResponse worker = Join(WORKER_ROLE);
  servers_.Hold();
  const auto last = ReportAll(worker, 1, true);
  Pass(kKeepBestTimeout + kReading - seconds(1));
  ASSERT_EQ(Status().state(), RUNNING);
  servers_.Release();
  ASSERT_TRUE(last->has_value() && (*last)->ok());
  servers_.Hold();
  ASSERT_TRUE(Finish(worker).ok());
  Pass(kKeepBestTimeout + kReading - seconds(1));
  ASSERT_EQ(Status().state(), FINISHING) << Status().failure();
  servers_.Release();
  ASSERT_EQ(Status().state(), COMPLETED) << Status().failure();
}

TEST_F(CoordinatorTest, StopIsRefusedWhileTheReportIsWritten) {
  absl::Status stop;
  Begin(kTraining, 1, 1, [&](Coordinator::Options& options) {
    options.write_report = [&](const JobReport& report) {
      stop = StopJob("now");
      return absl::OkStatus();
    };
  });
  Join(SERVER_ROLE);
  ASSERT_TRUE(Finish(Join(WORKER_ROLE)).ok());
  EXPECT_EQ(stop.code(), absl::StatusCode::kUnavailable) << stop;
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_TRUE(StopJob("again").ok());
}

TEST_F(CoordinatorTest, ServerWithoutADigestFailsTheJob) {
  Begin(kTraining, 1, 1);
  const RegisterResponse server = Join(SERVER_ROLE);
  auto request = From<HeartbeatRequest>(server);
  request.mutable_server()->set_parameter_bytes(kMinReadBytesPerSecond * 100);
  ASSERT_TRUE(coordinator_->Heartbeat(request).ok());
  const RegisterResponse worker = Join(WORKER_ROLE);
  servers_.Hold();
  ASSERT_TRUE(Finish(worker).ok());
  Pass(kInspectTimeout + seconds(99));
  EXPECT_EQ(Status().state(), FINISHING) << Status().failure();
  Pass(seconds(2));
  EXPECT_EQ(Status().state(), FAILED);
  servers_.Forget();
}

TEST_F(CoordinatorTest, JobCompletesWithTheLastWorker) {
  Begin(kTraining, 2, 2);
  Join(SERVER_ROLE);
  Join(SERVER_ROLE);
  const RegisterResponse first = Join(WORKER_ROLE);
  const RegisterResponse second = Join(WORKER_ROLE);
  ASSERT_TRUE((*CreateTable("w"))->ok());
  InspectResponse inspection;
  inspection.mutable_counters()->set_pushes_applied(3);
  inspection.mutable_counters()->set_staleness_max(2);
  PartitionDigest digest;
  digest.set_table(1);
  digest.set_partition(3);
  digest.set_crc32c(0x01020304);
  digest.set_rows(5);
  *inspection.add_digests() = digest;
  servers_.SetInspection("s:1", inspection);
  inspection.mutable_counters()->set_staleness_max(1);
  inspection.clear_digests();
  servers_.SetInspection("s:2", inspection);

  Pass(seconds(2));
  ASSERT_TRUE(Finish(first).ok());
  ASSERT_TRUE(Finish(first).ok());
  EXPECT_EQ(Status().state(), RUNNING);
  ASSERT_TRUE(Finish(second, 140).ok());
  const GetStatusResponse status = Status();
  EXPECT_EQ(status.state(), COMPLETED);
  EXPECT_EQ(status.steps(), 20u);
  EXPECT_EQ(status.samples(), 240u);
  EXPECT_EQ(status.counters().pushes_applied(), 6u);
  EXPECT_EQ(status.counters().staleness_max(), 2u);
  EXPECT_EQ(status.digest(), *CombineDigests({{1, "w"}}, {digest}));
  EXPECT_DOUBLE_EQ(status.train_s(), 2);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].status.state(), COMPLETED);
  EXPECT_EQ(reports_[0].workers, 2u);
  EXPECT_EQ(Beat(first)->job_state(), COMPLETED);
  EXPECT_TRUE(coordinator_->ended());

  for (const FakeNode& node : nodes_) {
    EXPECT_FALSE(coordinator_->AllNodesGone());
    EXPECT_TRUE(Goodbye(node.registration).ok());
  }
  EXPECT_TRUE(coordinator_->AllNodesGone());
  EXPECT_EQ(Status().state(), COMPLETED);
}

TEST_F(CoordinatorTest, WorkerMayLeaveOnceItsWorkIsDone) {
  Begin(kTraining, 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse first = Join(WORKER_ROLE);
  const RegisterResponse second = Join(WORKER_ROLE);
  ASSERT_TRUE(Finish(first).ok());
  ASSERT_TRUE(Goodbye(first).ok());
  EXPECT_EQ(Status().state(), RUNNING);
  ASSERT_TRUE(Finish(second).ok());
  EXPECT_EQ(Status().state(), COMPLETED);
  EXPECT_EQ(Status().samples(), 200u);
}

TEST_F(CoordinatorTest, ServerDeathFailsTheJobAndAnswersAllCalls) {
  Begin(absl::StrCat(kTraining, "durability: MEMORY"), 2, 1,
        [](Coordinator::Options& options) { options.recovery_timeout = milliseconds(0); });
  Join(SERVER_ROLE);
  const RegisterResponse victim = Join(SERVER_ROLE);
  const RegisterResponse worker = Join(WORKER_ROLE);
  ASSERT_TRUE((*CreateTable("w"))->ok());
  const auto routing = GetRouting(100);
  const auto barrier = Barrier(worker, 2, 0);
  const auto evaluation = Report(worker, 0, 1, true);
  servers_.Hold();
  const auto table = CreateTable("t");
  Kill(victim.node());
  Pass(milliseconds(950));
  EXPECT_EQ(Status().state(), RUNNING);
  Pass(milliseconds(150));

  const std::string failure =
      "server-1 (host pid 2, s:2) died: no heartbeat for 1.1 s; partitions 1, 3, 5, 7 are nowhere "
      "else, and none of those has come back within 0.0 s";
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_EQ(Status().failure(), failure);
  const absl::Status told = absl::FailedPreconditionError("the job has failed: " + failure);
  for (const bool answered :
       {routing->has_value(), barrier->has_value(), evaluation->has_value(), table->has_value()}) {
    ASSERT_TRUE(answered);
  }
  EXPECT_EQ((*routing)->status(), told);
  EXPECT_EQ((*barrier)->status(), told);
  EXPECT_EQ((*evaluation)->status(), told);
  EXPECT_EQ((*table)->status(), told);
  EXPECT_EQ((*GetRouting())->status(), told);
  EXPECT_EQ(Register(Registration(WORKER_ROLE, 77)).status(), told);
  EXPECT_EQ(Beat(worker)->job_state(), FAILED);
  EXPECT_EQ(Beat(worker)->failure(), failure);
  EXPECT_EQ(Beat(victim).status().code(), absl::StatusCode::kAborted);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].status.failure(), failure);
  EXPECT_TRUE(coordinator_->ended());
  servers_.Release();
}

TEST_F(CoordinatorTest, MissingWorkerFailsAnUnfinishedJob) {
  Begin(kTraining, 1, 2);
  Join(SERVER_ROLE);
  const RegisterResponse done = Join(WORKER_ROLE);
  const RegisterResponse busy = Join(WORKER_ROLE);
  ASSERT_TRUE(Finish(done).ok());
  Kill(done.node());
  Pass(seconds(2));
  EXPECT_EQ(Status().state(), RUNNING);
  Kill(busy.node());
  Pass(seconds(60));
  EXPECT_EQ(Status().state(), RUNNING);
  Pass(seconds(2));
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_EQ(
      Status().failure(),
      "worker-1 (host pid 3) died: no heartbeat for 1.1 s; no worker has taken over its ranks "
      "2, 3 within 60.0 s");
}

TEST_F(CoordinatorTest, ClientDeathFailsItsBarrierOnly) {
  Begin(kTraining, 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse worker = Join(WORKER_ROLE);
  const RegisterResponse client = Join(CLIENT_ROLE);
  const auto theirs = Barrier(client, 2, 0);
  Kill(client.node());
  Pass(seconds(2));
  EXPECT_EQ(Status().state(), RUNNING);
  EXPECT_EQ((*theirs)->status().code(), absl::StatusCode::kAborted);
  EXPECT_NE((*Barrier(worker, 2, 1))->status().message().find("client-0"), absl::string_view::npos);
}

TEST_F(CoordinatorTest, LeavingServerWithOnlyReplicasFailsTheJob) {
  Begin(absl::StrCat(absl::StrReplaceAll(kTraining, {{"partitions: 8", "partitions: 1"}}),
                     "durability: MEMORY"),
        1, 1);
  const RegisterResponse server = Join(SERVER_ROLE);
  Join(WORKER_ROLE);
  ASSERT_TRUE((*CreateTable("w"))->ok());
  ASSERT_TRUE(Goodbye(server).ok());
  EXPECT_EQ(Status().failure(),
            "server-0 (host pid 1, s:1) left while the job was RUNNING; partition 0 is nowhere "
            "else, and durability is MEMORY");
}

TEST_F(CoordinatorTest, ServerThatLeavesBeforeTheStartIsReplaced) {
  Begin(kTraining, 2, 1);
  ASSERT_TRUE(Goodbye(Join(SERVER_ROLE)).ok());
  Join(SERVER_ROLE);
  Join(SERVER_ROLE);
  EXPECT_EQ(Status().routing_epoch(), 1u);
  EXPECT_EQ((**GetRouting())->servers(1).node(), "server-1");
}

TEST_F(CoordinatorTest, FailureReportOfAWorkerFailsTheJob) {
  Begin(kTraining, 1, 1);
  Join(SERVER_ROLE);
  const RegisterResponse worker = Join(WORKER_ROLE);
  ASSERT_TRUE(Finish(worker, 0, "train.libsvm:7: no label").ok());
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_EQ(Status().failure(), "worker-0 (host pid 2): train.libsvm:7: no label");
}

TEST_F(CoordinatorTest, PausedSchedulerDeclaresNoNodeDead) {
  Begin(absl::StrCat(kTraining, "durability: MEMORY"), 1, 1,
        [](Coordinator::Options& options) { options.recovery_timeout = milliseconds(0); });
  const RegisterResponse server = Join(SERVER_ROLE);
  ASSERT_TRUE((*CreateTable("w"))->ok());
  clock_.Advance(seconds(30));
  coordinator_->Tick();
  EXPECT_EQ(Status().state(), STARTING);
  Kill(server.node());
  Pass(milliseconds(1200));
  EXPECT_EQ(Status().state(), FAILED);
}

TEST_F(CoordinatorTest, StartTimeoutNamesThePresentNodes) {
  Begin(kTraining, 2, 1);
  Join(SERVER_ROLE);
  Pass(seconds(301));
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_EQ(Status().failure(),
            "waited 300 s for 2 servers and 1 workers; present: server-0 (host pid 1, s:1)");
}

TEST_F(CoordinatorTest, StoppedJobIsAnnouncedAndReported) {
  Begin(kTraining, 1, 1);
  const RegisterResponse server = Join(SERVER_ROLE);
  const auto routing = GetRouting(1);
  ASSERT_TRUE(StopJob("enough").ok());
  EXPECT_EQ((*routing)->status(), absl::UnavailableError("the job was stopped: enough"));
  EXPECT_EQ(Beat(server)->job_state(), STOPPED);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].status.state(), STOPPED);
  ASSERT_TRUE(StopJob("enough").ok());
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(CoordinatorTest, UnwritableReportFailsTheJob) {
  Begin(kTraining, 1, 1);
  Join(SERVER_ROLE);
  write_result_ = absl::UnavailableError("disk full");
  ASSERT_TRUE(Finish(Join(WORKER_ROLE)).ok());
  EXPECT_EQ(Status().state(), FAILED);
  EXPECT_EQ(Status().failure(), "disk full");
}

// For ThreadSanitizer: all rpcs concurrently.
TEST_F(CoordinatorTest, ConcurrentCallsAreSafe) {
  Begin(kTraining, 1, 4);
  Join(SERVER_ROLE);
  std::vector<RegisterResponse> workers;
  for (int i = 0; i < 4; ++i) workers.push_back(Join(WORKER_ROLE));
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        ASSERT_TRUE(Beat(workers[i]).ok());
        coordinator_->Tick();
        auto table = NewAnswer<CreateTableResponse>();
        CreateTableRequest request;
        *request.mutable_table() = SparseTableSpec(absl::StrCat("t", round), 1);
        coordinator_->Cancel(coordinator_->CreateTable(request, Into(table)), false);
        Status();
      }
      ASSERT_TRUE(Finish(workers[i]).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Status().state(), COMPLETED);
}

TEST_F(CoordinatorTest, AnyFailureTextIsSavedAndShown) {
  for (size_t i = 0; i < 3; ++i) {
    BeginWithStore(kTraining, 1, 1);
    Join(SERVER_ROLE);
    const RegisterResponse worker = Join(WORKER_ROLE);
    std::string words(i, 'x');
    while (words.size() < 3000) words += "\xe2\x82\xac";
    ASSERT_TRUE(Finish(worker, 0, words + "\xff").ok());
    EXPECT_EQ(Status().state(), FAILED);
    SchedulerState state;
    EXPECT_TRUE(state.ParseFromString(saved_)) << i;
    EXPECT_EQ(state.state(), FAILED);
    GetStatusResponse status;
    EXPECT_TRUE(status.ParseFromString(Status().SerializeAsString())) << i;
  }
}

TEST_F(CoordinatorTest, ServerOfAnotherJobIsRefused) {
  Begin(kTraining, 1, 1);
  RegisterRequest request = Registration(SERVER_ROLE, 1);
  request.set_job_id(98);
  request.set_that_job_only(true);
  const absl::Status status = Register(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("'flights' (99), not 98"), absl::string_view::npos) << status;
  EXPECT_EQ(Status().nodes_size(), 0);
  request.set_that_job_only(false);
  EXPECT_TRUE(Register(request).ok());
}

TEST_F(CoordinatorTest, ServerOfAnEndedJobLearnsOfTheEnd) {
  Begin(kTraining, 1, 1);
  ASSERT_TRUE(StopJob("enough").ok());
  RegisterRequest request = Registration(SERVER_ROLE, 1);
  request.set_job_id(options_.job_id);
  request.set_that_job_only(true);
  const absl::Status status = Register(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(status.GetPayload(kPushbackPayloadUrl).has_value()) << "it has not failed";
  EXPECT_NE(status.message().find("the job was stopped"), absl::string_view::npos) << status;
  request.set_that_job_only(false);
  EXPECT_EQ(Register(request).status().code(), absl::StatusCode::kUnavailable)
      << "another job may start here";
}

TEST_F(CoordinatorTest, ServerOfAFailedJobLearnsOfTheFailure) {
  Begin(kTraining, 1, 1);
  Pass(seconds(301));
  ASSERT_EQ(Status().state(), FAILED);
  RegisterRequest request = Registration(SERVER_ROLE, 1);
  request.set_job_id(options_.job_id);
  request.set_that_job_only(true);
  const absl::Status status = Register(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.GetPayload(kPushbackPayloadUrl), absl::Cord(kNeverAgain));
  EXPECT_NE(status.message().find("the job has failed: "), absl::string_view::npos) << status;
  request.set_job_id(98);
  EXPECT_EQ(Register(request).status().code(), absl::StatusCode::kFailedPrecondition)
      << "its own job may still run";
}

TEST_F(CoordinatorTest, CallersOfGoneServersAreDropped) {
  Begin(kTraining, 2, 1);
  Join(SERVER_ROLE);
  const RegisterResponse second = Join(SERVER_ROLE);
  Pass(2 * kPruneInterval);
  EXPECT_EQ(servers_.kept(), (absl::flat_hash_set<std::string>{"s:1", "s:2"}));
  Kill(second.node());
  Pass(2 * kPruneInterval);
  EXPECT_EQ(servers_.kept(), (absl::flat_hash_set<std::string>{"s:1"}));
}

TEST_F(CoordinatorTest, RanksFreedBeforePlacementAreReleasedLater) {
  Begin(absl::StrCat(kTraining, "consistency { mode: ASYNC }"), 1, 1);
  const RegisterResponse worker = Join(WORKER_ROLE);
  Kill(worker.node());
  Pass(std::chrono::milliseconds(1500));
  servers_.TakeCalls();
  Join(SERVER_ROLE);
  const std::vector<std::string> calls = servers_.TakeCalls();
  for (int rank = 0; rank < 4; ++rank) {
    const std::string call =
        absl::StrCat("s:2 ReleaseLogicalWorker ", rank, " ", worker.incarnation());
    EXPECT_EQ(std::count(calls.begin(), calls.end(), call), 1) << call;
  }
}

TEST_F(CoordinatorTest, FullDiskDelaysARelease) {
  Begin(absl::StrCat(kTraining, "consistency { mode: ASYNC }"), 1, 1);
  const RegisterResponse server = Join(SERVER_ROLE);
  const RegisterResponse worker = Join(WORKER_ROLE);
  servers_.TakeCalls();
  absl::Status full = absl::ResourceExhaustedError("the disk is full");
  full.SetPayload(kPushbackPayloadUrl, absl::Cord("20"));
  const auto releases = [&] {
    const std::vector<std::string> calls = servers_.TakeCalls();
    return std::count_if(calls.begin(), calls.end(), [](const std::string& call) {
      return call.find("ReleaseLogicalWorker 0 ") != std::string::npos;
    });
  };
  const std::string call = absl::StrCat("s:1 ReleaseLogicalWorker 0 ", worker.incarnation());
  for (int i = 0; i < 3; ++i) servers_.FailNext(call, full);
  Kill(worker.node());
  Pass(std::chrono::milliseconds(1500));
  EXPECT_EQ(releases(), 4) << "until it is done";
  EXPECT_EQ(Status().state(), RUNNING);
}

}  // namespace
}  // namespace pawl
