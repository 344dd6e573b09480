// Serves metrics over mutual TLS. Debian's civetweb, which prometheus-cpp uses, cannot: it looks
// for a function that OpenSSL 3 does not have.
#ifndef PAWL_SCHEDULER_STATUS_TLS_METRICS_SERVER_H_
#define PAWL_SCHEDULER_STATUS_TLS_METRICS_SERVER_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"

namespace pawl {

// Threads that answer, with TLS or without, one connection each; more connections wait.
inline constexpr int kMetricsThreads = 8;
// How long a connection without TLS may hold a thread without sending its request.
inline constexpr std::chrono::milliseconds kMetricsRequestTimeout{1000};

// Answers GET /metrics to clients with a certificate of the same job. Uses the files in --tls_dir
// as they are now, so that no restart is needed when they are replaced, and its lists of revoked
// certificates. Each thread serves one connection at a time; more connections wait. A connection
// has a deadline, whatever its peer sends.
class TlsMetricsServer {
 public:
  // Returns the metrics in Prometheus' text format. Thread-safe.
  using Text = std::function<std::string()>;

  // INVALID_ARGUMENT: it cannot listen at host:port, or the files in `tls_dir` do not fit. Port 0
  // takes a free one.
  static absl::StatusOr<std::unique_ptr<TlsMetricsServer>> Listen(const std::string& address,
                                                                  const std::string& tls_dir,
                                                                  Text text);
  // Ends the connections that are open.
  ~TlsMetricsServer();
  TlsMetricsServer(const TlsMetricsServer&) = delete;
  TlsMetricsServer& operator=(const TlsMetricsServer&) = delete;

  int port() const { return port_; }

 private:
  // The files of --tls_dir that a connection uses.
  struct Files;

  TlsMetricsServer(std::string tls_dir, Text text)
      : tls_dir_(std::move(tls_dir)), text_(std::move(text)) {}
  absl::Status Bind(const std::string& address);
  // For a new connection.
  absl::StatusOr<std::shared_ptr<const Files>> CurrentFiles();
  void Run();
  // False: the server ends, and serves no more connections.
  bool AddConnection(int connection);
  void CloseConnection(int connection);
  void Serve(int connection);

  const std::string tls_dir_;
  const Text text_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  Mutex mu_;
  std::shared_ptr<const Files> files_ PAWL_GUARDED_BY(mu_);
  MonotonicTime read_at_ PAWL_GUARDED_BY(mu_);
  // The descriptors of the connections that are served.
  std::set<int> connections_ PAWL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STATUS_TLS_METRICS_SERVER_H_
