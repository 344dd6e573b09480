// Who a process is, according to its certificate.
#ifndef PAWL_CLIENT_LIB_SECURITY_IDENTITY_H_
#define PAWL_CLIENT_LIB_SECURITY_IDENTITY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pawl {

// The role that a certificate gives its owner (method_roles.h).
enum class PeerRole : uint8_t {
  kScheduler,
  kServer,
  kWorker,
  // A program that pushes and pulls without being a rank of the job.
  kClient,
  // A program that only reads parameters and the job's state.
  kReader,
  // A person or a tool that directs the job: pawlctl.
  kOperator,
};
inline constexpr int kPeerRoles = 6;

// "scheduler", "server", "worker", "client", "reader" or "operator".
absl::string_view RoleName(PeerRole role);

// The owner of a certificate, from its URI subject alternative name
//
//   spiffe://TRUST_DOMAIN/pawl/JOB/ROLE[/NAME]
//
// (SPIFFE-ID, section 2). TRUST_DOMAIN names the organization or cluster whose authority signs.
struct Identity {
  std::string trust_domain;
  std::string job;
  PeerRole role = PeerRole::kReader;
  // Distinguishes owners of one role. Empty: they are not distinguished.
  std::string name;

  std::string Uri() const;
  // Whether both belong to the same job of the same trust domain.
  bool IsSameJobAs(const Identity& other) const {
    return trust_domain == other.trust_domain && job == other.job;
  }
  friend bool operator==(const Identity&, const Identity&) = default;
};

// INVALID_ARGUMENT, naming the part: `uri` has another form. Parts consist of letters, digits and
// the characters . - _ and have at most 128 characters.
absl::StatusOr<Identity> ParseIdentity(absl::string_view uri);

// The only identity among the URIs of a certificate. Other URIs are ignored. INVALID_ARGUMENT if
// there is none, or several.
absl::StatusOr<Identity> IdentityAmong(const std::vector<std::string>& uris);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_IDENTITY_H_
