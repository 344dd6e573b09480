#include "scheduler/store/testing/etcd_cluster.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/testing/eventually.h"
#include "scheduler/store/etcd_client.h"

namespace pawl {
namespace {

constexpr char kProgram[] = "/usr/bin/etcd";
constexpr std::chrono::seconds kStartTimeout{30};
// A free port can be taken by another process before etcd binds it.
constexpr int kMaxAttempts = 5;
constexpr size_t kLogTailLines = 10;

// Different ports without a listener.
absl::StatusOr<std::vector<int>> FreePorts(int count) {
  std::vector<int> ports;
  std::vector<int> sockets;
  for (int i = 0; i < count; ++i) {
    const int socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_fd < 0) break;
    sockets.push_back(socket_fd);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(socket_fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        getsockname(socket_fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      break;
    }
    ports.push_back(ntohs(address.sin_port));
  }
  for (const int socket_fd : sockets) close(socket_fd);
  if (ports.size() < static_cast<size_t>(count))
    return absl::ErrnoToStatus(errno, "cannot find a free port");
  return ports;
}

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdCluster>> EtcdCluster::Start(EtcdClusterOptions options) {
  if (access(kProgram, X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(
        kProgram, " is missing: apt-get install etcd-server (deploy/install_packages does it)"));
  }
  absl::Status status;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    std::unique_ptr<EtcdCluster> cluster(new EtcdCluster());
    status = cluster->TryToStart(options, attempt);
    if (status.ok()) return cluster;
  }
  return status;
}

absl::Status EtcdCluster::TryToStart(const EtcdClusterOptions& options, int attempt) {
  PAWL_ASSIGN_OR_RETURN(const std::vector<int> ports, FreePorts(2 * options.members));
  std::vector<std::string> peers;
  for (int i = 0; i < options.members; ++i) {
    endpoints_.push_back(absl::StrCat("127.0.0.1:", ports[2 * i]));
    peers.push_back(absl::StrCat("m", i, "=http://127.0.0.1:", ports[2 * i + 1]));
  }
  for (int i = 0; i < options.members; ++i) {
    const std::string client_url =
        absl::StrCat(options.tls_dir.empty() ? "http://" : "https://", endpoints_[i]);
    const std::string peer_url = absl::StrCat("http://127.0.0.1:", ports[2 * i + 1]);
    const std::string place = absl::StrCat(options.folder, "/etcd-", attempt, "-", i);
    std::vector<std::string> arguments = {
        absl::StrCat("--name=m", i),
        absl::StrCat("--data-dir=", place),
        absl::StrCat("--listen-client-urls=", client_url),
        absl::StrCat("--advertise-client-urls=", client_url),
        absl::StrCat("--listen-peer-urls=", peer_url),
        absl::StrCat("--initial-advertise-peer-urls=", peer_url),
        absl::StrCat("--initial-cluster=", absl::StrJoin(peers, ","))};
    if (!options.tls_dir.empty()) {
      arguments.push_back("--client-cert-auth");
      arguments.push_back(absl::StrCat("--trusted-ca-file=", options.tls_dir, "/ca.pem"));
      arguments.push_back(absl::StrCat("--cert-file=", options.tls_dir, "/cert.pem"));
      arguments.push_back(absl::StrCat("--key-file=", options.tls_dir, "/key.pem"));
    }
    arguments.insert(arguments.end(), options.flags.begin(), options.flags.end());
    PAWL_ASSIGN_OR_RETURN(
        std::unique_ptr<ChildProcess> child,
        ChildProcess::Start({absl::StrCat("etcd-", i), kProgram, arguments, place + ".log"}));
    members_.push_back(std::move(child));
  }
  const MonotonicTime deadline = Clock::Real().Now() + kStartTimeout;
  for (int i = 0; i < options.members; ++i) {
    EtcdClient client({.endpoints = {endpoints_[i]}, .tls_dir = options.tls_dir});
    absl::Status status;
    Eventually(
        [&] {
          etcdserverpb::RangeRequest request;
          request.set_key("any");
          status = client.Range(request, deadline).status();
          return status.ok() || members_[i]->HasEnded();
        },
        deadline - Clock::Real().Now());
    if (!status.ok()) {
      return Annotate(status,
                      absl::StrCat("etcd does not start; its log ends with\n",
                                   absl::StrJoin(members_[i]->LogTail(kLogTailLines), "\n"), "\n"));
    }
  }
  return absl::OkStatus();
}

}  // namespace pawl
