#include "client_lib/security/identity.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client_lib/base/bounded_text.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

constexpr char kScheme[] = "spiffe://";
constexpr char kSystem[] = "pawl";
constexpr size_t kMaxPartLength = 128;
constexpr size_t kMaxShownLength = 256;

constexpr std::array<absl::string_view, kPeerRoles> kRoleNames = {
    "scheduler", "server", "worker", "client", "reader", "operator"};

absl::Status CheckPart(absl::string_view what, absl::string_view part) {
  const bool is_valid = !part.empty() && part.size() <= kMaxPartLength &&
                        std::all_of(part.begin(), part.end(), [](char c) {
                          return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
                                 c == '-' || c == '_';
                        });
  if (is_valid) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the ", what, " must be 1 to ", kMaxPartLength,
                                                 " letters, digits or characters of '.-_'"));
}

std::optional<PeerRole> RoleByName(absl::string_view name) {
  const auto found = std::find(kRoleNames.begin(), kRoleNames.end(), name);
  if (found == kRoleNames.end()) return std::nullopt;
  return static_cast<PeerRole>(found - kRoleNames.begin());
}

bool IsPawlUri(absl::string_view uri) {
  const std::vector<absl::string_view> parts = absl::StrSplit(uri, '/');
  return absl::StartsWith(uri, kScheme) && parts.size() > 3 && parts[3] == kSystem;
}

}  // namespace

absl::string_view RoleName(PeerRole role) { return kRoleNames[static_cast<size_t>(role)]; }

std::string Identity::Uri() const {
  return absl::StrCat(kScheme, trust_domain, "/", kSystem, "/", job, "/", RoleName(role),
                      name.empty() ? "" : "/", name);
}

absl::StatusOr<Identity> ParseIdentity(absl::string_view uri) {
  const auto parse = [&]() -> absl::StatusOr<Identity> {
    const std::vector<std::string> parts = absl::StrSplit(uri, '/');
    // "spiffe:", "", trust domain, "pawl", job, role and perhaps name.
    if (!IsPawlUri(uri) || parts.size() < 6 || parts.size() > 7) {
      return absl::InvalidArgumentError(
          "it must have the form spiffe://TRUST_DOMAIN/pawl/JOB/ROLE[/NAME]");
    }
    Identity identity;
    PAWL_RETURN_IF_ERROR(CheckPart("trust domain", parts[2]));
    PAWL_RETURN_IF_ERROR(CheckPart("job", parts[4]));
    identity.trust_domain = parts[2];
    identity.job = parts[4];
    const std::optional<PeerRole> role = RoleByName(parts[5]);
    if (!role.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the role must be one of ", absl::StrJoin(kRoleNames, ", ")));
    }
    identity.role = *role;
    if (parts.size() == 7) {
      PAWL_RETURN_IF_ERROR(CheckPart("name", parts[6]));
      identity.name = parts[6];
    }
    return identity;
  };
  absl::StatusOr<Identity> identity = parse();
  if (identity.ok()) return identity;
  return Annotate(identity.status(),
                  absl::StrCat("the URI '", BoundedText(uri, kMaxShownLength), "'"));
}

absl::StatusOr<Identity> IdentityAmong(const std::vector<std::string>& uris) {
  std::vector<std::string> ours;
  std::copy_if(uris.begin(), uris.end(), std::back_inserter(ours), IsPawlUri);
  if (ours.size() == 1) return ParseIdentity(ours.front());
  return absl::InvalidArgumentError(absl::StrCat(
      "the certificate has ", ours.empty() ? "no" : "several",
      " URI names of the form spiffe://TRUST_DOMAIN/pawl/JOB/ROLE[/NAME]; it must have one"));
}

}  // namespace pawl
