// How a process is to connect to others. Apart from security.h, which needs gRPC.
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

// `options`; if neither is set, with the folder that the environment's PAWL_TLS_DIR names.
SecurityOptions WithEnvironment(SecurityOptions options);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_SECURITY_OPTIONS_H_
