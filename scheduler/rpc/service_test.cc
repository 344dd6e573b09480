// The scheduler over real sockets, with fake servers that only it calls.
#include "scheduler/rpc/service.h"

#include <chrono>
#include <cstring>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/job/job_file.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/rpc/version.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"
#include "proto/server_control.grpc.pb.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/rpc/grpc_server_caller.h"
#include "scheduler/status/digest.h"
#include "scheduler/testing/coordinator_fixture.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Far longer than any step here takes, so that only a hang exceeds it.
constexpr seconds kPatience{60};

std::unique_ptr<grpc::Server> Listen(grpc::Service& service, std::string& address) {
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder, ChannelKind::kControl);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  address = absl::StrCat("127.0.0.1:", port);
  return server;
}

// A server's control service that records its calls.
class FakeControl final : public ServerControl::Service {
 public:
  grpc::Status CreateTable(grpc::ServerContext*, const CreateTableOnServerRequest* request,
                           CreateTableOnServerResponse*) override {
    Note(absl::StrCat("CreateTable ", request->table().id(), " ", request->table().name()));
    return grpc::Status::OK;
  }
  grpc::Status Inspect(grpc::ServerContext*, const InspectRequest* request,
                       InspectResponse* response) override {
    Note(request->digest() ? "Inspect digest" : "Inspect");
    *response = inspection;
    return grpc::Status::OK;
  }
  grpc::Status KeepBest(grpc::ServerContext*, const KeepBestRequest* request,
                        KeepBestResponse*) override {
    Note(absl::StrCat("KeepBest ", request->step()));
    return grpc::Status::OK;
  }
  grpc::Status RestoreBest(grpc::ServerContext*, const RestoreBestRequest*,
                           RestoreBestResponse*) override {
    Note("RestoreBest");
    return grpc::Status::OK;
  }

  std::vector<std::string> calls() {
    MutexLock lock(mu_);
    return calls_;
  }

  // Set before the job ends.
  InspectResponse inspection;

 private:
  void Note(std::string call) {
    MutexLock lock(mu_);
    calls_.push_back(std::move(call));
  }

  Mutex mu_;
  std::vector<std::string> calls_ PAWL_GUARDED_BY(mu_);
};

