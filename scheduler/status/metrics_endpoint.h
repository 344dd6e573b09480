// The HTTP endpoint of the metrics.
#ifndef PAWL_SCHEDULER_STATUS_METRICS_ENDPOINT_H_
#define PAWL_SCHEDULER_STATUS_METRICS_ENDPOINT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "prometheus/exposer.h"
#include "prometheus/metric_family.h"
#include "scheduler/status/tls_metrics_server.h"

namespace pawl {

// Requests within this interval get the same answer, without load on the scheduler.
inline constexpr std::chrono::milliseconds kMetricsInterval{500};

// Answers GET /metrics at host:port until it is destroyed.
class MetricsEndpoint {
 public:
  using Collect = std::function<std::vector<prometheus::MetricFamily>()>;

  // `collect` is called on any thread, one call at a time. `tls_dir`: over mutual TLS, with the
  // certificate there; empty: over HTTP, to everyone. Port 0 takes a free port. INVALID_ARGUMENT:
  // it cannot listen there.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Listen(const std::string& address,
                                                                 Collect collect,
                                                                 const std::string& tls_dir = "");

  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  int port() const {
    return tls_ != nullptr ? tls_->port() : exposer_->GetListeningPorts().front();
  }

 private:
  explicit MetricsEndpoint(Collect collect);

  const std::shared_ptr<prometheus::Collectable> collectable_;
  // One of them is set.
  std::unique_ptr<prometheus::Exposer> exposer_;
  std::unique_ptr<TlsMetricsServer> tls_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STATUS_METRICS_ENDPOINT_H_
