#include "client_lib/security/token/token_verifier.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client_lib/security/token/testing/token_key.h"
#include "gtest/gtest.h"
#include "tests/harness/test_certificates.h"

namespace pawl {
namespace {

constexpr int64_t kNow = 1800000000;
constexpr char kAlice[] = "spiffe://pawl.local/pawl/flights/reader/alice";

// The keys of a server of job "flights", in files.
class TokenVerifierTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = TestCertificatesFolder("server");
    std::filesystem::create_directories(absl::StrCat(folder_, "/tokens"));
    Write("test.pub.pem", key_.public_pem);
  }

  void Write(const std::string& file, const std::string& content) {
    std::ofstream(absl::StrCat(folder_, "/tokens/", file)) << content;
  }
  absl::StatusOr<TokenKeys> ReadKeys() { return TokenKeys::Read(Env::Real(), folder_); }
  // A verifier with the files of now.
  TokenVerifier& verifier() {
    auto keys = ReadKeys();
    EXPECT_TRUE(keys.ok()) << keys.status();
    if (verifier_ == nullptr) {
      verifier_ = std::make_unique<TokenVerifier>(
          *ParseIdentity("spiffe://pawl.local/pawl/flights/server"), [this] { return now_.load(); },
          *std::move(keys));
    } else {
      verifier_->Replace(*std::move(keys));
    }
    return *verifier_;
  }
  // The answer to a caller with this token, the same twice; "" if it passes.
  std::string Answer(const std::string& text) {
    const CheckedToken first = verifier_->Check(absl::StrCat("Bearer ", text));
    const CheckedToken second = verifier_->Check(absl::StrCat("Bearer ", text));
    EXPECT_EQ(first.status, second.status);
    if (!first.status.ok()) {
      EXPECT_EQ(first.status.code(), absl::StatusCode::kUnauthenticated) << first.status;
      EXPECT_NE(first.reason, "");
    }
    return std::string(first.status.message());
  }
  void ExpectRefused(const std::string& text, const std::string& part) {
    EXPECT_TRUE(absl::StrContains(Answer(text), part)) << Answer(text);
  }

  std::string folder_;
  const TokenKeyPair key_ = NewTokenKeyPair();
  std::atomic<int64_t> now_ = kNow;
  std::unique_ptr<TokenVerifier> verifier_;
};

TEST_F(TokenVerifierTest, TokenOfAKnownKeyIsValidUntilItExpires) {
  const Token token = TokenFor(kAlice, kNow);
  const std::string text = Signed(token, key_);
  const CheckedToken checked = verifier().Check(absl::StrCat("bearer ", text));
  ASSERT_TRUE(checked.status.ok()) << checked.status;
  EXPECT_EQ(checked.token->identity.Uri(), kAlice);
  EXPECT_EQ(checked.token->id, token.id);
  now_ = kNow + 3599;
  EXPECT_EQ(Answer(text), "");
  now_ = kNow + 3600;
  ExpectRefused(text, "has expired at 2027-01-15 09:00 UTC");
  ExpectRefused(text, "get a new one (pawlctl token)");
  // Refused, but known: the log names the holder.
  EXPECT_EQ(verifier_->Check(text).token->id, token.id);
}

TEST_F(TokenVerifierTest, TokenIsValidAMinuteBeforeItsTimeAtMost) {
  const std::string text = Signed(TokenFor(kAlice, kNow), key_);
  verifier();
  now_ = kNow - kMaxTokenClockDifferenceSeconds;
  EXPECT_EQ(Answer(text), "");
  --now_;
  ExpectRefused(text, "is valid from 2027-01-15 08:00 UTC on");
  ExpectRefused(text, "are the clocks right?");
}

TEST_F(TokenVerifierTest, WrongSignatureIsRefused) {
  verifier();
  const Token token = TokenFor(kAlice, kNow);
  const std::string good = Signed(token, key_);
  EXPECT_EQ(Answer(good), "");
  // Another key of the same name; a key with another name.
  ExpectRefused(Signed(token, NewTokenKeyPair()), "its key has been removed");
  ExpectRefused(Signed(token, key_, "other"), "its key has been removed");
  // The signature of another token, also of one that has just been accepted.
  Token promoted = token;
  promoted.identity.role = PeerRole::kOperator;
  const std::vector<std::string> parts = absl::StrSplit(good, '.');
  const std::vector<std::string> other = absl::StrSplit(Signed(promoted, NewTokenKeyPair()), '.');
  ExpectRefused(absl::StrCat(other[0], ".", other[1], ".", parts[2]), "its key has been removed");
  // Each bit counts.
  std::string signature;
  ASSERT_TRUE(absl::WebSafeBase64Unescape(parts[2], &signature));
  for (size_t bit = 0; bit < 8 * signature.size(); bit += 37) {
    std::string damaged = signature;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    ExpectRefused(absl::StrCat(parts[0], ".", parts[1], ".", absl::WebSafeBase64Escape(damaged)),
                  "its key has been removed");
  }
}

TEST_F(TokenVerifierTest, UnsignedTokenIsRefused) {
  verifier();
  const std::vector<std::string> parts = absl::StrSplit(Signed(TokenFor(kAlice, kNow), key_), '.');
  const std::string none = absl::WebSafeBase64Escape(R"({"alg":"none","kid":"test","typ":"JWT"})");
  for (const std::string& signature : {std::string(), parts[2]}) {
    ExpectRefused(absl::StrCat(none, ".", parts[1], ".", signature), "algorithm is not EdDSA");
  }
}

