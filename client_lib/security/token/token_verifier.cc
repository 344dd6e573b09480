#include "client_lib/security/token/token_verifier.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace pawl {
namespace {

CheckedToken Refuse(absl::string_view answer, std::string reason,
                    std::optional<Token> token = std::nullopt) {
  return {absl::UnauthenticatedError(answer), std::move(reason), std::move(token)};
}

constexpr char kNotOfThisJob[] = "the token is not one of this job, or its key has been removed";

}  // namespace

CheckedToken TokenVerifier::Check(absl::string_view authorization) const {
  if (authorization.empty()) {
    constexpr char kNothing[] = "the caller has neither a certificate nor a token";
    return Refuse(kNothing, kNothing);
  }
  const absl::string_view text = TokenTextOf(authorization);
  if (text.size() > kMaxTokenBytes) {
    const std::string why = absl::StrCat("the token has more than ", kMaxTokenBytes, " bytes");
    return Refuse(why, why);
  }
  std::shared_ptr<const TokenKeys> keys;
  std::optional<Token> known;
  {
    MutexLock lock(mu_);
    keys = keys_;
    if (const auto found = known_.find(text); found != known_.end()) known = found->second;
  }
  if (known.has_value()) return CheckUse(*keys, *std::move(known));
  const absl::StatusOr<TokenParts> parts = ReadToken(text);
  if (!parts.ok()) return Refuse(parts.status().message(), std::string(parts.status().message()));
  if (const absl::Status status = keys->CheckSignature(*parts); !status.ok())
    return Refuse(kNotOfThisJob, std::string(status.message()));
  {
    MutexLock lock(mu_);
    if (known_.size() >= kMaxKnownTokens) known_.clear();
    if (keys_ == keys) known_.emplace(text, parts->token);
  }
  return CheckUse(*keys, parts->token);
}

CheckedToken TokenVerifier::CheckUse(const TokenKeys& keys, Token token) const {
  const Identity& identity = token.identity;
  if (!identity.IsSameJobAs(own_)) {
    return Refuse(
        kNotOfThisJob,
        absl::StrCat("the token is for job ", identity.job, " of ", identity.trust_domain,
                     ", this process belongs to job ", own_.job, " of ", own_.trust_domain),
        token);
  }
  if (keys.IsRevoked(token.id)) {
    const std::string why = absl::StrCat("the token ", token.id, " has been revoked");
    return Refuse(why, why, token);
  }
  const int64_t now = unix_seconds_();
  if (now >= token.expires) {
    const std::string why = absl::StrCat(
        "the token ", token.id, " has expired at ", TokenTimeText(token.expires), ", and it is ",
        TokenTimeText(now),
        " here now; get a new one (pawlctl token), or set the clocks if they are wrong");
    return Refuse(why, why, token);
  }
  if (now + kMaxTokenClockDifferenceSeconds < token.not_before) {
    const std::string why =
        absl::StrCat("the token ", token.id, " is valid from ", TokenTimeText(token.not_before),
                     " on, and it is ", TokenTimeText(now), " here now; are the clocks right?");
    return Refuse(why, why, token);
  }
  return {absl::OkStatus(), "", std::move(token)};
}

bool TokenVerifier::Replace(TokenKeys keys) {
  MutexLock lock(mu_);
  if (keys_->IsSameAs(keys)) return false;
  keys_ = std::make_shared<const TokenKeys>(std::move(keys));
  known_.clear();
  return true;
}

}  // namespace pawl
