// The flags --tls_dir and --insecure of all daemons.
#ifndef PAWL_CLIENT_LIB_SECURITY_SECURITY_FLAGS_H_
#define PAWL_CLIENT_LIB_SECURITY_SECURITY_FLAGS_H_

#include "client_lib/security/security_options.h"

namespace pawl {

// The flags' values; without them, the environment's (WithEnvironment).
SecurityOptions SecurityOptionsFromFlags();

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SECURITY_SECURITY_FLAGS_H_
