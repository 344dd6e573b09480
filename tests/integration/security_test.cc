// Callers that must not reach a handler, against every rpc of a live scheduler and server.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/client.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/rpc/version.h"
#include "client_lib/security/method_roles.h"
#include "client_lib/security/ticket.h"
#include "grpcpp/generic/generic_stub.h"
#include "nlohmann/json.hpp"
#include "proto/parameter.grpc.pb.h"
#include "tests/harness/empty_calls.h"
#include "tests/harness/test_certificates.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kTimeout{20};

class SecurityTest : public TlsClusterTest {
 protected:
  void SetUp() override { Start(); }

  // Calls every rpc of both daemons, and expects the code of each.
  void ExpectRefused(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                     grpc::StatusCode code) {
    for (const std::string& address : addresses_) {
      for (const absl::string_view method : KnownMethods()) {
        const grpc::Status status = EmptyCalls(address, credentials).Call(method);
        EXPECT_EQ(status.error_code(), code)
            << method << " at " << address << ": " << status.error_message();
      }
    }
  }
};

TEST_F(SecurityTest, StrangersReachNoRpc) {
  ExpectRefused(grpc::InsecureChannelCredentials(), grpc::StatusCode::UNAVAILABLE);
  ExpectRefused(Credulous(""), grpc::StatusCode::UNAVAILABLE);
  const std::string other = absl::StrCat(cluster_->folder(), "/other-authority");
  ASSERT_TRUE(MakeTestCertificates(other, "test").ok());
  ExpectRefused(Credulous(absl::StrCat(other, "/operator")), grpc::StatusCode::UNAVAILABLE);
  ExpectJobIsUndisturbed();
}

TEST_F(SecurityTest, CertificatesOfAnotherJobReachNoRpc) {
  ASSERT_TRUE(MakeTestCertificates(absl::StrCat(cluster_->folder(), "/tls"), "other-job",
                                   {"--roles=operator/other,scheduler/other"})
                  .ok());
  for (const char* role : {"operator/other", "scheduler/other"})
    ExpectRefused(Credulous(cluster_->tls_dir(role)), grpc::StatusCode::UNAUTHENTICATED);
  ExpectJobIsUndisturbed();
}

TEST_F(SecurityTest, ExpiredCertificatesReachNoRpc) {
  ASSERT_TRUE(MakeTestCertificates(absl::StrCat(cluster_->folder(), "/tls"), "test",
                                   {"--roles=operator/expired", "--days=-1"})
                  .ok());
  ExpectRefused(Credulous(cluster_->tls_dir("operator/expired")), grpc::StatusCode::UNAVAILABLE);
  ExpectJobIsUndisturbed();
}

TEST_F(SecurityTest, EachRoleReachesOnlyItsRpcs) {
  for (const char* role : {"scheduler", "server", "worker", "client", "reader", "operator"}) {
    const auto credentials = Credulous(cluster_->tls_dir(role));
    const PeerRole peer = ParseIdentity(absl::StrCat("spiffe://d/pawl/j/", role))->role;
    for (const std::string& address : addresses_) {
      for (const absl::string_view method : KnownMethods()) {
        if (RolesOf(method)->Contains(peer)) continue;
        const grpc::Status status = EmptyCalls(address, credentials).Call(method);
        EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED)
            << role << " calls " << method << " at " << address << ": " << status.error_message();
      }
    }
  }
  ExpectJobIsUndisturbed();
}

