#include "client_lib/metrics/pending_metrics.h"

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/metrics/user_metric.h"

namespace pawl {

absl::Status PendingMetrics::Add(const std::string& name, uint64_t step, double value) {
  PAWL_RETURN_IF_ERROR(CheckUserMetric(name, value));
  if (!names_.contains(name) && names_.size() >= kMaxMetricNames) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "metric '", name, "': there are ", kMaxMetricNames, " metrics of other names, the limit"));
  }
  names_.insert(name);
  const auto [it, is_new] = pending_.try_emplace(name, Figure{step, value});
  if (!is_new && it->second.step <= step) it->second = {step, value};
  return absl::OkStatus();
}

void PendingMetrics::AddTo(WorkerProgress& progress) const {
  for (const auto& [name, figure] : pending_) {
    UserMetric& metric = *progress.add_metrics();
    metric.set_name(name);
    metric.set_step(figure.step);
    metric.set_value(figure.value);
  }
}

void PendingMetrics::Acknowledge(const WorkerProgress& progress) {
  for (const UserMetric& metric : progress.metrics()) {
    const auto it = pending_.find(metric.name());
    if (it != pending_.end() && it->second.step == metric.step() &&
        it->second.value == metric.value()) {
      pending_.erase(it);
    }
  }
}

}  // namespace pawl
