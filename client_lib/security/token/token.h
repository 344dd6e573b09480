// Tokens: short-lived proofs of identity for people, notebooks and CI jobs that have no
// certificate.
//
// A token is a JSON Web Token (RFC 7519), signed with Ed25519 (RFC 8037). Its three parts are
//
//   {"alg":"EdDSA","kid":"NAME OF THE KEY","typ":"JWT"}
//   {"sub":"spiffe://TRUST_DOMAIN/pawl/JOB/ROLE/NAME","jti":"ID","nbf":UNIX_S,"exp":UNIX_S}
//   the signature over the first two
//
// each in base64url, joined by dots. Schedulers and servers have only public keys (token_keys.h).
#ifndef PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_H_
#define PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/security/identity.h"
#include "client_lib/security/method_roles.h"

namespace pawl {

// Longer texts are refused unread. A token with the longest names has about 900 bytes.
inline constexpr size_t kMaxTokenBytes = 2048;
// The longest validity: a token cannot be revoked where the list of revoked ids does not arrive.
inline constexpr int64_t kMaxTokenSeconds = 24 * 3600;
// The roles that a token can have. The others belong to daemons, which have certificates.
inline constexpr RoleSet kTokenRoles(PeerRole::kReader, PeerRole::kClient, PeerRole::kOperator);

// The call metadata that has the token, after kBearer (RFC 6750).
inline constexpr char kTokenMetadata[] = "authorization";
inline constexpr char kBearer[] = "Bearer ";

struct Token {
  // Has a name.
  Identity identity;
  // Unique: names the token in logs and in the list of revoked ones.
  std::string id;
  // Unix seconds.
  int64_t not_before = 0;
  int64_t expires = 0;

  // "spiffe://pawl.local/pawl/flights/reader/alice (token 0123456789abcdef)"
  std::string Describe() const;
};

// A new random id.
std::string NewTokenId();

// The token's text. `key_pem` is a private Ed25519 key in PEM form, and `key_name` the name under
// which schedulers and servers have its public key. INVALID_ARGUMENT: it is no such key, or the
// token is one that ReadToken or TokenKeys would refuse.
absl::StatusOr<std::string> SignToken(const Token& token, absl::string_view key_name,
                                      const std::string& key_pem);

// The parts of a token's text.
struct TokenParts {
  std::string key_name;
  Token token;
  // The signed part of the text, and the signature. `signed_text` refers to the text.
  absl::string_view signed_text;
  std::string signature;
};

// Reads a token without verifying its signature. INVALID_ARGUMENT: the text is not a token of the
// form above, or has another signature algorithm. Parser of untrusted bytes.
absl::StatusOr<TokenParts> ReadToken(absl::string_view text);

// The token in the metadata kTokenMetadata.
absl::string_view TokenTextOf(absl::string_view authorization);

// "2026-11-27 08:00 UTC"
std::string TokenTimeText(int64_t unix_seconds);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_H_
