// A network of one's own for a test of processes, whose links can be cut.
#ifndef PAWL_TESTS_HARNESS_NETWORK_NAMESPACES_H_
#define PAWL_TESTS_HARNESS_NETWORK_NAMESPACES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pawl {

// One virtual Ethernet with a host (a network namespace) for each process, and one, "test", for
// this process. What is cut is silent, as between machines: packets get lost, and nobody is told.
//
// For the main thread.
class NetworkNamespaces {
 public:
  // Takes this process into namespaces in which it may do all that; there is no way back. To be
  // called before any other thread is started, once a process. UNAVAILABLE, with the reason, where
  // the machine does not allow it.
  static absl::StatusOr<std::unique_ptr<NetworkNamespaces>> Enter();

  NetworkNamespaces(const NetworkNamespaces&) = delete;
  NetworkNamespaces& operator=(const NetworkNamespaces&) = delete;

  // The IP address of a host, which is there from the first call on.
  absl::StatusOr<std::string> AddressOf(const std::string& host);
  // What a command line begins with to run on that host. REQUIRES: the host is there.
  static std::vector<std::string> CommandPrefix(const std::string& host);

  // What `from` sends to `to` gets lost from now on, until Restore; the other way is as it was.
  // REQUIRES: both are there.
  absl::Status Silence(const std::string& from, const std::string& to);
  absl::Status Restore(const std::string& from, const std::string& to);
  // All that a host sends or is sent gets lost, until Connect. REQUIRES: it is there, and not
  // "test".
  absl::Status Disconnect(const std::string& host);
  absl::Status Connect(const std::string& host);

  // What a host sends leaves it no faster than this from now on (a token bucket, which lets a
  // thousandth of a second's bytes pass at once), until Unlimit; what it is sent is as fast as
  // ever. Packets of connections that are made later stay smaller. REQUIRES: it is there, and not
  // "test"; for Unlimit, it is limited. UNAVAILABLE also where the machine has no `tc`.
  absl::Status Limit(const std::string& host, uint64_t bytes_per_second);
  absl::Status Unlimit(const std::string& host);
  // What a host has sent through its link so far, the headers of all packets included. REQUIRES: it
  // is there, not "test".
  absl::StatusOr<uint64_t> SentBytes(const std::string& host);

 private:
  NetworkNamespaces() = default;

  absl::Status Begin();

  std::map<std::string, uint32_t> hosts_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_NETWORK_NAMESPACES_H_
