#include "worker/dense/dense_source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/futures.h"

namespace pawl {
namespace {

// The view of a snapshot, whose tables all arrive with one pull.
class SnapshotView final : public DenseView {
 public:
  SnapshotView(std::shared_ptr<const std::vector<std::vector<float>>> values,
               std::shared_future<absl::Status> ready, MonotonicDuration timeout)
      : values_(std::move(values)), ready_(std::move(ready)), timeout_(timeout) {}

  absl::Status Await(const Interrupt& interrupt) override {
    PAWL_RETURN_IF_ERROR(
        AwaitReady(ready_, timeout_ + kLibraryGrace, interrupt, "pull of dense tables"));
    return ready_.get();
  }
  absl::Status AwaitTable(size_t /*table*/, const Interrupt& /*interrupt*/) override {
    return absl::OkStatus();
  }
  absl::Span<const float> values(size_t table) const override { return (*values_)[table]; }

 private:
  const std::shared_ptr<const std::vector<std::vector<float>>> values_;
  const std::shared_future<absl::Status> ready_;
  const MonotonicDuration timeout_;
};

}  // namespace

DenseSnapshots::DenseSnapshots(std::vector<Table> tables) : tables_(std::move(tables)) {
  MutexLock lock(mu_);
  for (Place& place : places_) place.values = NewValues();
}

std::shared_ptr<std::vector<std::vector<float>>> DenseSnapshots::NewValues() const {
  auto values = std::make_shared<std::vector<std::vector<float>>>();
  for (const Table& table : tables_) values->emplace_back(table.elements());
  return values;
}

absl::StatusOr<std::unique_ptr<DenseView>> DenseSnapshots::At(uint64_t step, Session& session,
                                                              MonotonicDuration timeout) {
  MutexLock lock(mu_);
  Place& place = places_[step % 2];
  if (place.step == step) return std::make_unique<SnapshotView>(place.values, place.ready, timeout);
  if (place.step.has_value() && *place.step > step) {
    return absl::InternalError(absl::StrCat("the dense parameters of step ", step,
                                            " are no longer available: those of step ", *place.step,
                                            " have replaced them"));
  }
  // A rank that moved away may have left a pull that still writes into the old buffer.
  if (place.step.has_value() && !IsReady(place.ready)) place.values = NewValues();
  place.step = step;
  std::future<absl::Status> pulled;
  auto done = Fulfilling(pulled);
  place.ready = pulled.share();
  std::vector<PullItem> items;
  for (size_t i = 0; i < tables_.size(); ++i) {
    items.push_back({.table = tables_[i], .values = absl::MakeSpan((*place.values)[i])});
  }
  CallOptions options;
  options.timeout = timeout;
  options.step = step;
  session.Pull(items, options,
               [done = std::move(done), values = place.values](absl::Status status) mutable {
                 done(std::move(status));
               });
  return std::make_unique<SnapshotView>(place.values, place.ready, timeout);
}

}  // namespace pawl
