#include "client_lib/security/token/token.h"

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client_lib/security/token/testing/token_key.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr int64_t kNow = 1800000000;
constexpr char kAlice[] = "spiffe://pawl.local/pawl/flights/reader/alice";

// The text of a token with this header and payload and some signature.
std::string Unsigned(const std::string& header, const std::string& payload) {
  return absl::StrCat(absl::WebSafeBase64Escape(header), ".", absl::WebSafeBase64Escape(payload),
                      ".", absl::WebSafeBase64Escape(std::string(64, 's')));
}

void ExpectRefused(const std::string& text, const std::string& part) {
  const auto read = ReadToken(text);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_TRUE(absl::StrContains(read.status().message(), part)) << read.status();
}

TEST(TokenTest, SignedTokenIsRead) {
  const Token token = TokenFor(kAlice, kNow);
  const std::string text = Signed(token, NewTokenKeyPair(), "team");
  const auto read = ReadToken(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->key_name, "team");
  EXPECT_EQ(read->token.identity.Uri(), kAlice);
  EXPECT_EQ(read->token.id, token.id);
  EXPECT_EQ(read->token.not_before, kNow);
  EXPECT_EQ(read->token.expires, kNow + 3600);
  EXPECT_EQ(read->token.Describe(), absl::StrCat(kAlice, " (token ", token.id, ")"));
}

// RFC 7519: other tools can read it.
TEST(TokenTest, TextIsAJsonWebToken) {
  Token token = TokenFor(kAlice, kNow);
  token.id = "0123456789abcdef";
  const std::vector<std::string> parts = absl::StrSplit(Signed(token, NewTokenKeyPair()), '.');
  ASSERT_EQ(parts.size(), 3u);
  std::string header, payload;
  ASSERT_TRUE(absl::WebSafeBase64Unescape(parts[0], &header));
  ASSERT_TRUE(absl::WebSafeBase64Unescape(parts[1], &payload));
  EXPECT_EQ(header, R"({"alg":"EdDSA","kid":"test","typ":"JWT"})");
  EXPECT_EQ(payload, absl::StrCat(R"({"exp":1800003600,"jti":"0123456789abcdef","nbf":1800000000,)",
                                  R"("sub":")", kAlice, R"("})"));
  for (const std::string& part : parts)
    EXPECT_EQ(part.find_first_of("=+/ \n"), std::string::npos) << part;
}

TEST(TokenTest, LongestNamesFit) {
  const std::string part(128, 'x');
  const Token token =
      TokenFor(absl::StrCat("spiffe://", part, "/pawl/", part, "/operator/", part), kNow);
  EXPECT_TRUE(ReadToken(Signed(token, NewTokenKeyPair(), part)).ok());
}

TEST(TokenTest, IdsDiffer) { EXPECT_NE(NewTokenId(), NewTokenId()); }

TEST(TokenTest, OtherAlgorithmsAreRefused) {
  const std::string payload =
      absl::StrCat(R"({"sub":")", kAlice, R"(","jti":"a","nbf":1,"exp":2})");
  EXPECT_TRUE(ReadToken(Unsigned(R"({"alg":"EdDSA","kid":"test"})", payload)).ok());
  for (const char* algorithm : {"none", "None", "NONE", "HS256", "ES256", "RS256", "eddsa", ""}) {
    ExpectRefused(Unsigned(absl::StrCat(R"({"alg":")", algorithm, R"(","kid":"test"})"), payload),
                  "algorithm is not EdDSA");
  }
  ExpectRefused(Unsigned(R"({"kid":"test"})", payload), "'alg'");
  ExpectRefused(Unsigned(R"({"alg":["EdDSA"],"kid":"test"})", payload), "'alg'");
}

TEST(TokenTest, GarbageIsRefused) {
  const std::string good = Signed(TokenFor(kAlice, kNow), NewTokenKeyPair());
  const std::vector<std::string> parts = absl::StrSplit(good, '.');
  for (const std::string& text :
       {std::string(), std::string("."), std::string(".."), std::string("..."),
        std::string("\0\xff.a.b", 6), absl::StrCat(parts[0], ".", parts[1]),
        absl::StrCat(parts[0], ".", parts[1], "."), absl::StrCat(good, "."),
        absl::StrCat(good, ".", parts[2]), absl::StrCat(parts[1], ".", parts[0], ".", parts[2]),
        absl::StrCat(parts[0], ".!!!.", parts[2]), absl::StrCat(" ", good),
        absl::StrCat(good, "\n"), absl::StrCat(good, "=="),
        absl::StrCat(parts[0], " .", parts[1], ".", parts[2]),
        absl::StrCat(parts[0], ".", absl::WebSafeBase64Escape(std::string(1000, '[')), ".",
                     parts[2])}) {
    ExpectRefused(text, "it is not a token of Pawl");
  }
  for (size_t size = 0; size < good.size(); ++size) {
    // A shorter signature, or a damaged payload.
    EXPECT_FALSE(ReadToken(good.substr(0, size)).ok()) << size;
  }
}

