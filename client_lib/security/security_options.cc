#include "client_lib/security/security_options.h"

#include <unistd.h>

#include <cstdlib>

namespace pawl {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

SecurityOptions WithEnvironment(SecurityOptions options) {
  // Together with --insecure it is a contradiction, which Security::Open refuses.
  if (options.tls_dir.empty()) options.tls_dir = Variable("PAWL_TLS_DIR");
  return options;
}

SecurityOptions WithEnvironmentOrToken(SecurityOptions options) {
  const bool has_certificate =
      !options.tls_dir.empty() && access((options.tls_dir + "/cert.pem").c_str(), F_OK) == 0;
  if (!options.has_token() && !has_certificate) options.token = Variable("PAWL_TOKEN");
  return WithEnvironment(std::move(options));
}

}  // namespace pawl
