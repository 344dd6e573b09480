#include "scheduler/status/user_metrics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/metrics/user_metric.h"
#include "spdlog/spdlog.h"

namespace pawl {

absl::Status UserMetrics::Check(const WorkerProgress& progress) {
  const auto count = static_cast<size_t>(progress.metrics_size());
  if (count > kMaxMetricsInMessage) {
    return absl::InvalidArgumentError(absl::StrCat("progress has ", count, " metrics; at most ",
                                                   kMaxMetricsInMessage, " are possible"));
  }
  for (const UserMetric& metric : progress.metrics())
    PAWL_RETURN_IF_ERROR(CheckUserMetric(metric.name(), metric.value()));
  return absl::OkStatus();
}

void UserMetrics::Note(const WorkerProgress& progress) {
  for (const UserMetric& metric : progress.metrics()) {
    auto it = latest_.find(metric.name());
    if (it == latest_.end()) {
      if (latest_.size() >= kMaxMetricNames) {
        if (!std::exchange(has_warned_, true)) {
          spdlog::warn("metric '{}' and others are ignored: there are {} other names, the limit",
                       metric.name(), kMaxMetricNames);
        }
        continue;
      }
      it = latest_.emplace(metric.name(), metric).first;
    }
    if (metric.step() < it->second.step()) continue;
    it->second = metric;
    it->second.DiscardUnknownFields();
  }
}

void UserMetrics::AddTo(GetStatusResponse& status) const {
  for (const auto& [name, metric] : latest_) *status.add_metrics() = metric;
}

void UserMetrics::Save(StoredMembership& stored) const {
  for (StoredNode& node : *stored.mutable_nodes()) {
    if (node.role() != WORKER_ROLE) continue;
    for (const auto& [name, metric] : latest_) *node.mutable_progress()->add_metrics() = metric;
    return;
  }
}

void UserMetrics::Restore(const StoredMembership& stored) {
  for (const StoredNode& node : stored.nodes()) Note(node.progress());
}

}  // namespace pawl
