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

namespace pawl {

// Threads that answer, one connection each; more connections wait.
inline constexpr int kMetricsThreads = 8;
// How long a connection may hold a thread without sending its request.
inline constexpr std::chrono::milliseconds kMetricsRequestTimeout{1000};
// Requests within this interval get the same answer, without load on the scheduler.
inline constexpr std::chrono::milliseconds kMetricsInterval{500};

// Answers GET /metrics at host:port until it is destroyed.
class MetricsEndpoint {
 public:
  using Collect = std::function<std::vector<prometheus::MetricFamily>()>;

  // `collect` is called on any thread, one call at a time. Port 0 takes a free port.
  // INVALID_ARGUMENT: it cannot listen there.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Listen(const std::string& address,
                                                                 Collect collect);

  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  int port() const { return exposer_->GetListeningPorts().front(); }

 private:
  explicit MetricsEndpoint(Collect collect);

  const std::shared_ptr<prometheus::Collectable> collectable_;
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STATUS_METRICS_ENDPOINT_H_
