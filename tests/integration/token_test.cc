// Callers with tokens, against a live scheduler and server.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/client.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/security/method_roles.h"
#include "client_lib/security/token/testing/token_key.h"
#include "nlohmann/json.hpp"
#include "tests/harness/empty_calls.h"
#include "tests/harness/test_certificates.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

namespace tls = grpc::experimental;

constexpr std::chrono::seconds kTimeout{20};

class TokenTest : public TlsClusterTest {
 protected:
  void SetUp() override {
    Start("team");
    ASSERT_FALSE(addresses_.empty());
    std::ifstream file(absl::StrCat(cluster_->tls_dir("operator"), "/tokens/team.key.pem"));
    key_.private_pem = std::string(std::istreambuf_iterator<char>(file), {});
  }

  static std::string UriOf(const std::string& role) {
    return absl::StrCat("spiffe://pawl.local/pawl/test/", role, "/alice");
  }
  std::string NewToken(const std::string& role) {
    return Signed(TokenFor(UriOf(role), UnixNow()), key_, "team");
  }
  // A file with the token, which only this user can read.
  std::string TokenFile(const std::string& token) {
    const std::string path = absl::StrCat(cluster_->folder(), "/", token.substr(token.size() - 8));
    std::ofstream(path) << token << "\n";
    std::filesystem::permissions(
        path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return path;
  }
  std::unique_ptr<Client> Connect(const std::string& role) {
    ClientOptions options;
    options.scheduler = cluster_->scheduler_address();
    options.security.token_file = TokenFile(NewToken(role));
    options.security.authorities_file = absl::StrCat(cluster_->tls_dir("client"), "/ca.pem");
    auto client = Client::Connect(options);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }
  // Calls every rpc of both daemons, and expects UNAUTHENTICATED with that text.
  void ExpectRefusedEverywhere(const std::string& authorization, const std::string& part) {
    for (const std::string& address : addresses_) {
      EmptyCalls calls(address, Credulous());
      for (const absl::string_view method : KnownMethods()) {
        const grpc::Status status = calls.Call(method, authorization);
        EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED)
            << method << " at " << address << ": " << status.error_message();
        EXPECT_TRUE(absl::StrContains(status.error_message(), part)) << status.error_message();
      }
    }
  }

  TokenKeyPair key_;
};

TEST_F(TokenTest, EachRoleReachesOnlyItsRpcs) {
  for (const PeerRole role : {PeerRole::kReader, PeerRole::kClient, PeerRole::kOperator}) {
    const std::string token = NewToken(std::string(RoleName(role)));
    for (const std::string& address : addresses_) {
      EmptyCalls calls(address, Credulous());
      for (const absl::string_view method : KnownMethods()) {
        if (RolesOf(method)->Contains(role)) continue;
        const grpc::Status status = calls.Call(method, absl::StrCat("Bearer ", token));
        EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED)
            << RoleName(role) << " calls " << method << ": " << status.error_message();
      }
      // The token itself is valid.
      EXPECT_TRUE(calls.Call("/grpc.health.v1.Health/Check", absl::StrCat("Bearer ", token)).ok());
    }
  }
  ExpectJobIsUndisturbed();
}

TEST_F(TokenTest, InvalidTokensReachNoRpc) {
  const int64_t now = UnixNow();
  const Token good = TokenFor(UriOf("operator"), now);
  const std::vector<std::string> parts = absl::StrSplit(Signed(good, key_, "team"), '.');
  const auto token = [&](const std::string& uri, int64_t begin) {
    return Signed(TokenFor(uri, begin), key_, "team");
  };
  const std::string revoked_id = "0123456789abcdef";
  ASSERT_TRUE(MakeTestCertificates(absl::StrCat(cluster_->folder(), "/tls"), "test",
                                   {absl::StrCat("--revoke_token=", revoked_id)})
                  .ok());
  Token revoked = good;
  revoked.id = revoked_id;
  const std::string revoked_text = absl::StrCat("Bearer ", Signed(revoked, key_, "team"));
  for (const std::string& address : addresses_) {
    EmptyCalls calls(address, Credulous());
    EXPECT_TRUE(Eventually(
        [&] { return !calls.Call("/grpc.health.v1.Health/Check", revoked_text).ok(); }, kTimeout));
  }
  const std::vector<std::pair<std::string, std::string>> texts_and_parts = {
      {Signed(good, NewTokenKeyPair(), "team"), "its key has been removed"},
      {Signed(good, key_, "other"), "its key has been removed"},
      {absl::StrCat(absl::WebSafeBase64Escape(R"({"alg":"none","kid":"team"})"), ".", parts[1],
                    "."),
       "algorithm is not EdDSA"},
      {token("spiffe://pawl.local/pawl/other/operator/alice", now), "not one of this job"},
      {token("spiffe://elsewhere/pawl/test/operator/alice", now), "not one of this job"},
      {token(UriOf("operator"), now - 3601), "get a new one (pawlctl token)"},
      {token(UriOf("operator"), now + 600), "are the clocks right?"},
      {SignedText(R"({"alg":"EdDSA","kid":"team"})",
                  absl::StrCat(R"({"sub":")", UriOf("scheduler"), R"(","jti":"a","nbf":)", now,
                               R"(,"exp":)", now + 60, "}"),
                  key_),
       "cannot have the role scheduler"},
      {revoked_text.substr(7), "has been revoked"},
      {std::string(size_t{64} << 10, 'a'), "more than 2048 bytes"},
      {"garbage", "it is not a token of Pawl"},
      {absl::StrCat(parts[0], ".", parts[1], ".", parts[1]), "it is not a token of Pawl"},
  };
  for (const auto& [text, part] : texts_and_parts)
    ExpectRefusedEverywhere(absl::StrCat("Bearer ", text), part);
  ExpectRefusedEverywhere("", "neither a certificate nor a token");
  ExpectRefusedEverywhere("Basic YWxpY2U6c2VjcmV0", "it is not a token of Pawl");
  ExpectJobIsUndisturbed();
}

