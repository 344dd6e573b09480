#include "client_lib/security/gate.h"

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/bounded_text.h"
#include "client_lib/security/method_roles.h"

namespace pawl {
namespace {

constexpr size_t kMaxShownMethod = 128;

}  // namespace

absl::Status Gate::Check(const std::vector<std::string>& uris, absl::string_view path) const {
  const auto refuse = [&](std::string peer, std::string reason, absl::Status answer) {
    ++refused_;
    on_refusal_({std::move(peer), BoundedText(path, kMaxShownMethod), std::move(reason)});
    return answer;
  };
  const absl::StatusOr<Identity> peer = IdentityAmong(uris);
  if (!peer.ok()) {
    return refuse("unknown", std::string(peer.status().message()),
                  absl::UnauthenticatedError("the certificate is not one of this job"));
  }
  if (!peer->IsSameJobAs(own_)) {
    return refuse(
        peer->Uri(),
        absl::StrCat("the certificate is for job ", peer->job, " of ", peer->trust_domain,
                     ", this process belongs to job ", own_.job, " of ", own_.trust_domain),
        absl::UnauthenticatedError("the certificate is not one of this job"));
  }
  const std::optional<RoleSet> roles = RolesOf(path);
  if (!roles.has_value()) {
    return refuse(peer->Uri(), "there is no such rpc", absl::UnimplementedError("no such rpc"));
  }
  if (!roles->Contains(peer->role)) {
    return refuse(
        peer->Uri(),
        absl::StrCat("the rpc is for the roles ", roles->Describe(), ", not for ",
                     RoleName(peer->role)),
        absl::PermissionDeniedError(absl::StrCat("the role of this certificate, ",
                                                 RoleName(peer->role), ", may not call this rpc")));
  }
  return absl::OkStatus();
}

}  // namespace pawl
