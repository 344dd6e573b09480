#include "client_lib/security/tls_credentials.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/eventually.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"
#include "tests/harness/command_output.h"
#include "tests/harness/test_certificates.h"

// Debian's c-ares, by which gRPC resolves names, does not free a name at the end of the process.
extern "C" const char* __lsan_default_suppressions() { return "leak:libcares\n"; }

namespace pawl {
namespace {

constexpr std::chrono::seconds kTimeout{20};
constexpr RoleSet kServerRole(PeerRole::kServer);

// Counts the calls that reach it.
class CountingScheduler final : public Scheduler::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const GetStatusRequest*,
                                      GetStatusResponse*) override {
    return Count(context);
  }
  grpc::ServerUnaryReactor* StopJob(grpc::CallbackServerContext* context, const StopJobRequest*,
                                    StopJobResponse*) override {
    return Count(context);
  }
  int calls() const { return calls_; }

 private:
  grpc::ServerUnaryReactor* Count(grpc::CallbackServerContext* context) {
    ++calls_;
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  std::atomic<int> calls_ = 0;
};

// A server with the certificate of a server of job "flights".
class TlsCredentialsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = TestCertificatesFolder("certificates");
    ASSERT_TRUE(MakeTestCertificates(folder_, "flights").ok());
    credentials_ = Open(absl::StrCat(folder_, "/server"));
    gate_ = std::make_shared<const Gate>(credentials_->State().identity,
                                         [this](const Gate::Refusal&) { ++refusals_; });
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", credentials_->Listening(gate_), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  void TearDown() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    server_ = nullptr;
  }

  std::unique_ptr<TlsCredentials> Open(const std::string& dir) {
    TlsCredentials::Options options;
    options.dir = dir;
    options.own_roles = kAllRoles;
    options.reload_interval = std::chrono::milliseconds(100);
    options.max_session_age = max_session_age_;
    options.unix_seconds = UnixNow;
    auto credentials = TlsCredentials::Open(Env::Real(), std::move(options));
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    return credentials.ok() ? *std::move(credentials) : nullptr;
  }

  // Another server, which later calls reach.
  std::unique_ptr<grpc::Server> Serve(const TlsCredentials& own, CountingScheduler& service) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", own.Listening(gate_), &port);
    builder.RegisterService(&service);
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    EXPECT_NE(server, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
    return server;
  }
  // A call on a new connection.
  template <typename Request, typename Response>
  grpc::Status Call(std::shared_ptr<grpc::ChannelCredentials> credentials,
                    grpc::Status (Scheduler::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Response*)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub =
        Scheduler::NewStub(grpc::CreateCustomChannel(address_, credentials, arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kTimeout);
    Request request;
    Response response;
    return ((*stub).*method)(&context, request, &response);
  }
  grpc::Status GetStatus(std::shared_ptr<grpc::ChannelCredentials> credentials) {
    return Call(std::move(credentials), &Scheduler::Stub::GetStatus);
  }

  // As openssl's client with the reader's certificate. Runs `command` with its other flags in $1
  // and the session's file in $2.
  absl::StatusOr<std::string> OpensslClient(const std::string& address,
                                            const std::string& command) {
    return CommandOutput(
        "/bin/sh",
        {"-c", command, "sh",
         absl::StrCat("-connect ", address, " -alpn h2 -cert ", folder_, "/reader/cert.pem -key ",
                      folder_, "/reader/key.pem -CAfile ", folder_, "/reader/ca.pem"),
         absl::StrCat(folder_, "/session.pem")});
  }
  void SaveSession(const std::string& address) {
    const auto saved = OpensslClient(
        address,
        "(until [ -s $2 ]; do sleep 0.05; done) | timeout 20 openssl s_client $1 -sess_out $2");
    EXPECT_TRUE(saved.ok()) << saved.status();
  }
  bool CanContinueSession(const std::string& address) {
    const auto output =
        OpensslClient(address, "timeout 20 openssl s_client $1 -sess_in $2 < /dev/null 2>&1; true");
    EXPECT_TRUE(output.ok()) << output.status();
    const bool reused = absl::StrContains(*output, "Reused, TLS");
    EXPECT_TRUE(reused || absl::StrContains(*output, "New, TLS")) << *output;
    return reused;
  }

  std::string folder_;
  MonotonicDuration max_session_age_ = kMaxTlsSessionAge;
  std::unique_ptr<TlsCredentials> credentials_;
  std::atomic<int> refusals_ = 0;
  std::shared_ptr<const Gate> gate_;
  CountingScheduler service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(TlsCredentialsTest, RoleDecidesWhichRpcIsPossible) {
  const auto worker = Open(absl::StrCat(folder_, "/worker"));
  const grpc::Status status = GetStatus(worker->To(kServerRole));
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(service_.calls(), 1);

  const grpc::Status stopped = Call(worker->To(kServerRole), &Scheduler::Stub::StopJob);
  EXPECT_EQ(stopped.error_code(), grpc::StatusCode::PERMISSION_DENIED) << stopped.error_message();
  EXPECT_EQ(service_.calls(), 1);
  EXPECT_EQ(gate_->refused(), 1u);
  EXPECT_EQ(refusals_, 1);

  const auto admin = Open(absl::StrCat(folder_, "/operator"));
  EXPECT_TRUE(Call(admin->To(kServerRole), &Scheduler::Stub::StopJob).ok());
  EXPECT_EQ(service_.calls(), 2);
}

TEST_F(TlsCredentialsTest, PlaintextAndMissingCertificateReachNoHandler) {
  EXPECT_EQ(GetStatus(grpc::InsecureChannelCredentials()).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  EXPECT_EQ(GetStatus(grpc::experimental::TlsCredentials(options)).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service_.calls(), 0);
}

TEST_F(TlsCredentialsTest, CertificateOfAnotherAuthorityReachesNoHandler) {
  const std::string other = TestCertificatesFolder("other");
  ASSERT_TRUE(MakeTestCertificates(other, "flights").ok());
  const auto worker = Open(absl::StrCat(other, "/worker"));
  EXPECT_EQ(GetStatus(worker->To(kServerRole)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service_.calls(), 0);
}

TEST_F(TlsCredentialsTest, CertificateOfAnotherJobIsRefusedOnBothSides) {
  ASSERT_TRUE(MakeTestCertificates(folder_, "other", {"--roles=worker/other"}).ok());
  const auto worker = Open(absl::StrCat(folder_, "/worker/other"));
  const grpc::Status refused_by_client = GetStatus(worker->To(kServerRole));
  EXPECT_EQ(refused_by_client.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(absl::StrContains(refused_by_client.error_message(), "is not one of job other"))
      << refused_by_client.error_message();
  EXPECT_EQ(service_.calls(), 0);

  // A client that accepts any server.
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          absl::StrCat(folder_, "/worker/other/key.pem"),
          absl::StrCat(folder_, "/worker/other/cert.pem"), 1));
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  EXPECT_EQ(GetStatus(grpc::experimental::TlsCredentials(options)).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(service_.calls(), 0);
}

TEST_F(TlsCredentialsTest, WorkerThatPosesAsSchedulerIsRefused) {
  const auto worker = Open(absl::StrCat(folder_, "/worker"));
  const grpc::Status status = GetStatus(worker->To(RoleSet(PeerRole::kScheduler)));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(absl::StrContains(status.error_message(), "has not the role scheduler"))
      << status.error_message();
  EXPECT_EQ(service_.calls(), 0);
}

TEST_F(TlsCredentialsTest, CertificatesOfIntermediateAuthoritiesAreAcceptedAndCanBeRevoked) {
  const std::string chain = TestCertificatesFolder("chain");
  ASSERT_TRUE(MakeTestCertificateChain(chain, "flights").ok());
  const auto own = Open(absl::StrCat(chain, "/server"));
  const auto worker = Open(absl::StrCat(chain, "/worker"));
  const auto admin = Open(absl::StrCat(chain, "/operator"));
  CountingScheduler service;
  const std::unique_ptr<grpc::Server> server = Serve(*own, service);
  EXPECT_TRUE(GetStatus(worker->To(kServerRole)).ok());
  // A certificate of another chain.
  const std::string other = TestCertificatesFolder("other-chain");
  ASSERT_TRUE(MakeTestCertificateChain(other, "flights").ok());
  EXPECT_EQ(GetStatus(Open(absl::StrCat(other, "/worker"))->To(kServerRole)).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service.calls(), 1);
  // The list of the intermediate authority revokes its certificates.
  ASSERT_TRUE(RevokeInTestCertificateChain(chain, "operator").ok());
  EXPECT_EQ(GetStatus(admin->To(kServerRole)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(GetStatus(worker->To(kServerRole)).ok());
  EXPECT_EQ(service.calls(), 2);
  server->Shutdown(std::chrono::system_clock::now());
  server->Wait();
}

TEST_F(TlsCredentialsTest, CertificateThatIsNotValidYetReachesNoHandler) {
  const std::string chain = TestCertificatesFolder("future");
  ASSERT_TRUE(MakeTestCertificateChain(chain, "flights").ok());
  const auto own = Open(absl::StrCat(chain, "/server"));
  CountingScheduler service;
  const std::unique_ptr<grpc::Server> server = Serve(*own, service);
  EXPECT_TRUE(GetStatus(Open(absl::StrCat(chain, "/worker"))->To(kServerRole)).ok());

  ASSERT_TRUE(MakeTestCertificateChain(chain, "flights", "+1 day", "+2 days").ok());
  TlsCredentials::Options options;
  options.dir = absl::StrCat(chain, "/worker");
  options.own_roles = kAllRoles;
  options.unix_seconds = UnixNow;
  const auto refused = TlsCredentials::Open(Env::Real(), options);
  EXPECT_TRUE(absl::StrContains(refused.status().message(), "set this machine's clock"))
      << refused.status();
  // A process whose clock is a day ahead uses it.
  options.unix_seconds = [] { return UnixNow() + 90000; };
  const auto early = TlsCredentials::Open(Env::Real(), options);
  ASSERT_TRUE(early.ok()) << early.status();
  EXPECT_EQ(GetStatus((*early)->To(kServerRole)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service.calls(), 1);
  server->Shutdown(std::chrono::system_clock::now());
  server->Wait();
}

// A process with certificates never falls back to plaintext, also not on its own machine.
TEST_F(TlsCredentialsTest, PlaintextServerGetsNoCall) {
  CountingScheduler service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const auto worker = Open(absl::StrCat(folder_, "/worker"));
  for (const std::string& host : {std::string("127.0.0.1"), std::string("localhost")}) {
    address_ = absl::StrCat(host, ":", port);
    EXPECT_EQ(GetStatus(worker->To(kServerRole)).error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  EXPECT_EQ(service.calls(), 0);
  server->Shutdown(std::chrono::system_clock::now());
  server->Wait();
}

TEST_F(TlsCredentialsTest, AuthorityAmongTheListsIsRefused) {
  const std::string dir = absl::StrCat(folder_, "/server");
  std::filesystem::create_directory(absl::StrCat(dir, "/crl"));
  std::filesystem::copy_file(absl::StrCat(folder_, "/authority/cert.pem"),
                             absl::StrCat(dir, "/crl/01234567.0"));
  ASSERT_TRUE(Eventually([&] { return !credentials_->State().reload_status.ok(); }, kTimeout));
  EXPECT_TRUE(absl::StrContains(credentials_->State().reload_status.message(),
                                "only lists of revoked certificates belong there"))
      << credentials_->State().reload_status;
  TlsCredentials::Options options;
  options.dir = dir;
  options.own_roles = kAllRoles;
  options.unix_seconds = UnixNow;
  EXPECT_EQ(TlsCredentials::Open(Env::Real(), options).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::filesystem::remove(absl::StrCat(dir, "/crl/01234567.0"));
  EXPECT_TRUE(Eventually([&] { return credentials_->State().reload_status.ok(); }, kTimeout));
}

TEST_F(TlsCredentialsTest, NewCertificatesAreUsedByNewConnections) {
  // The authority changes in three steps: both are trusted, certificates, only the new one.
  const std::string next = TestCertificatesFolder("next");
  ASSERT_TRUE(MakeTestCertificates(next, "flights").ok());
  const std::string both = ReadTestFile(absl::StrCat(folder_, "/server/ca.pem")) +
                           ReadTestFile(absl::StrCat(next, "/server/ca.pem"));
  std::ofstream(absl::StrCat(folder_, "/server/ca.pem")) << both;
  ASSERT_TRUE(Eventually([&] { return credentials_->State().reloads == 1; }, kTimeout));
  std::ofstream(absl::StrCat(next, "/worker/ca.pem")) << both;
  const auto worker = Open(absl::StrCat(next, "/worker"));
  // gRPC takes the files over within its own interval.
  EXPECT_TRUE(Eventually([&] { return GetStatus(worker->To(kServerRole)).ok(); }, kTimeout));
}

TEST_F(TlsCredentialsTest, RevokedCertificatesAreRefusedByRunningProcesses) {
  const auto revoke = [this](const std::string& role) {
    const absl::Status revoked = MakeTestCertificates(
        folder_, "flights", {absl::StrCat("--revoke=", folder_, "/", role, "/cert.pem")});
    EXPECT_TRUE(revoked.ok()) << revoked;
  };
  const auto worker = Open(absl::StrCat(folder_, "/worker"));
  const auto reader = Open(absl::StrCat(folder_, "/reader"));
  const auto admin = Open(absl::StrCat(folder_, "/operator"));
  EXPECT_TRUE(GetStatus(worker->To(kServerRole)).ok());
  revoke("worker");
  EXPECT_EQ(GetStatus(worker->To(kServerRole)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(GetStatus(reader->To(kServerRole)).ok());
  // A second list, for processes that have read the first one.
  revoke("reader");
  EXPECT_EQ(GetStatus(reader->To(kServerRole)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(GetStatus(admin->To(kServerRole)).ok());
  // Clients refuse a server in the same way.
  revoke("server");
  EXPECT_EQ(GetStatus(admin->To(kServerRole)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service_.calls(), 3);
}

TEST_F(TlsCredentialsTest, RevokedCertificateCannotContinueItsSession) {
  SaveSession(address_);
  EXPECT_TRUE(CanContinueSession(address_));
  const absl::Status revoked = MakeTestCertificates(
      folder_, "flights", {absl::StrCat("--revoke=", folder_, "/reader/cert.pem")});
  ASSERT_TRUE(revoked.ok()) << revoked;
  EXPECT_TRUE(Eventually([&] { return !CanContinueSession(address_); }, kTimeout));
}

TEST_F(TlsCredentialsTest, SessionsAreForgottenAfterTheirTime) {
  max_session_age_ = std::chrono::milliseconds(100);
  const auto credentials = Open(absl::StrCat(folder_, "/server"));
  CountingScheduler service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", credentials->Listening(gate_), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const std::string address = absl::StrCat("127.0.0.1:", port);
  SaveSession(address);
  EXPECT_TRUE(Eventually([&] { return !CanContinueSession(address); }, kTimeout));
  // Forgetting is no reload.
  EXPECT_EQ(credentials->State().reloads, 0u);
  server->Shutdown(std::chrono::system_clock::now());
  server->Wait();
}

TEST_F(TlsCredentialsTest, AuthorityIsReplacedInThreeSteps) {
  const std::string fresh = absl::StrCat(folder_, "-new");
  ASSERT_TRUE(MakeTestCertificates(fresh, "flights").ok());
  const std::string both = ReadTestFile(absl::StrCat(folder_, "/authority/cert.pem")) +
                           ReadTestFile(absl::StrCat(fresh, "/authority/cert.pem"));
  const auto reader = Open(absl::StrCat(folder_, "/reader"));
  const auto admin = Open(absl::StrCat(folder_, "/operator"));
  const std::vector<const TlsCredentials*> processes = {credentials_.get(), reader.get(),
                                                        admin.get()};
  const auto replace = [&](const TlsCredentials& process, const std::string& authorities,
                           bool with_certificate) {
    const std::string role(RoleName(process.State().identity.role));
    const uint64_t reloads = process.State().reloads;
    const std::string from = absl::StrCat(fresh, "/", role, "/");
    const std::string to = absl::StrCat(folder_, "/", role, "/");
    const auto overwrite = std::filesystem::copy_options::overwrite_existing;
    if (with_certificate) {
      std::filesystem::copy_file(from + "key.pem", to + "key.pem", overwrite);
      std::filesystem::copy_file(from + "cert.pem", to + "cert.pem", overwrite);
    } else {
      std::ofstream(to + "ca.pem.new") << authorities;
      std::filesystem::rename(to + "ca.pem.new", to + "ca.pem");
    }
    EXPECT_TRUE(Eventually(
        [&] {
          const CertificateState state = process.State();
          return state.reloads > reloads && state.reload_status.ok();
        },
        kTimeout))
        << process.State().reload_status;
  };
  // gRPC takes the files over within a second, so the first attempt may come too early.
  const auto expect_served = [&] {
    for (const TlsCredentials* const client : {reader.get(), admin.get()}) {
      EXPECT_TRUE(Eventually([&] { return GetStatus(client->To(kServerRole)).ok(); }, kTimeout));
    }
  };
  // Processes are changed one by one; between any two changes all of them reach the server.
  for (const TlsCredentials* const process : processes) {
    replace(*process, both, false);
    expect_served();
  }
  for (const TlsCredentials* const process : processes) {
    replace(*process, "", true);
    expect_served();
  }
  for (const TlsCredentials* const process : processes) {
    replace(*process, ReadTestFile(absl::StrCat(fresh, "/authority/cert.pem")), false);
    expect_served();
  }
}

TEST_F(TlsCredentialsTest, FilesThatDoNotFitAreNotUsed) {
  const std::string dir = absl::StrCat(folder_, "/server");
  const std::string key = ReadTestFile(absl::StrCat(dir, "/key.pem"));
  const std::string other_key = ReadTestFile(absl::StrCat(folder_, "/worker/key.pem"));
  std::ofstream(absl::StrCat(dir, "/key.pem")) << other_key;
  ASSERT_TRUE(Eventually([&] { return !credentials_->State().reload_status.ok(); }, kTimeout));
  EXPECT_TRUE(absl::StrContains(credentials_->State().reload_status.message(), "is not the key of"))
      << credentials_->State().reload_status;
  const auto worker = Open(absl::StrCat(folder_, "/worker"));
  EXPECT_TRUE(GetStatus(worker->To(kServerRole)).ok());

  std::ofstream(absl::StrCat(dir, "/key.pem")) << key;
  EXPECT_TRUE(Eventually([&] { return credentials_->State().reload_status.ok(); }, kTimeout));
}

TEST_F(TlsCredentialsTest, CertificateOfAnotherRoleIsNotTakenOver) {
  const std::string dir = absl::StrCat(folder_, "/server");
  for (const char* file : {"key.pem", "cert.pem"}) {
    std::filesystem::copy_file(absl::StrCat(folder_, "/operator/", file),
                               absl::StrCat(dir, "/", file),
                               std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_TRUE(Eventually(
      [&] {
        return absl::StrContains(credentials_->State().reload_status.message(), "restart it");
      },
      kTimeout));
  EXPECT_EQ(credentials_->State().identity.role, PeerRole::kServer);
}

TEST_F(TlsCredentialsTest, ProgramsRefuseCertificatesOfOtherRoles) {
  TlsCredentials::Options options;
  options.dir = absl::StrCat(folder_, "/worker");
  options.own_roles = RoleSet(PeerRole::kScheduler);
  options.unix_seconds = UnixNow;
  const auto opened = TlsCredentials::Open(Env::Real(), std::move(options));
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(opened.status().message(), "needs one with the role scheduler"))
      << opened.status();
}

}  // namespace
}  // namespace pawl
