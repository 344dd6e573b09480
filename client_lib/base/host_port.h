// Where a process listens or is reached: host:port.
#ifndef PAWL_CLIENT_LIB_BASE_HOST_PORT_H_
#define PAWL_CLIENT_LIB_BASE_HOST_PORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pawl {

struct HostPort {
  // An IPv6 address in its brackets.
  std::string host;
  uint16_t port = 0;

  // Stands for all addresses of a machine: one can listen there, but nobody can be told to go
  // there.
  bool IsWildcard() const;
};

// INVALID_ARGUMENT unless it is a host that is not empty, a colon and a port from 0 to 65535. Port
// 0 is for listening: any free one.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_HOST_PORT_H_