TEST_F(TokenVerifierTest, OtherJobsAreRefusedWithoutTellingWhichOneThisIs) {
  verifier();
  for (const char* uri : {"spiffe://pawl.local/pawl/other/reader/alice",
                          "spiffe://other.example/pawl/flights/reader/alice"}) {
    const std::string text = Signed(TokenFor(uri, kNow), key_);
    ExpectRefused(text, "the token is not one of this job");
    EXPECT_FALSE(absl::StrContains(Answer(text), "flights"));
    EXPECT_TRUE(absl::StrContains(verifier_->Check(text).reason, "belongs to job flights"));
  }
}

TEST_F(TokenVerifierTest, RightSignatureDoesNotExcuseWrongClaims) {
  verifier();
  const auto text_of = [&](const char* role, int64_t seconds) {
    return SignedText(
        R"({"alg":"EdDSA","kid":"test"})",
        absl::StrCat(R"({"sub":"spiffe://pawl.local/pawl/flights/)", role,
                     R"(/alice","jti":"a","nbf":)", kNow, R"(,"exp":)", kNow + seconds, "}"),
        key_);
  };
  EXPECT_EQ(Answer(text_of("reader", 3600)), "");
  for (const char* role : {"scheduler", "server", "worker"})
    ExpectRefused(text_of(role, 3600), absl::StrCat("a token cannot have the role ", role));
  ExpectRefused(text_of("reader", kMaxTokenSeconds + 1), "valid for longer than 24 hours");
}

TEST_F(TokenVerifierTest, CallersWithoutTokenAreRefused) {
  verifier();
  EXPECT_EQ(verifier_->Check("").status.message(),
            "the caller has neither a certificate nor a token");
  ExpectRefused("", "it is not a token of Pawl");
  ExpectRefused("garbage", "it is not a token of Pawl");
  ExpectRefused(std::string(size_t{1} << 19, 'a'), "more than 2048 bytes");
}

TEST_F(TokenVerifierTest, RevokedTokensAreRefusedAtOnce) {
  const Token token = TokenFor(kAlice, kNow);
  const std::string text = Signed(token, key_);
  const std::string other = Signed(TokenFor(kAlice, kNow), key_);
  verifier();
  EXPECT_EQ(Answer(text), "");
  Write("revoked", absl::StrCat("# stolen laptop\n\n  ", token.id, "\r\n"));
  verifier();
  ExpectRefused(text, absl::StrCat("the token ", token.id, " has been revoked"));
  EXPECT_EQ(Answer(other), "");
}

TEST_F(TokenVerifierTest, KeysComeAndGo) {
  const TokenKeyPair next = NewTokenKeyPair();
  const std::string old_text = Signed(TokenFor(kAlice, kNow), key_);
  const std::string new_text = Signed(TokenFor(kAlice, kNow), next, "next");
  verifier();
  EXPECT_EQ(Answer(old_text), "");
  EXPECT_NE(Answer(new_text), "");
  Write("next.pub.pem", next.public_pem);
  verifier();
  EXPECT_EQ(Answer(old_text), "");
  EXPECT_EQ(Answer(new_text), "");
  // Also a token that has been verified before.
  std::filesystem::remove(absl::StrCat(folder_, "/tokens/test.pub.pem"));
  verifier();
  EXPECT_NE(Answer(old_text), "");
  EXPECT_EQ(Answer(new_text), "");
  EXPECT_FALSE(verifier_->Replace(*ReadKeys()));
}

TEST_F(TokenVerifierTest, ManyTokensAreRememberedForAWhileOnly) {
  verifier();
  for (size_t i = 0; i < kMaxKnownTokens + 10; ++i)
    ASSERT_EQ(Answer(Signed(TokenFor(kAlice, kNow), key_)), "");
}

TEST_F(TokenVerifierTest, WrongFilesAreNamed) {
  const auto expect = [&](const std::string& file, const std::string& content) {
    Write(file, content);
    const auto keys = ReadKeys();
    EXPECT_EQ(keys.status().code(), absl::StatusCode::kInvalidArgument) << file;
    EXPECT_TRUE(absl::StrContains(keys.status().message(), absl::StrCat("/tokens/", file)))
        << keys.status();
    std::filesystem::remove(absl::StrCat(folder_, "/tokens/", file));
  };
  expect("bad.pub.pem", "nonsense");
  expect("bad.pub.pem", key_.private_pem);
  expect("bad.pub.pem", NewTokenKeyPair("X25519").public_pem);
  // A whole token, or prose, would revoke nothing.
  expect("revoked", Signed(TokenFor(kAlice, kNow), key_));
  expect("revoked", "the token of alice\n");
  // Kubernetes' own names, private keys and other files.
  Write("..data.pub.pem", "nonsense");
  Write("test.key.pem", key_.private_pem);
  Write("README", "nonsense");
  EXPECT_TRUE(ReadKeys().ok()) << ReadKeys().status();
}

TEST_F(TokenVerifierTest, WithoutFolderNoTokenIsValid) {
  std::filesystem::remove_all(absl::StrCat(folder_, "/tokens"));
  verifier();
  EXPECT_NE(Answer(Signed(TokenFor(kAlice, kNow), key_)), "");
}

}  // namespace
}  // namespace pawl
