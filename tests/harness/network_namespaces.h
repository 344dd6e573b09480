// A private network for a test of processes, whose links can be cut.
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

// A virtual Ethernet with one host (a network namespace) per process. This process is the host
// "test". A cut is silent, as between machines: packets are dropped without notice to the sender.
//
// Use it on the main thread.
class NetworkNamespaces {
 public:
  // Moves this process into namespaces where it may configure a network; it cannot return. Call it
  // once per process, before any other thread starts. UNAVAILABLE with the reason if the machine
  // does not permit it.
  static absl::StatusOr<std::unique_ptr<NetworkNamespaces>> Enter();

  NetworkNamespaces(const NetworkNamespaces&) = delete;
  NetworkNamespaces& operator=(const NetworkNamespaces&) = delete;

  // Returns the IP address of a host. The first call creates the host.
  absl::StatusOr<std::string> AddressOf(const std::string& host);
  // The prefix of a command line that runs on that host. REQUIRES: the host exists.
  static std::vector<std::string> CommandPrefix(const std::string& host);

  // Silence drops everything that `from` sends to `to` until Restore; the reverse direction is not
  // affected. REQUIRES: both hosts exist.
  absl::Status Silence(const std::string& from, const std::string& to);
  absl::Status Restore(const std::string& from, const std::string& to);
  // Disconnect drops everything that a host sends or receives until Connect. REQUIRES: the host
  // exists and is not "test".
  absl::Status Disconnect(const std::string& host);
  absl::Status Connect(const std::string& host);

  // Limits the rate at which a host sends until Unlimit. A token bucket lets one millisecond's
  // bytes pass at once. Incoming traffic is not limited. Connections made later keep using smaller
  // packets. REQUIRES: the host exists and is not "test"; for Unlimit, it is limited. UNAVAILABLE
  // also if the machine has no `tc`.
  absl::Status Limit(const std::string& host, uint64_t bytes_per_second);
  absl::Status Unlimit(const std::string& host);
  // The bytes that a host has sent through its link, including packet headers. REQUIRES: the host
  // exists and is not "test".
  absl::StatusOr<uint64_t> SentBytes(const std::string& host);

 private:
  NetworkNamespaces() = default;

  absl::Status Begin();

  std::map<std::string, uint32_t> hosts_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_NETWORK_NAMESPACES_H_
