// A real etcd on this machine, for tests.
#ifndef PAWL_SCHEDULER_STORE_TESTING_ETCD_CLUSTER_H_
#define PAWL_SCHEDULER_STORE_TESTING_ETCD_CLUSTER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/process/child_process.h"

namespace pawl {

struct EtcdClusterOptions {
  int members = 1;
  // An existing, empty folder for the data and the logs.
  std::string folder;
  // For every member.
  std::vector<std::string> flags = {};
  // If set, clients need TLS: the folder has cert.pem, key.pem and ca.pem for members and clients.
  std::string tls_dir = {};
};

// Kills its processes on destruction. Used by the main thread only.
class EtcdCluster {
 public:
  // Waits until every member answers. NOT_FOUND: etcd is not installed.
  static absl::StatusOr<std::unique_ptr<EtcdCluster>> Start(EtcdClusterOptions options);

  // "127.0.0.1:PORT", in the order of members.
  const std::vector<std::string>& endpoints() const { return endpoints_; }
  ChildProcess& member(size_t index) { return *members_[index]; }

 private:
  EtcdCluster() = default;

  absl::Status TryToStart(const EtcdClusterOptions& options, int attempt);

  std::vector<std::string> endpoints_;
  std::vector<std::unique_ptr<ChildProcess>> members_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_TESTING_ETCD_CLUSTER_H_
