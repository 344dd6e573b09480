#include "client_lib/security/security_options.h"

#include <cstdlib>

namespace pawl {

SecurityOptions WithEnvironment(SecurityOptions options) {
  const char* const dir = std::getenv("PAWL_TLS_DIR");
  if (options.tls_dir.empty() && !options.insecure && dir != nullptr) options.tls_dir = dir;
  return options;
}

}  // namespace pawl
