// metrics.md: the metrics that the scheduler exports to Prometheus.
#ifndef PAWL_DEPLOY_REFERENCE_METRICS_PAGE_H_
#define PAWL_DEPLOY_REFERENCE_METRICS_PAGE_H_

#include <string>

namespace pawl {

// The metrics of a cluster with a server and a worker, which has all metrics
// (scheduler/status/metrics.h).
std::string MetricsPage();

}  // namespace pawl

#endif  // PAWL_DEPLOY_REFERENCE_METRICS_PAGE_H_