// A listener that accepts tokens still verifies certificates, and speaks TLS only.
TEST_F(TokenTest, StrangersReachNoRpc) {
  const std::string token = absl::StrCat("Bearer ", NewToken("operator"));
  for (const std::string& address : addresses_) {
    EmptyCalls plaintext(address, grpc::InsecureChannelCredentials());
    for (const absl::string_view method : KnownMethods()) {
      EXPECT_EQ(plaintext.Call(method, token).error_code(), grpc::StatusCode::UNAVAILABLE)
          << method;
    }
  }
  ASSERT_TRUE(MakeTestCertificates(absl::StrCat(cluster_->folder(), "/tls"), "test",
                                   {"--roles=operator/expired", "--days=-1"})
                  .ok());
  const std::string other = absl::StrCat(cluster_->folder(), "/other-authority");
  ASSERT_TRUE(MakeTestCertificates(other, "test").ok());
  for (const std::string& dir : {cluster_->tls_dir("operator/expired"), other + "/operator"}) {
    tls::TlsChannelCredentialsOptions options;
    options.set_certificate_provider(std::make_shared<tls::FileWatcherCertificateProvider>(
        absl::StrCat(dir, "/key.pem"), absl::StrCat(dir, "/cert.pem"), 1));
    options.watch_identity_key_cert_pairs();
    options.set_verify_server_certs(false);
    options.set_check_call_host(false);
    options.set_certificate_verifier(std::make_shared<tls::NoOpCertificateVerifier>());
    // gRPC's credentials own the options: only one may be made of them.
    const auto credentials = tls::TlsCredentials(options);
    for (const std::string& address : addresses_) {
      EmptyCalls calls(address, credentials);
      EXPECT_EQ(calls.Call("/pawl.Scheduler/GetStatus", token).error_code(),
                grpc::StatusCode::UNAVAILABLE);
    }
  }
  ExpectJobIsUndisturbed();
}

TEST_F(TokenTest, ClientWithATokenPushesAndReaderReadsOnly) {
  const auto client = Connect("client");
  ASSERT_NE(client, nullptr);
  const auto table = client->CreateTable(WithSgd(SparseTableSpec("rows", 2), 1)).get();
  ASSERT_TRUE(table.ok()) << table.status();
  const std::vector<uint64_t> keys = {7};
  const std::vector<float> gradients = {-1, -2};
  const absl::Status done =
      client->free_running().Push({{.table = *table, .keys = keys, .gradients = gradients}}).get();
  ASSERT_TRUE(done.ok()) << done;

  const auto reader = Connect("reader");
  ASSERT_NE(reader, nullptr);
  std::vector<float> row(2);
  const auto pulled = reader->free_running()
                          .Pull({{.table = *table, .keys = keys, .values = absl::MakeSpan(row)}})
                          .get();
  ASSERT_TRUE(pulled.ok()) << pulled;
  EXPECT_EQ(row, (std::vector<float>{1, 2}));
  const auto pushed =
      reader->free_running().Push({{.table = *table, .keys = keys, .gradients = gradients}}).get();
  EXPECT_EQ(pushed.code(), absl::StatusCode::kPermissionDenied) << pushed;
  // Heartbeats carry how the connections are protected.
  EXPECT_TRUE(cluster_
                  ->WaitFor(
                      [](const GetStatusResponse& status) {
                        for (const NodeStatus& node : status.nodes()) {
                          if (node.role() == CLIENT_ROLE && !node.security().tls()) return false;
                        }
                        return true;
                      },
                      kTimeout)
                  .ok());
}

TEST_F(TokenTest, AuditLogNamesTheHolderAndTheToken) {
  const Token admin = TokenFor(UriOf("operator"), UnixNow());
  const Token reader = TokenFor(UriOf("reader"), UnixNow());
  EmptyCalls calls(addresses_[0], Credulous());
  EXPECT_EQ(
      calls.Call("/pawl.Scheduler/StopJob", absl::StrCat("Bearer ", Signed(reader, key_, "team")))
          .error_code(),
      grpc::StatusCode::PERMISSION_DENIED);
  const std::string admin_text = absl::StrCat("Bearer ", Signed(admin, key_, "team"));
  EXPECT_TRUE(calls.Call("/pawl.Scheduler/StopJob", admin_text).ok());
  ASSERT_TRUE(cluster_->WaitUntilAllEnded(kTimeout).ok());
  const auto line_of = [&](const char* name) {
    std::ifstream file(absl::StrCat(cluster_->folder(), "/scheduler/", name));
    std::string line;
    std::getline(file, line);
    return nlohmann::json::parse(line);
  };
  EXPECT_EQ(line_of("audit.jsonl")["who"], admin.Describe());
  EXPECT_EQ(line_of("refused.jsonl")["who"], reader.Describe());
  // Neither they nor the log have the token itself.
  for (const char* file : {"audit.jsonl", "refused.jsonl"}) {
    std::ifstream stream(absl::StrCat(cluster_->folder(), "/scheduler/", file));
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    EXPECT_FALSE(absl::StrContains(text, admin_text.substr(7, 30))) << file;
  }
  EXPECT_FALSE(absl::StrContains(cluster_->Log("scheduler"), admin_text.substr(7, 30)));
}

}  // namespace
}  // namespace pawl
