// Decides whether a caller's token is valid.
#ifndef PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_VERIFIER_H_
#define PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_VERIFIER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/mutex.h"
#include "client_lib/security/identity.h"
#include "client_lib/security/token/token.h"
#include "client_lib/security/token/token_keys.h"

namespace pawl {

// A token may be used this long before its time begins, because the clocks of machines differ.
inline constexpr int64_t kMaxTokenClockDifferenceSeconds = 60;
// Tokens whose signature is not verified again. When there are more, all are forgotten.
inline constexpr size_t kMaxKnownTokens = 1024;

struct CheckedToken {
  // OK, or UNAUTHENTICATED with a text for the caller, which says nothing about this process.
  absl::Status status;
  // Why the token is refused, for the log.
  std::string reason = {};
  // Set if the signature is right, even if the token is refused.
  std::optional<Token> token = std::nullopt;
};

// Thread-safe.
class TokenVerifier {
 public:
  // `own`: the identity of this process; tokens must be for its job. `unix_seconds` is the time.
  TokenVerifier(Identity own, std::function<int64_t()> unix_seconds, TokenKeys keys)
      : own_(std::move(own)),
        unix_seconds_(std::move(unix_seconds)),
        keys_(std::make_shared<const TokenKeys>(std::move(keys))) {}

  // `authorization` is the metadata kTokenMetadata of a call; empty: it has none.
  CheckedToken Check(absl::string_view authorization) const;

  // From now on only tokens of these keys are valid. Returns whether the keys differ from those
  // before.
  bool Replace(TokenKeys keys);

 private:
  // Whether a token with the right signature can be used now.
  CheckedToken CheckUse(const TokenKeys& keys, Token token) const;

  const Identity own_;
  const std::function<int64_t()> unix_seconds_;

  mutable Mutex mu_;
  std::shared_ptr<const TokenKeys> keys_ PAWL_GUARDED_BY(mu_);
  // Texts that keys_ has signed. A verification takes 100 us, as long as a small call.
  mutable absl::flat_hash_map<std::string, Token> known_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_TOKEN_TOKEN_VERIFIER_H_
