#include "client_lib/security/security_flags.h"

#include <string>

#include "absl/flags/flag.h"

ABSL_FLAG(std::string, tls_dir, "",
          "folder with this process's certificate (cert.pem, key.pem) and the authorities that it "
          "trusts (ca.pem); deploy/tls/make_certificates makes them. All connections then use "
          "mutual TLS. The files are read again when they change. Default: the environment "
          "variable PAWL_TLS_DIR; without either, connections stay on this machine");
ABSL_FLAG(
    bool, insecure, false,
    "without --tls_dir: allow connections from and to other machines, neither encrypted nor "
    "authenticated. Every process that reaches a port can then read the model and stop the job");

namespace pawl {

SecurityOptions SecurityOptionsFromFlags() {
  return WithEnvironment({absl::GetFlag(FLAGS_tls_dir), absl::GetFlag(FLAGS_insecure)});
}

}  // namespace pawl
