#include "scheduler/status/metrics_endpoint.h"

#include <exception>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/base/status_macros.h"
#include "prometheus/text_serializer.h"

namespace pawl {
namespace {

class FunctionCollectable final : public prometheus::Collectable {
 public:
  explicit FunctionCollectable(MetricsEndpoint::Collect collect) : collect_(std::move(collect)) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    MutexLock lock(mu_);
    const MonotonicTime now = Clock::Real().Now();
    if (!collected_at_.has_value() || now - *collected_at_ >= kMetricsInterval) {
      last_ = collect_();
      collected_at_ = now;
    }
    return last_;
  }

 private:
  const MetricsEndpoint::Collect collect_;
  mutable Mutex mu_;
  mutable std::optional<MonotonicTime> collected_at_ PAWL_GUARDED_BY(mu_);
  mutable std::vector<prometheus::MetricFamily> last_ PAWL_GUARDED_BY(mu_);
};

}  // namespace

MetricsEndpoint::MetricsEndpoint(Collect collect)
    : collectable_(std::make_shared<FunctionCollectable>(std::move(collect))) {}

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Listen(
    const std::string& address, Collect collect, const std::string& tls_dir) {
  std::unique_ptr<MetricsEndpoint> endpoint(new MetricsEndpoint(std::move(collect)));
  if (!tls_dir.empty()) {
    PAWL_ASSIGN_OR_RETURN(
        endpoint->tls_,
        TlsMetricsServer::Listen(address, tls_dir, [collectable = endpoint->collectable_] {
          return prometheus::TextSerializer().Serialize(collectable->Collect());
        }));
    return endpoint;
  }
  // The library reports failure only by exceptions.
  try {
    endpoint->exposer_ = std::make_unique<prometheus::Exposer>(std::vector<std::string>{
        "listening_ports", address, "num_threads", absl::StrCat(kMetricsThreads),
        "request_timeout_ms", absl::StrCat(kMetricsRequestTimeout.count())});
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", address, ": ", error.what()));
  }
  if (endpoint->exposer_->GetListeningPorts().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on ", address));
  }
  endpoint->exposer_->RegisterCollectable(endpoint->collectable_);
  return endpoint;
}

}  // namespace pawl