class ServiceTest : public testing::Test {
 protected:
  ServiceTest() {
    Coordinator::Options options;
    options.job = *ParseJob(R"(
      name: "flights"
      data { train: "train.libsvm" eval: "eval.libsvm" format: LIBSVM }
      model { logistic_regression {} }
      optimizer { sgd { learning_rate: 0.1 } }
      batch_size: 64
      logical_workers: 2
      partitions: 8
      evaluation { early_stopping { patience: 1 } }
      durability: MEMORY
    )",
                            "test.job");
    FillDefaults(options.job, 2);
    options.job_id = 7;
    options.servers = 2;
    options.workers = 2;
    // Even with MEMORY, a dead server may only be unreachable.
    options.recovery_timeout = std::chrono::milliseconds(0);
    options.write_report = [this](const JobReport& report) {
      report_ = report;
      return absl::OkStatus();
    };
    coordinator_ = std::make_unique<Coordinator>(std::move(options), Clock::Real(), caller_);
    service_ = std::make_unique<SchedulerService>(*coordinator_);
    grpc_server_ = Listen(*service_, address_);
    for (FakeControl& control : controls_) {
      control_servers_.push_back(Listen(control, control_addresses_.emplace_back()));
    }
    stub_ = Scheduler::NewStub(grpc::CreateCustomChannel(
        address_, grpc::InsecureChannelCredentials(), ChannelSettings(ChannelKind::kControl)));
    ticker_ = std::thread([this, stopped = stop_.get_future()] {
      while (stopped.wait_for(kTickInterval) != std::future_status::ready) {
        // All nodes but the silent one send heartbeats.
        std::vector<HeartbeatRequest> beats;
        {
          MutexLock lock(mu_);
          beats = beats_;
        }
        for (const HeartbeatRequest& beat : beats)
          Call(&Scheduler::Stub::Heartbeat, beat).IgnoreError();
        coordinator_->Tick();
      }
    });
  }

  ~ServiceTest() override {
    stop_.set_value();
    ticker_.join();
    coordinator_->Stop("the test has ended");
    grpc_server_->Shutdown(std::chrono::system_clock::now() + seconds(1));
    caller_.Shutdown();
  }

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Scheduler::Stub::*method)(grpc::ClientContext*,
                                                                        const Request&, Response*),
                                const Request& request,
                                std::chrono::system_clock::duration timeout = kPatience) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    Response response;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
    if (!status.ok())
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          status.error_message());
    return response;
  }

  template <typename Request, typename Response>
  std::future<absl::StatusOr<Response>> Begin(
      grpc::Status (Scheduler::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
      const Request& request) {
    return std::async(std::launch::async,
                      [this, method, request] { return Call(method, request); });
  }

  RegisterResponse Join(Role role, uint64_t nonce, const std::string& address = "") {
    RegisterRequest request;
    request.set_role(role);
    request.set_process_nonce(nonce);
    request.set_address(address);
    request.set_description(absl::StrCat("host pid ", nonce));
    request.set_newest_protocol(kNewestProtocol);
    const auto response = Call(&Scheduler::Stub::Register, request);
    EXPECT_TRUE(response.ok()) << response.status();
    MutexLock lock(mu_);
    beats_.push_back(From<HeartbeatRequest>(*response));
    return *response;
  }

  void Silence(const RegisterResponse& node) {
    MutexLock lock(mu_);
    for (auto it = beats_.begin(); it != beats_.end(); ++it) {
      if (it->node() != node.node()) continue;
      beats_.erase(it);
      return;
    }
  }

  // Polls until the job is in `state`; every poll is a round trip, so this does not spin.
  GetStatusResponse WaitFor(JobState state) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    GetStatusResponse status;
    while (std::chrono::steady_clock::now() < deadline) {
      status = *Call(&Scheduler::Stub::GetStatus, GetStatusRequest());
      if (status.state() == state) break;
    }
    EXPECT_EQ(status.state(), state);
    return status;
  }

  GrpcServerCaller caller_{grpc::InsecureChannelCredentials()};
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<SchedulerService> service_;
  std::string address_;
  std::unique_ptr<grpc::Server> grpc_server_;
  FakeControl controls_[2];
  std::vector<std::string> control_addresses_;
  std::vector<std::unique_ptr<grpc::Server>> control_servers_;
  std::unique_ptr<Scheduler::Stub> stub_;
  JobReport report_;
  std::promise<void> stop_;
  std::thread ticker_;
  Mutex mu_;
  std::vector<HeartbeatRequest> beats_ PAWL_GUARDED_BY(mu_);
};

