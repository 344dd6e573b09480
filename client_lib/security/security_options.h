// How a process is to connect to others, and the help texts of its flags. Apart from security.h,
// which needs gRPC.
#ifndef PAWL_CLIENT_LIB_SECURITY_SECURITY_OPTIONS_H_
#define PAWL_CLIENT_LIB_SECURITY_SECURITY_OPTIONS_H_

#include <string>

namespace pawl {

struct SecurityOptions {
  // A folder with the process's certificate (client_lib/security/tls_files.h). Empty: connections
  // are neither encrypted nor authenticated.
  std::string tls_dir;
  // Without tls_dir: allows connections to other machines.
  bool insecure = false;
};

// All daemons have the flags --tls_dir and --insecure.
inline constexpr char kTlsDirHelp[] =
    "folder with this process's certificate (cert.pem, key.pem) and the authorities that it trusts "
    "(ca.pem); deploy/tls/make_certificates makes them. All connections then use mutual TLS. The "
    "files are read again when they change. Default: the environment variable PAWL_TLS_DIR; "
    "without either, connections stay on this machine";
inline constexpr char kInsecureHelp[] =
    "without --tls_dir: allow connections from and to other machines, neither encrypted nor "
    "authenticated. Every process that reaches a port can then read the model and stop the job";

// `options`; if neither is set, with the folder that the environment's PAWL_TLS_DIR names.
SecurityOptions WithEnvironment(SecurityOptions options);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_SECURITY_OPTIONS_H_
