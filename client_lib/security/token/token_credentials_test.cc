// Callers with tokens, against a listener that accepts them.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/security/peer.h"
#include "client_lib/security/security.h"
#include "client_lib/security/token/testing/token_key.h"
#include "client_lib/security/token/token_source.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"
#include "tests/harness/test_certificates.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kTimeout{20};
constexpr RoleSet kSchedulerRole(PeerRole::kScheduler);
constexpr char kAlice[] = "spiffe://pawl.local/pawl/flights/reader/alice";

// Counts the calls that reach it, and keeps the last caller.
class RecordingScheduler final : public Scheduler::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const GetStatusRequest*,
                                      GetStatusResponse*) override {
    return Record(context);
  }
  grpc::ServerUnaryReactor* StopJob(grpc::CallbackServerContext* context, const StopJobRequest*,
                                    StopJobResponse*) override {
    return Record(context);
  }

  int calls() const { return calls_; }
  std::string last_caller() const {
    MutexLock lock(mu_);
    return last_caller_;
  }

 private:
  grpc::ServerUnaryReactor* Record(grpc::CallbackServerContext* context) {
    ++calls_;
    {
      const std::optional<Peer> peer = PeerOf(*context);
      MutexLock lock(mu_);
      last_caller_ = peer.has_value() ? peer->Describe() : "unknown";
    }
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  std::atomic<int> calls_ = 0;
  mutable Mutex mu_;
  std::string last_caller_ PAWL_GUARDED_BY(mu_);
};

// A scheduler of job "flights" that accepts tokens of the key "team".
class TokenCredentialsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = TestCertificatesFolder("tls");
    ASSERT_TRUE(MakeTestCertificates(folder_, "flights").ok());
    ASSERT_TRUE(MakeTestCertificates(folder_, "flights", {"--token_key=team"}).ok());
    key_.private_pem = ReadTestFile(absl::StrCat(folder_, "/operator/tokens/team.key.pem"));
    auto security = Security::Open({.tls_dir = absl::StrCat(folder_, "/scheduler")}, kAllRoles);
    ASSERT_TRUE(security.ok()) << security.status();
    security_ = *std::move(security);
    Listen(security_->Listening().credentials);
  }
  void TearDown() override { Stop(); }

  void Listen(std::shared_ptr<grpc::ServerCredentials> credentials) {
    Stop();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", std::move(credentials), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  void Stop() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    server_ = nullptr;
  }

  std::string authorities() const { return absl::StrCat(folder_, "/scheduler/ca.pem"); }
  std::string NewToken(const std::string& uri = kAlice) {
    return Signed(TokenFor(uri, UnixNow()), key_, "team");
  }
  std::unique_ptr<Security> Open(SecurityOptions options) {
    auto opened = Security::Open(options, kAllRoles);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  std::unique_ptr<Security> WithTokenText(const std::string& token) {
    return Open({.token = token, .authorities_file = authorities()});
  }

  // A call on a new connection, with more metadata if `authorization` is not empty.
  template <typename Request, typename Response>
  grpc::Status Call(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                    grpc::Status (Scheduler::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Response*),
                    const std::string& authorization = "") {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub =
        Scheduler::NewStub(grpc::CreateCustomChannel(address_, credentials, arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kTimeout);
    if (!authorization.empty()) context.AddMetadata(kTokenMetadata, authorization);
    Request request;
    Response response;
    return ((*stub).*method)(&context, request, &response);
  }
  grpc::Status GetStatus(const Security& security, const std::string& authorization = "") {
    return Call(security.To(kSchedulerRole), &Scheduler::Stub::GetStatus, authorization);
  }
  void ExpectRefused(const grpc::Status& status, const std::string& part) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << status.error_message();
    EXPECT_TRUE(absl::StrContains(status.error_message(), part)) << status.error_message();
  }

  std::string folder_;
  TokenKeyPair key_;
  std::unique_ptr<Security> security_;
  RecordingScheduler service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(TokenCredentialsTest, TokenGrantsTheRpcsOfItsRole) {
  const Token token = TokenFor(kAlice, UnixNow());
  const auto reader = WithTokenText(Signed(token, key_, "team"));
  EXPECT_TRUE(reader->is_tls());
  const grpc::Status status = GetStatus(*reader);
  EXPECT_TRUE(status.ok()) << status.error_message();
  // Audit and handlers see name and id.
  EXPECT_EQ(service_.last_caller(), absl::StrCat(kAlice, " (token ", token.id, ")"));
  const grpc::Status stopped = Call(reader->To(kSchedulerRole), &Scheduler::Stub::StopJob);
  EXPECT_EQ(stopped.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(stopped.error_message(),
            "the role of this token, reader, may not call /pawl.Scheduler/StopJob: it is for the "
            "roles operator");
  EXPECT_EQ(service_.calls(), 1);
  EXPECT_EQ(security_->Report().refused_calls(), 1u);

  const auto admin = WithTokenText(NewToken("spiffe://pawl.local/pawl/flights/operator/bob"));
  EXPECT_TRUE(Call(admin->To(kSchedulerRole), &Scheduler::Stub::StopJob).ok());
}

TEST_F(TokenCredentialsTest, CertificatesAreValidAtTheSamePort) {
  const auto worker = Open({.tls_dir = absl::StrCat(folder_, "/worker")});
  EXPECT_TRUE(GetStatus(*worker).ok());
  EXPECT_EQ(service_.last_caller(), "spiffe://pawl.local/pawl/flights/worker");
  // A certificate of another authority is no better than none.
  const std::string other = TestCertificatesFolder("other");
  ASSERT_TRUE(MakeTestCertificates(other, "flights").ok());
  std::filesystem::copy_file(authorities(), absl::StrCat(other, "/worker/ca.pem"),
                             std::filesystem::copy_options::overwrite_existing);
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
          absl::StrCat(other, "/worker/key.pem"), absl::StrCat(other, "/worker/cert.pem"), 1));
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  EXPECT_EQ(
      Call(grpc::experimental::TlsCredentials(options), &Scheduler::Stub::GetStatus).error_code(),
      grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TokenCredentialsTest, CallersWithNeitherReachNoHandler) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  const auto stranger = grpc::experimental::TlsCredentials(options);
  ExpectRefused(Call(stranger, &Scheduler::Stub::GetStatus), "neither a certificate nor a token");
  for (const std::string& garbage : {std::string("Bearer x"), std::string("Basic YWxpY2U6"),
                                     std::string("Bearer "), absl::StrCat(" ", NewToken())}) {
    ExpectRefused(Call(stranger, &Scheduler::Stub::GetStatus, garbage),
                  "it is not a token of Pawl");
  }
  ExpectRefused(Call(stranger, &Scheduler::Stub::GetStatus,
                     absl::StrCat("Bearer ", std::string(size_t{4000}, 'a'))),
                "more than 2048 bytes");
  EXPECT_EQ(service_.calls(), 0);
}