TEST(TokenTest, HugeTextIsRefusedUnread) {
  ExpectRefused(std::string(kMaxTokenBytes + 1, 'a'), "more than 2048 bytes");
  ExpectRefused(std::string(size_t{1} << 20, '.'), "more than 2048 bytes");
}

TEST(TokenTest, WrongClaimsAreRefused) {
  const auto with = [](const std::string& payload) {
    return Unsigned(R"({"alg":"EdDSA","kid":"test"})", payload);
  };
  const std::string subject = absl::StrCat(R"("sub":")", kAlice, R"(")");
  EXPECT_TRUE(ReadToken(with(absl::StrCat("{", subject, R"(,"jti":"a","nbf":1,"exp":2})"))).ok());
  ExpectRefused(with(R"({"jti":"a","nbf":1,"exp":2})"), "'sub'");
  ExpectRefused(with(R"({"sub":"alice","jti":"a","nbf":1,"exp":2})"), "the URI 'alice'");
  ExpectRefused(with(absl::StrCat("{", subject, R"(,"nbf":1,"exp":2})")), "'jti'");
  for (const char* id : {"", "a b", "a\\nb", "\\u00e4"}) {
    ExpectRefused(with(absl::StrCat("{", subject, R"(,"jti":")", id, R"(","nbf":1,"exp":2})")),
                  "its id must have");
  }
  ExpectRefused(with(absl::StrCat("{", subject, R"(,"jti":"a","exp":2})")), "'nbf'");
  for (const char* end : {"\"2\"", "2.5", "-2", "1e99", "99999999999999999999", "null", "[2]"}) {
    ExpectRefused(with(absl::StrCat("{", subject, R"(,"jti":"a","nbf":1,"exp":)", end, "}")),
                  "'exp'");
  }
  ExpectRefused(with(absl::StrCat("{", subject, R"(,"jti":"a","nbf":2,"exp":2})")),
                "ends before it begins");
}

TEST(TokenTest, DaemonsHaveNoTokens) {
  const TokenKeyPair key = NewTokenKeyPair();
  for (const char* role : {"scheduler", "server", "worker"}) {
    const std::string uri = absl::StrCat("spiffe://pawl.local/pawl/flights/", role, "/alice");
    const Token token = TokenFor(uri, kNow);
    EXPECT_EQ(SignToken(token, "test", key.private_pem).status().code(),
              absl::StatusCode::kInvalidArgument);
    ExpectRefused(Unsigned(R"({"alg":"EdDSA","kid":"test"})",
                           absl::StrCat(R"({"sub":")", uri, R"(","jti":"a","nbf":1,"exp":2})")),
                  absl::StrCat("cannot have the role ", role));
  }
  for (const char* role : {"reader", "client", "operator"}) {
    const Token token =
        TokenFor(absl::StrCat("spiffe://pawl.local/pawl/flights/", role, "/alice"), kNow);
    EXPECT_TRUE(SignToken(token, "test", key.private_pem).ok()) << role;
  }
}

TEST(TokenTest, OwnersHaveANameAndTokensADay) {
  const TokenKeyPair key = NewTokenKeyPair();
  EXPECT_FALSE(
      SignToken(TokenFor("spiffe://pawl.local/pawl/flights/reader", kNow), "test", key.private_pem)
          .ok());
  Token token = TokenFor(kAlice, kNow);
  token.expires = kNow + kMaxTokenSeconds;
  EXPECT_TRUE(SignToken(token, "test", key.private_pem).ok());
  token.expires = kNow + kMaxTokenSeconds + 1;
  EXPECT_FALSE(SignToken(token, "test", key.private_pem).ok());
  token.expires = kNow;
  EXPECT_FALSE(SignToken(token, "test", key.private_pem).ok());
}

TEST(TokenTest, OtherKeysSignNothing) {
  const Token token = TokenFor(kAlice, kNow);
  for (const std::string& pem :
       {std::string(), std::string("nonsense"), NewTokenKeyPair().public_pem,
        NewTokenKeyPair("X25519").private_pem}) {
    EXPECT_EQ(SignToken(token, "test", pem).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace pawl