TEST_F(ServiceTest, JobFromRegistrationToDigest) {
  // All waiting calls are made before any node has joined.
  auto routing = Begin(&Scheduler::Stub::GetRouting, GetRoutingRequest());
  CreateTableRequest table;
  *table.mutable_table() = SparseTableSpec("w", 4);
  auto created = Begin(&Scheduler::Stub::CreateTable, table);
  std::vector<RegisterResponse> servers = {Join(SERVER_ROLE, 1, control_addresses_[0]),
                                           Join(SERVER_ROLE, 2, control_addresses_[1])};
  const absl::StatusOr<RoutingTable> routes = routing.get();
  ASSERT_TRUE(routes.ok()) << routes.status();
  EXPECT_EQ(routes->epoch(), 1u);
  EXPECT_EQ(routes->servers(1).address(), control_addresses_[1]);
  const absl::StatusOr<CreateTableResponse> answer = created.get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->table().id(), 1u);
  for (FakeControl& control : controls_)
    EXPECT_EQ(control.calls(), (std::vector<std::string>{"CreateTable 1 w"}));

  std::vector<RegisterResponse> workers = {Join(WORKER_ROLE, 3)};
  auto assignment = Begin(&Scheduler::Stub::GetAssignment, From<GetAssignmentRequest>(workers[0]));
  workers.push_back(Join(WORKER_ROLE, 4));
  const absl::StatusOr<GetAssignmentResponse> ranks = assignment.get();
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  ASSERT_EQ(ranks->logical_workers_size(), 1);
  EXPECT_EQ(ranks->logical_workers(0).rank(), 0u);
  EXPECT_EQ(Call(&Scheduler::Stub::GetStatus, GetStatusRequest())->state(), RUNNING);

  auto barrier = From<BarrierRequest>(workers[0]);
  barrier.set_name("ready");
  barrier.set_parties(2);
  auto waiting = Begin(&Scheduler::Stub::Barrier, barrier);
  auto other = From<BarrierRequest>(workers[1]);
  other.set_name("ready");
  other.set_parties(2);
  other.set_party(1);
  EXPECT_TRUE(Call(&Scheduler::Stub::Barrier, other).ok());
  EXPECT_TRUE(waiting.get().ok());

  for (const bool good : {true, false}) {
    const uint64_t evaluation = good ? 1 : 2;
    auto first =
        Begin(&Scheduler::Stub::ReportEvaluation, EvaluationOf(workers[0], 0, evaluation, good));
    const auto second =
        Call(&Scheduler::Stub::ReportEvaluation, EvaluationOf(workers[1], 1, evaluation, good));
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_EQ(second->result().auc(), good ? 1.0 : 0.0);
    EXPECT_EQ(second->stop(), !good);
    EXPECT_EQ(first.get()->SerializeAsString(), second->SerializeAsString());
  }

  std::vector<PartitionDigest> digests;
  for (uint32_t server = 0; server < 2; ++server) {
    PartitionDigest digest;
    digest.set_table(1);
    digest.set_partition(server);
    digest.set_crc32c(0x1000 + server);
    digest.set_rows(3);
    digests.push_back(digest);
    *controls_[server].inspection.add_digests() = digest;
    controls_[server].inspection.mutable_counters()->set_pushes_applied(5);
  }
  for (const RegisterResponse& worker : workers) {
    auto finish = From<FinishWorkRequest>(worker);
    finish.mutable_progress()->set_samples(64);
    finish.mutable_progress()->set_steps_min(2);
    EXPECT_TRUE(Call(&Scheduler::Stub::FinishWork, finish).ok());
  }
  const GetStatusResponse status = WaitFor(COMPLETED);
  EXPECT_EQ(status.digest(), *CombineDigests({{1, "w"}}, digests));
  EXPECT_EQ(status.counters().pushes_applied(), 10u);
  EXPECT_EQ(status.samples(), 128u);
  EXPECT_EQ(report_.evaluation->evaluation(), 1u);
  for (FakeControl& control : controls_) {
    EXPECT_EQ(control.calls(), (std::vector<std::string>{"CreateTable 1 w", "KeepBest 10",
                                                         "RestoreBest", "Inspect digest"}));
  }
  for (const auto& nodes : {servers, workers}) {
    for (const RegisterResponse& node : nodes) {
      EXPECT_EQ(Call(&Scheduler::Stub::Heartbeat, From<HeartbeatRequest>(node))->job_state(),
                COMPLETED);
      EXPECT_TRUE(Call(&Scheduler::Stub::Goodbye, From<GoodbyeRequest>(node)).ok());
    }
  }
  EXPECT_TRUE(coordinator_->AllNodesGone());
}

TEST_F(ServiceTest, ServerDeathIsReportedToAllCallers) {
  Join(SERVER_ROLE, 1, control_addresses_[0]);
  const RegisterResponse victim = Join(SERVER_ROLE, 2, control_addresses_[1]);
  const RegisterResponse worker = Join(WORKER_ROLE, 3);
  // Without a table nothing would be lost.
  CreateTableRequest table;
  *table.mutable_table() = SparseTableSpec("w", 4);
  ASSERT_TRUE(Call(&Scheduler::Stub::CreateTable, table).ok());
  GetRoutingRequest newer;
  newer.set_newer_than_epoch(100);
  auto routing = Begin(&Scheduler::Stub::GetRouting, newer);
  auto assignment = Begin(&Scheduler::Stub::GetAssignment, From<GetAssignmentRequest>(worker));
  auto barrier_request = From<BarrierRequest>(worker);
  barrier_request.set_name("ready");
  barrier_request.set_parties(2);
  auto barrier = Begin(&Scheduler::Stub::Barrier, barrier_request);

  const auto silenced = std::chrono::steady_clock::now();
  Silence(victim);
  for (const absl::Status& status :
       {routing.get().status(), assignment.get().status(), barrier.get().status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find(absl::StrCat("server-1 (host pid 2, ", control_addresses_[1],
                                                 ") died: no heartbeat for 1.")),
              absl::string_view::npos)
        << status;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - silenced, seconds(10));
  EXPECT_EQ(Call(&Scheduler::Stub::Heartbeat, From<HeartbeatRequest>(worker))->job_state(), FAILED);
  EXPECT_EQ(Call(&Scheduler::Stub::Heartbeat, From<HeartbeatRequest>(victim)).status().code(),
            absl::StatusCode::kAborted);
}

