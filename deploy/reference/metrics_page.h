// metrics.md: what the scheduler tells Prometheus.
#ifndef PAWL_DEPLOY_REFERENCE_METRICS_PAGE_H_
#define PAWL_DEPLOY_REFERENCE_METRICS_PAGE_H_

#include <string>

namespace pawl {

// Of a cluster with a server and a worker, which has every metric (scheduler/status/metrics.h).
std::string MetricsPage();

}  // namespace pawl

#endif  // PAWL_DEPLOY_REFERENCE_METRICS_PAGE_H_
