// How a process proves its identity to others and which calls it accepts: by --tls_dir, by a token,
// or not at all.
#ifndef PAWL_CLIENT_LIB_SECURITY_SECURITY_H_
#define PAWL_CLIENT_LIB_SECURITY_SECURITY_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/security/admission/guarded_port.h"
#include "client_lib/security/audit_log.h"
#include "client_lib/security/gate.h"
#include "client_lib/security/security_options.h"
#include "client_lib/security/tls_credentials.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// Thread-safe. Must outlive the channels and servers that use its credentials.
class Security {
 public:
  // `own_roles`: the roles that the process's certificate or token may have. Errors as for
  // TlsCredentials::Open, naming the flag; INVALID_ARGUMENT also if the options contradict each
  // other. `audit`, unless null, gets refused calls and outlives this. All that are open in a
  // process with the same files share their descriptors and one thread.
  static absl::StatusOr<std::unique_ptr<Security>> Open(const SecurityOptions& options,
                                                        RoleSet own_roles,
                                                        AuditLog* audit = nullptr);

  // Whether connections are encrypted and authenticated. A token is never sent without.
  bool is_tls() const { return tls_ != nullptr; }

  // INVALID_ARGUMENT, with the remedy: `addresses` is wrong for ParseHostPorts; or, without TLS and
  // --insecure, one of them is not of this machine. `flag` names the flag that has them.
  absl::Status CheckAddresses(absl::string_view flag, absl::string_view addresses) const;

  // For connections to peers with one of these roles.
  std::shared_ptr<grpc::ChannelCredentials> To(RoleSet peers) const;
  // For a listener of this process (GuardedPort).
  ListenerSecurity Listening() const;

  // Who this process is; nullopt without TLS.
  std::optional<Identity> identity() const;

  SecurityReport Report() const;

 private:
  Security(bool insecure, std::shared_ptr<TlsCredentials> tls, AuditLog* audit);

  const bool insecure_;
  const std::shared_ptr<TlsCredentials> tls_;
  std::shared_ptr<const Gate> gate_;
  // Null without TLS: then peers cannot be told apart.
  const std::shared_ptr<PeerQuotas> quotas_;
  const std::shared_ptr<AdmissionFigures> figures_ = std::make_shared<AdmissionFigures>();
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_SECURITY_H_
