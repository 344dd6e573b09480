// How a process is to connect to others, and the help texts of its flags. Apart from security.h,
// which needs gRPC.
#ifndef PAWL_CLIENT_LIB_SECURITY_SECURITY_OPTIONS_H_
#define PAWL_CLIENT_LIB_SECURITY_SECURITY_OPTIONS_H_

#include <string>

namespace pawl {

struct SecurityOptions {
  // A folder with the process's certificate (client_lib/security/tls_files.h). Empty: connections
  // are neither encrypted nor authenticated.
  std::string tls_dir = {};
  // Without tls_dir: allows connections to other machines.
  bool insecure = false;
  // For programs that only make calls, instead of a certificate: a file with a token (`pawlctl
  // token`), which is read again when it changes; or the token itself.
  std::string token_file = {};
  std::string token = {};
  // With a token: the file with the authorities that have signed the certificates of scheduler and
  // servers. Empty: ca.pem in tls_dir.
  std::string authorities_file = {};

  bool has_token() const { return !token.empty() || !token_file.empty(); }
};

// All daemons have the flags --tls_dir and --insecure.
inline constexpr char kTlsDirHelp[] =
    "folder with this process's certificate (cert.pem, key.pem) and the authorities that it trusts "
    "(ca.pem); deploy/tls/make_certificates makes them. All connections then use mutual TLS. The "
    "files are read again when they change. Default: the environment variable PAWL_TLS_DIR; "
    "without either, connections stay on this machine";
inline constexpr char kInsecureHelp[] =
    "without --tls_dir and PAWL_TLS_DIR: allow connections from and to other machines, neither "
    "encrypted nor authenticated. Every process that reaches a port can then read the model and "
    "stop the job";

// `options`, and the folder that the environment's PAWL_TLS_DIR names if they name none. Daemons,
// which accept no token, use this.
SecurityOptions WithEnvironment(SecurityOptions options);

// The same for programs that accept tokens, with the environment's PAWL_TOKEN. It counts unless
// `options` have a token, or name a folder that has a certificate.
SecurityOptions WithEnvironmentOrToken(SecurityOptions options);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_SECURITY_OPTIONS_H_