TEST_F(TokenCredentialsTest, CertificateCountsBeforeTokenAndSeveralTokensAreRefused) {
  const auto worker = Open({.tls_dir = absl::StrCat(folder_, "/worker")});
  const std::string admin = NewToken("spiffe://pawl.local/pawl/flights/operator/bob");
  EXPECT_EQ(
      Call(worker->To(kSchedulerRole), &Scheduler::Stub::StopJob, absl::StrCat("Bearer ", admin))
          .error_code(),
      grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(GetStatus(*worker, absl::StrCat("Bearer ", admin)).ok());
  EXPECT_EQ(service_.last_caller(), "spiffe://pawl.local/pawl/flights/worker");
  const int calls = service_.calls();
  ExpectRefused(GetStatus(*WithTokenText(NewToken()), absl::StrCat("Bearer ", admin)), "");
  EXPECT_EQ(service_.calls(), calls);
}

TEST_F(TokenCredentialsTest, TokenIsNeverSentInPlaintext) {
  const auto source = std::make_shared<TokenSource>(NewToken());
  EXPECT_EQ(WithToken(grpc::InsecureChannelCredentials(), source), nullptr);
  for (const SecurityOptions& options :
       {SecurityOptions{.token = NewToken()},
        SecurityOptions{.insecure = true, .token = NewToken()},
        SecurityOptions{
            .insecure = true, .token = NewToken(), .authorities_file = authorities()}}) {
    const auto opened = Security::Open(options, kAllRoles);
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(opened.status().message(), "over TLS only")) << opened.status();
  }
  // A server on this machine without TLS.
  const auto reader = WithTokenText(NewToken());
  Listen(grpc::InsecureServerCredentials());
  EXPECT_EQ(GetStatus(*reader).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service_.calls(), 0);
}