TEST_F(ServiceTest, DeadlineOfAPendingCallFailsItsBarrier) {
  const RegisterResponse first = Join(WORKER_ROLE, 3);
  const RegisterResponse second = Join(WORKER_ROLE, 4);
  auto patient_request = From<BarrierRequest>(first);
  patient_request.set_name("ready");
  patient_request.set_parties(3);
  auto patient = Begin(&Scheduler::Stub::Barrier, patient_request);
  auto impatient_request = From<BarrierRequest>(second);
  impatient_request.set_name("ready");
  impatient_request.set_parties(3);
  impatient_request.set_party(1);
  EXPECT_EQ(Call(&Scheduler::Stub::Barrier, impatient_request, milliseconds(200)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  const absl::Status status = patient.get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_NE(status.message().find("party 1 (worker-1) gave up"), absl::string_view::npos) << status;
}

TEST_F(ServiceTest, PendingCallOfAGoneClientIsDropped) {
  GetRoutingRequest request;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Call(&Scheduler::Stub::GetRouting, request, milliseconds(50)).status().code(),
              absl::StatusCode::kDeadlineExceeded);
  }
  Join(SERVER_ROLE, 1, control_addresses_[0]);
  Join(SERVER_ROLE, 2, control_addresses_[1]);
  EXPECT_TRUE(Call(&Scheduler::Stub::GetRouting, request).ok());
}

TEST_F(ServiceTest, CompressedMessagesAreRefused) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  StopJobRequest request;
  request.set_reason(std::string(10000, 'x'));
  StopJobResponse response;
  EXPECT_EQ(stub_->StopJob(&context, request, &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ServiceTest, MessageBeyondTheLimitIsRefused) {
  StopJobRequest request;
  request.set_reason(std::string(kMaxControlMessageBytes + 1, 'x'));
  EXPECT_EQ(Call(&Scheduler::Stub::StopJob, request).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Call(&Scheduler::Stub::GetStatus, GetStatusRequest())->state(), STARTING);
}

TEST_F(ServiceTest, PortInUseCannotBeListenedOn) {
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder, ChannelKind::kControl);
  int port = 0;
  builder.AddListeningPort(address_, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service_.get());
  EXPECT_EQ(builder.BuildAndStart(), nullptr);
}

TEST(SchedulerServiceBeforeStartTest, RefusedOperatorsAreAudited) {
  const std::string path = testing::TempDir() + "/audit.jsonl";
  const auto audit = AuditLog::Open(path);
  ASSERT_TRUE(audit.ok()) << audit.status();
  SchedulerService service([] { return GetStatusResponse(); });
  service.SetAuditLog(audit->get());
  std::string address;
  const std::unique_ptr<grpc::Server> server = Listen(service, address);
  const auto stub =
      Scheduler::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  StopJobRequest request;
  request.set_reason("maintenance");
  StopJobResponse response;
  EXPECT_EQ(stub->StopJob(&context, request, &response).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  for (const char* part : {"StopJob", "maintenance", "UNAVAILABLE"})
    EXPECT_TRUE(absl::StrContains(line, part)) << line;
  server->Shutdown();
}

TEST(SchedulerServiceBeforeStartTest, OnlyStatusIsAnswered) {
  SchedulerService service([] {
    GetStatusResponse status;
    status.mutable_checkpoint()->set_parts_verified(3);
    return status;
  });
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = Scheduler::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  {
    grpc::ClientContext context;
    GetStatusResponse status;
    ASSERT_TRUE(stub->GetStatus(&context, GetStatusRequest(), &status).ok());
    EXPECT_EQ(status.checkpoint().parts_verified(), 3u);
  }
  {
    grpc::ClientContext context;
    RegisterResponse response;
    EXPECT_EQ(stub->Register(&context, RegisterRequest(), &response).error_code(),
              grpc::StatusCode::UNAVAILABLE);
  }
  grpc::ClientContext context;
  HeartbeatResponse response;
  EXPECT_EQ(stub->Heartbeat(&context, HeartbeatRequest(), &response).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  server->Shutdown();
}

}  // namespace
}  // namespace pawl
