#include "client_lib/security/gate.h"

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/bounded_text.h"
#include "client_lib/security/method_roles.h"

namespace pawl {
namespace {

constexpr size_t kMaxShownMethod = 128;

}  // namespace

absl::Status Gate::Check(const std::vector<std::string>& uris, absl::string_view path,
                         absl::string_view authorization) const {
  const auto refuse = [&](std::string peer, std::string reason, absl::Status answer) {
    ++refused_;
    // The peer chooses the path: it must not begin another line of a log.
    on_refusal_({std::move(peer),
                 BoundedText(absl::CHexEscape(path.substr(0, kMaxShownMethod)), kMaxShownMethod),
                 std::move(reason), answer.code()});
    return answer;
  };
  const bool has_token = uris.empty() && tokens_ != nullptr;
  absl::StatusOr<Identity> peer = absl::InternalError("unset");
  std::string shown;
  if (has_token) {
    CheckedToken checked = tokens_->Check(authorization);
    shown = checked.token.has_value() ? checked.token->Describe() : "unknown";
    if (!checked.status.ok()) return refuse(shown, std::move(checked.reason), checked.status);
    peer = std::move(checked.token->identity);
  } else {
    peer = IdentityAmong(uris);
    if (!peer.ok()) {
      return refuse("unknown", std::string(peer.status().message()),
                    absl::UnauthenticatedError("the certificate is not one of this job"));
    }
    shown = peer->Uri();
  }
  if (!peer->IsSameJobAs(own_)) {
    return refuse(
        shown,
        absl::StrCat("the certificate is for job ", peer->job, " of ", peer->trust_domain,
                     ", this process belongs to job ", own_.job, " of ", own_.trust_domain),
        absl::UnauthenticatedError("the certificate is not one of this job"));
  }
  const std::optional<RoleSet> roles = RolesOf(path);
  if (!roles.has_value()) {
    return refuse(shown, "there is no such rpc", absl::UnimplementedError("no such rpc"));
  }
  if (!roles->Contains(peer->role)) {
    return refuse(
        shown,
        absl::StrCat("the rpc is for the roles ", roles->Describe(), ", not for ",
                     RoleName(peer->role)),
        absl::PermissionDeniedError(absl::StrCat(
            "the role of this ", has_token ? "token" : "certificate", ", ", RoleName(peer->role),
            ", may not call ", path, ": it is for the roles ", roles->Describe())));
  }
  return absl::OkStatus();
}

}  // namespace pawl
