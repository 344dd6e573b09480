// The means of a scheduler or server to verify tokens: public keys, and the ids of revoked tokens.
#ifndef PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_KEYS_H_
#define PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_KEYS_H_

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/env.h"
#include "client_lib/security/token/openssl_objects.h"
#include "client_lib/security/token/token.h"

namespace pawl {

// In --tls_dir. A process whose --tls_dir has it accepts tokens.
inline constexpr char kTokensFolder[] = "tokens";
// In kTokensFolder: the public key NAME, Ed25519 in PEM form. Other files there are ignored.
inline constexpr char kPublicKeySuffix[] = ".pub.pem";
// In kTokensFolder of people who make tokens: the private key of NAME.
inline constexpr char kPrivateKeySuffix[] = ".key.pem";
// In kTokensFolder: an id per line; lines that begin with # are comments.
inline constexpr char kRevokedTokensFile[] = "revoked";

// An immutable set of keys.
class TokenKeys {
 public:
  // Reads kTokensFolder in `tls_dir`. An absent folder is an empty set. An error names the file.
  //   INVALID_ARGUMENT    a public key file, or the list of revoked tokens, has other content
  static absl::StatusOr<TokenKeys> Read(Env& env, const std::string& tls_dir);

  // OK if one of the keys has signed the token. UNAUTHENTICATED otherwise.
  absl::Status CheckSignature(const TokenParts& parts) const;
  bool IsRevoked(absl::string_view id) const { return revoked_.contains(id); }

  // Whether both have the same keys and revoked ids.
  bool IsSameAs(const TokenKeys& other) const { return content_ == other.content_; }

 private:
  absl::Status AddKey(const std::string& name, const std::string& path, const std::string& pem);
  absl::Status AddRevoked(const std::string& path, const std::string& text);

  absl::flat_hash_map<std::string, OpensslPtr<EVP_PKEY>> keys_;
  absl::flat_hash_set<std::string> revoked_;
  // Everything that was read.
  std::string content_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_KEYS_H_