TEST_F(TokenCredentialsTest, HolderSendsItOnlyToItsJob) {
  const auto reader = WithTokenText(NewToken());
  const auto expect = [&](const std::string& part) {
    const grpc::Status status = GetStatus(*reader);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_TRUE(absl::StrContains(status.error_message(), part)) << status.error_message();
  };
  // The same authority: a worker that poses as the scheduler, and a scheduler of another job.
  security_ = Open({.tls_dir = absl::StrCat(folder_, "/worker")});
  Listen(security_->Listening().credentials);
  expect("has not the role scheduler");
  ASSERT_TRUE(MakeTestCertificates(folder_, "other", {"--roles=scheduler/other"}).ok());
  const auto another = Open({.tls_dir = absl::StrCat(folder_, "/scheduler/other")});
  Listen(another->Listening().credentials);
  expect("is not one of job flights");
  EXPECT_EQ(service_.calls(), 0);
  Stop();
}

TEST_F(TokenCredentialsTest, TokenFileIsReadAgain) {
  const std::string file = absl::StrCat(folder_, "/alice.token");
  const auto write = [&](const Token& token) {
    std::ofstream(file + ".new") << Signed(token, key_, "team") << "\n";
    std::filesystem::permissions(
        file + ".new", std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    std::filesystem::rename(file + ".new", file);
  };
  write(TokenFor(kAlice, UnixNow()));
  const auto reader = Open({.tls_dir = absl::StrCat(folder_, "/client"), .token_file = file});
  EXPECT_TRUE(GetStatus(*reader).ok());
  const Token next = TokenFor(kAlice, UnixNow());
  write(next);
  EXPECT_TRUE(Eventually(
      [&] {
        EXPECT_TRUE(GetStatus(*reader).ok());
        return absl::StrContains(service_.last_caller(), next.id);
      },
      kTimeout));
  // The token of another holder is not taken over.
  write(TokenFor("spiffe://pawl.local/pawl/flights/operator/bob", UnixNow()));
  EXPECT_TRUE(
      Eventually([&] { return absl::StrContains(reader->Report().reload_failure(), "restart it"); },
                 kTimeout));
  EXPECT_TRUE(GetStatus(*reader).ok());
  EXPECT_TRUE(absl::StrContains(service_.last_caller(), next.id));
}

TEST_F(TokenCredentialsTest, RevokedTokensAndRemovedKeysAreRefusedByRunningProcesses) {
  const Token token = TokenFor(kAlice, UnixNow());
  const auto stolen = WithTokenText(Signed(token, key_, "team"));
  const auto other = WithTokenText(NewToken());
  EXPECT_TRUE(GetStatus(*stolen).ok());
  EXPECT_TRUE(GetStatus(*other).ok());
  ASSERT_TRUE(
      MakeTestCertificates(folder_, "flights", {absl::StrCat("--revoke_token=", token.id)}).ok());
  EXPECT_TRUE(Eventually([&] { return !GetStatus(*stolen).ok(); }, kTimeout));
  ExpectRefused(GetStatus(*stolen), absl::StrCat("the token ", token.id, " has been revoked"));
  EXPECT_TRUE(GetStatus(*other).ok());
  std::filesystem::remove(absl::StrCat(folder_, "/scheduler/tokens/team.pub.pem"));
  EXPECT_TRUE(Eventually([&] { return !GetStatus(*other).ok(); }, kTimeout));
  ExpectRefused(GetStatus(*other), "its key has been removed");
}

TEST_F(TokenCredentialsTest, ExpiredTokenTellsTheHolderToGetANewOne) {
  Token token = TokenFor(kAlice, UnixNow() - 3600);
  const std::string text = Signed(token, key_, "team");
  // The holder's own clock says it first.
  const auto opened = Security::Open({.token = text, .authorities_file = authorities()}, kAllRoles);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(opened.status().message(), "get a new one")) << opened.status();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  ExpectRefused(Call(grpc::experimental::TlsCredentials(options), &Scheduler::Stub::GetStatus,
                     absl::StrCat("Bearer ", text)),
                "get a new one (pawlctl token)");
}

TEST_F(TokenCredentialsTest, ProgramsRefuseTokensOfOtherRoles) {
  const auto opened = Security::Open({.token = NewToken(), .authorities_file = authorities()},
                                     RoleSet(PeerRole::kWorker));
  EXPECT_TRUE(absl::StrContains(opened.status().message(), "needs one with the role worker"))
      << opened.status();
}

TEST_F(TokenCredentialsTest, WithoutTokensFolderCertificatesAreRequired) {
  std::filesystem::remove_all(absl::StrCat(folder_, "/server/tokens"));
  const auto server = Open({.tls_dir = absl::StrCat(folder_, "/server")});
  Listen(server->Listening().credentials);
  const auto reader = WithTokenText(NewToken());
  EXPECT_EQ(Call(reader->To(RoleSet(PeerRole::kServer)), &Scheduler::Stub::GetStatus).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service_.calls(), 0);
  Stop();
}

}  // namespace
}  // namespace pawl
