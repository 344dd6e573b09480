// Network addresses of processes, as host:port.
#ifndef PAWL_CLIENT_LIB_BASE_HOST_PORT_H_
#define PAWL_CLIENT_LIB_BASE_HOST_PORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pawl {

struct HostPort {
  // An IPv6 address keeps its brackets.
  std::string host;
  uint16_t port = 0;

  // Whether `host` stands for all addresses of a machine: a process can listen there, but a peer
  // cannot connect to it.
  bool IsWildcard() const;
};

// Whether only processes of this machine can connect to `host`: "localhost" or an address of
// 127.0.0.0/8, or ::1 with or without brackets. Other names are not resolved.
bool IsLoopback(absl::string_view host);

// Parses a non-empty host, a colon and a port from 0 to 65535; INVALID_ARGUMENT for anything else.
// A process that listens on port 0 gets any free port.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);

// One host:port, or several separated by commas, as of a scheduler and its standby. gRPC connects
// to several only if all are IP addresses of one family; INVALID_ARGUMENT names one that is not.
absl::StatusOr<std::vector<HostPort>> ParseHostPorts(absl::string_view addresses);

// Returns, in numeric form, the address that this machine uses to reach `addresses`: a host:port or
// several separated by commas; the first reachable one counts. Sends nothing, but resolves
// names, which takes as long as the system's resolver does. UNAVAILABLE without a route.
//
// A server or worker passes the scheduler's address and announces the result to its peers. If the
// scheduler's address is 127.0.0.1, so is the result: a cluster of several machines must use
// another address for its scheduler.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& addresses);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_HOST_PORT_H_
