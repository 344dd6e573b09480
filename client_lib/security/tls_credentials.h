// gRPC credentials for TLS from --tls_dir, reloaded while the process runs. A process proves its
// identity with a certificate or, if it only makes calls, with a token.
#ifndef PAWL_CLIENT_LIB_SECURITY_TLS_CREDENTIALS_H_
#define PAWL_CLIENT_LIB_SECURITY_TLS_CREDENTIALS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "client_lib/security/admission/gate_counts.h"
#include "client_lib/security/gate.h"
#include "client_lib/security/identity.h"
#include "client_lib/security/method_roles.h"
#include "client_lib/security/tls_files.h"
#include "client_lib/security/token/token_verifier.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace pawl {

// How often the files are read again. gRPC takes them over up to a second later. Existing
// connections keep their certificates until kMaxConnectionAge
// (client_lib/rpc/grpc/grpc_settings.h).
inline constexpr std::chrono::milliseconds kTlsReloadInterval{2000};
// A client may continue a TLS session that it has saved, and its certificate is not verified again
// then. After this time, and whenever a file in --tls_dir changes, all sessions are forgotten.
inline constexpr std::chrono::hours kMaxTlsSessionAge{1};

// The state of a process's certificate, for status and metrics.
struct CertificateState {
  Identity identity;
  // Unix seconds; see TlsFiles::not_after. With a token: when that expires.
  int64_t not_after = 0;
  bool is_token = false;
  // Successful reloads since the start, and changes of kRevokedFolder and kTokensFolder.
  uint64_t reloads = 0;
  // Changes of kRevokedFolder that every new handshake obeys. A connection from before the last one
  // may be of a peer whose certificate has been revoked.
  uint64_t revocations = 0;
  // Why the files that are in --tls_dir now are not in use; OK if they are.
  absl::Status reload_status;
};

// Thread-safe. Must outlive the channels and servers that use its credentials.
class TlsCredentials {
 public:
  struct Options {
    std::string dir;
    // Instead of a certificate in `dir`: a token, or the file that has it and is read again when it
    // changes; and the file with the authorities whose certificates are accepted.
    std::string token;
    std::string token_file;
    std::string authorities_file;
    // The roles that the process's own certificate or token may have.
    RoleSet own_roles;
    MonotonicDuration reload_interval = kTlsReloadInterval;
    MonotonicDuration max_session_age = kMaxTlsSessionAge;
    // The Unix time in seconds.
    std::function<int64_t()> unix_seconds;
    // Called on the reloading thread when the outcome of a reload differs from the previous one.
    std::function<void(const CertificateState&)> reloaded;

    bool has_token() const { return !token.empty() || !token_file.empty(); }
  };

  // Reads and checks the files. Errors as for ReadTlsFiles or ReadTokenFiles; INVALID_ARGUMENT also
  // if the role is not among own_roles, or if kRevokedFolder or kTokensFolder has a wrong file.
  static absl::StatusOr<std::unique_ptr<TlsCredentials>> Open(Env& env, Options options);
  // Stops reloading.
  virtual ~TlsCredentials() = default;

  // For connections to peers with one of these roles, of the same job. A peer with another
  // certificate is refused during the handshake: the call ends with UNAVAILABLE.
  virtual std::shared_ptr<grpc::ChannelCredentials> To(RoleSet peers) const = 0;
  // For a listener. Clients need a certificate, and `gate` decides on every call. If there is
  // tokens(), connections without a certificate are possible too; `gate` must then be one that
  // checks them. `counts`, unless null, counts its decisions. REQUIRES: the process has a
  // certificate.
  virtual std::shared_ptr<grpc::ServerCredentials> Listening(
      std::shared_ptr<const Gate> gate, std::shared_ptr<GateCounts> counts) const = 0;
  std::shared_ptr<grpc::ServerCredentials> Listening(std::shared_ptr<const Gate> gate) const {
    return Listening(std::move(gate), nullptr);
  }

  // Null if --tls_dir had no kTokensFolder at the start, or the process has no certificate.
  virtual std::shared_ptr<const TokenVerifier> tokens() const = 0;

  virtual CertificateState State() const = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_TLS_CREDENTIALS_H_
