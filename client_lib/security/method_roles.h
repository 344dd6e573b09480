// Which roles may call which rpc.
#ifndef PAWL_CLIENT_LIB_SECURITY_METHOD_ROLES_H_
#define PAWL_CLIENT_LIB_SECURITY_METHOD_ROLES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client_lib/security/identity.h"

namespace pawl {

// A set of roles.
class RoleSet {
 public:
  constexpr RoleSet() = default;
  template <typename... Roles>
  constexpr explicit RoleSet(Roles... roles)
      : bits_(static_cast<uint8_t>((Bit(roles) | ... | 0))) {}

  constexpr RoleSet With(PeerRole role) const {
    RoleSet set = *this;
    set.bits_ = static_cast<uint8_t>(bits_ | Bit(role));
    return set;
  }
  constexpr bool Contains(PeerRole role) const { return (bits_ & Bit(role)) != 0; }
  friend constexpr bool operator==(RoleSet, RoleSet) = default;

  // "server or worker".
  std::string Describe() const;

 private:
  static constexpr int Bit(PeerRole role) { return 1 << static_cast<int>(role); }

  uint8_t bits_ = 0;
};

inline constexpr RoleSet kAllRoles(PeerRole::kScheduler, PeerRole::kServer, PeerRole::kWorker,
                                   PeerRole::kClient, PeerRole::kReader, PeerRole::kOperator);

// The roles that may call the rpc with this path, such as "/pawl.Parameter/Push". nullopt: no role
// may, because no such rpc is known.
std::optional<RoleSet> RolesOf(absl::string_view path);

// The paths of all known rpcs, sorted.
std::vector<absl::string_view> KnownMethods();

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_METHOD_ROLES_H_