TEST_F(SecurityTest, UnknownRpcIsRefusedBeforeAnyHandler) {
  const auto credentials = Credulous(cluster_->tls_dir("operator"));
  for (const std::string& address : addresses_) {
    EXPECT_EQ(EmptyCalls(address, credentials).Call("/pawl.Scheduler/Destroy").error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
}

TEST_F(SecurityTest, WorkerCannotRegisterAsServer) {
  auto worker = Security::Open({.tls_dir = cluster_->tls_dir("worker")}, kAllRoles);
  ASSERT_TRUE(worker.ok()) << worker.status();
  const auto stub = Scheduler::NewStub(grpc::CreateCustomChannel(
      cluster_->scheduler_address(), (*worker)->To(RoleSet(PeerRole::kScheduler)),
      ChannelSettings(ChannelKind::kControl)));
  RegisterRequest request;
  request.set_role(SERVER_ROLE);
  request.set_address("127.0.0.1:1");
  request.set_process_nonce(1);
  request.set_oldest_protocol(kOldestProtocol);
  request.set_newest_protocol(kNewestProtocol);
  RegisterResponse response;
  grpc::ClientContext context;
  SetDeadline(context, kEmptyCallTimeout);
  const grpc::Status registered = stub->Register(&context, request, &response);
  EXPECT_EQ(registered.error_code(), grpc::StatusCode::PERMISSION_DENIED)
      << registered.error_message();

  HeartbeatRequest heartbeat;
  heartbeat.set_node("server-0");
  heartbeat.set_incarnation(1);
  heartbeat.set_draining(true);
  HeartbeatResponse answer;
  grpc::ClientContext heartbeat_context;
  SetDeadline(heartbeat_context, kEmptyCallTimeout);
  EXPECT_EQ(stub->Heartbeat(&heartbeat_context, heartbeat, &answer).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(SecurityTest, ClientWithItsCertificatePushesAndReaderReadsOnly) {
  ClientOptions options;
  options.scheduler = cluster_->scheduler_address();
  options.security.tls_dir = cluster_->tls_dir("client");
  const auto client = Client::Connect(options);
  ASSERT_TRUE(client.ok()) << client.status();
  TableSpec spec;
  spec.set_name("rows");
  spec.set_kind(SPARSE);
  spec.set_row_width(2);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
  const auto table = (*client)->CreateTable(spec).get();
  ASSERT_TRUE(table.ok()) << table.status();
  const std::vector<uint64_t> keys = {7};
  const std::vector<float> gradients = {-1, -2};
  ASSERT_TRUE((*client)
                  ->free_running()
                  .Push({{.table = *table, .keys = keys, .gradients = gradients}})
                  .get()
                  .ok());

  options.security.tls_dir = cluster_->tls_dir("reader");
  const auto reader = Client::Connect(options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::vector<float> row(2);
  const auto pulled = (*reader)
                          ->free_running()
                          .Pull({{.table = *table, .keys = keys, .values = absl::MakeSpan(row)}})
                          .get();
  ASSERT_TRUE(pulled.ok()) << pulled;
  EXPECT_EQ(row, (std::vector<float>{1, 2}));
  const auto pushed = (*reader)
                          ->free_running()
                          .Push({{.table = *table, .keys = keys, .gradients = gradients}})
                          .get();
  EXPECT_EQ(pushed.code(), absl::StatusCode::kPermissionDenied) << pushed;
}

TEST_F(SecurityTest, PushUnderTheNumberOfAnotherClientNeedsItsTicket) {
  ClientOptions options;
  options.scheduler = cluster_->scheduler_address();
  options.security.tls_dir = cluster_->tls_dir("client");
  const auto victim = Client::Connect(options);
  ASSERT_TRUE(victim.ok()) << victim.status();
  TableSpec spec = WithSgd(SparseTableSpec("rows", 1), 1);
  const auto table = (*victim)->CreateTable(spec).get();
  ASSERT_TRUE(table.ok()) << table.status();
  const auto status = cluster_->GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();

  // A worker of the same job knows the victim's number and incarnation from the status.
  PushRequest forged;
  forged.mutable_header()->set_job_id(status->job_id());
  forged.mutable_header()->set_epoch(status->routing_epoch());
  forged.mutable_header()->set_client(0);
  forged.mutable_header()->set_incarnation((*victim)->incarnation());
  PushSegment& segment = *forged.add_segments();
  segment.set_table(table->id());
  segment.set_keys(std::string(8, '\0'));
  segment.set_partition(PartitionOf(table->id(), 0, 4));
  segment.set_values(std::string(4, '\0'));
  const auto stub = Parameter::NewStub(grpc::CreateCustomChannel(
      addresses_[1], Credulous(cluster_->tls_dir("worker")), ChannelSettings(ChannelKind::kBulk)));
  for (const std::string& ticket : {std::string(), std::string(kTicketBytes, 'x')}) {
    forged.mutable_header()->set_ticket(ticket);
    PushResponse response;
    grpc::ClientContext context;
    SetDeadline(context, kEmptyCallTimeout);
    const grpc::Status pushed = stub->Push(&context, forged, &response);
    EXPECT_EQ(pushed.error_code(), grpc::StatusCode::UNAUTHENTICATED) << pushed.error_message();
  }
}

TEST_F(SecurityTest, OtherUsersCannotReadFiles) {
  uint64_t files = 0;
  for (const char* process : {"scheduler", "server-0"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             absl::StrCat(cluster_->folder(), "/", process))) {
      ++files;
      EXPECT_EQ(entry.status().permissions() & std::filesystem::perms::others_all,
                std::filesystem::perms::none)
          << entry.path();
    }
  }
  EXPECT_GT(files, 3u);
}

TEST_F(SecurityTest, AuditLogNamesOperatorsAndRefusedCallers) {
  StopJobRequest request;
  request.set_reason("maintenance");
  EXPECT_EQ(EmptyCalls(cluster_->scheduler_address(), Credulous(cluster_->tls_dir("worker")))
                .Call("/pawl.Scheduler/StopJob")
                .error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  StopJobResponse response;
  grpc::ClientContext context;
  SetDeadline(context, kEmptyCallTimeout);
  const grpc::Status stopped = cluster_->scheduler().StopJob(&context, request, &response);
  ASSERT_TRUE(stopped.ok()) << stopped.error_message();
  ASSERT_TRUE(cluster_->WaitUntilAllEnded(kTimeout).ok());

  const auto lines_of = [&](const char* name) {
    std::ifstream file(absl::StrCat(cluster_->folder(), "/scheduler/", name));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  };
  const auto refused = lines_of("refused.jsonl");
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0]["who"], "spiffe://pawl.local/pawl/test/worker");
  EXPECT_EQ(refused[0]["code"], "PERMISSION_DENIED");
  const auto done = lines_of("audit.jsonl");
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0]["who"], "spiffe://pawl.local/pawl/test/operator");
  EXPECT_EQ(done[0]["method"], "StopJob");
  EXPECT_EQ(done[0]["request"], "{\"reason\":\"maintenance\"}");
  EXPECT_EQ(done[0]["code"], "OK");
  EXPECT_TRUE(absl::StartsWith(done[0]["from"].get<std::string>(), "ipv4:127.0.0.1:"));
}

TEST_F(SecurityTest, CallInTheNameOfAnotherNodeNeedsItsTicket) {
  ClientOptions options;
  options.scheduler = cluster_->scheduler_address();
  options.security.tls_dir = cluster_->tls_dir("client");
  const auto victim = Client::Connect(options);
  ASSERT_TRUE(victim.ok()) << victim.status();
  const auto stub = Scheduler::NewStub(grpc::CreateCustomChannel(
      cluster_->scheduler_address(), Credulous(cluster_->tls_dir("reader")),
      ChannelSettings(ChannelKind::kControl)));
  GoodbyeRequest goodbye;
  goodbye.set_node((*victim)->node());
  goodbye.set_incarnation((*victim)->incarnation());
  GoodbyeResponse response;
  grpc::ClientContext context;
  SetDeadline(context, kEmptyCallTimeout);
  EXPECT_EQ(stub->Goodbye(&context, goodbye, &response).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  const auto status = cluster_->GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  for (const NodeStatus& node : status->nodes()) EXPECT_FALSE(node.gone()) << node.node();
}

TEST_F(SecurityTest, ReadersHaveAShareOfTheClientNumbers) {
  const auto stub = Scheduler::NewStub(grpc::CreateCustomChannel(
      cluster_->scheduler_address(), Credulous(cluster_->tls_dir("reader")),
      ChannelSettings(ChannelKind::kControl)));
  struct Call {
    grpc::ClientContext context;
    RegisterRequest request;
    RegisterResponse response;
    std::promise<grpc::Status> status;
  };
  uint64_t nonce = 0;
  // More than the share, at once, because their leases expire.
  const auto is_exhausted = [&] {
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < 400; ++i) {
      Call& call = *calls.emplace_back(std::make_unique<Call>());
      SetDeadline(call.context, kTimeout);
      call.request.set_role(CLIENT_ROLE);
      call.request.set_process_nonce(++nonce);
      call.request.set_oldest_protocol(kOldestProtocol);
      call.request.set_newest_protocol(kNewestProtocol);
      stub->async()->Register(
          &call.context, &call.request, &call.response,
          [&call](grpc::Status status) { call.status.set_value(std::move(status)); });
    }
    bool is_refused = false;
    for (const auto& call : calls) {
      const grpc::Status status = call->status.get_future().get();
      is_refused = is_refused || absl::StrContains(status.error_message(), "reader and operator");
    }
    return is_refused;
  };
  EXPECT_TRUE(Eventually(is_exhausted, kTimeout));
  ClientOptions options;
  options.scheduler = cluster_->scheduler_address();
  options.security.tls_dir = cluster_->tls_dir("client");
  const auto client = Client::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status();
}

// Certificates are checked during handshakes only, so connections must end.
TEST_F(SecurityTest, RevokedPeersLoseTheirConnections) {
  const auto stub_of = [this](const std::string& role) {
    return Scheduler::NewStub(grpc::CreateCustomChannel(cluster_->scheduler_address(),
                                                        Credulous(cluster_->tls_dir(role)),
                                                        ChannelSettings(ChannelKind::kControl)));
  };
  const auto answer = [](Scheduler::Stub& stub) {
    grpc::ClientContext context;
    SetDeadline(context, kTimeout);
    GetStatusResponse response;
    return stub.GetStatus(&context, GetStatusRequest(), &response).error_code();
  };
  const auto reader = stub_of("reader");
  const auto other = stub_of("operator");
  ASSERT_EQ(answer(*reader), grpc::StatusCode::OK);
  ASSERT_EQ(answer(*other), grpc::StatusCode::OK);
  const std::string tls = absl::StrCat(cluster_->folder(), "/tls");
  ASSERT_TRUE(
      MakeTestCertificates(tls, "test", {absl::StrCat("--revoke=", tls, "/reader/cert.pem")}).ok());
  EXPECT_TRUE(
      Eventually([&] { return answer(*reader) == grpc::StatusCode::UNAVAILABLE; }, kTimeout));
  EXPECT_TRUE(Eventually([&] { return answer(*other) == grpc::StatusCode::OK; }, kTimeout));
  EXPECT_EQ(answer(*reader), grpc::StatusCode::UNAVAILABLE);
  ExpectJobIsUndisturbed();
}

TEST_F(SecurityTest, CertificatesAreReplacedWhileTheJobRuns) {
  const auto certificate = [&] {
    std::ifstream file(absl::StrCat(cluster_->tls_dir("server"), "/cert.pem"));
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string before = certificate();
  ASSERT_TRUE(MakeTestCertificates(absl::StrCat(cluster_->folder(), "/tls"), "test").ok());
  ASSERT_NE(certificate(), before);
  for (const char* process : {"scheduler", "server-0"}) {
    EXPECT_TRUE(Eventually(
        [&] {
          return absl::StrContains(cluster_->Log(process), "reloaded the files of --tls_dir");
        },
        kTimeout))
        << cluster_->Log(process);
  }
  ASSERT_TRUE(cluster_->AddServer().ok()) << cluster_->Describe();
  ExpectJobIsUndisturbed();
}

}  // namespace
}  // namespace pawl
