#include "worker/dense_snapshots.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pawl {

DenseSnapshots::DenseSnapshots(std::vector<Table> tables) : tables_(std::move(tables)) {
  MutexLock lock(mu_);
  for (Place& place : places_) place.values = NewValues();
}

std::shared_ptr<std::vector<std::vector<float>>> DenseSnapshots::NewValues() const {
  auto values = std::make_shared<std::vector<std::vector<float>>>();
  for (const Table& table : tables_) values->emplace_back(table.elements());
  return values;
}

absl::StatusOr<DenseSnapshots::Snapshot> DenseSnapshots::At(uint64_t step, Session& session,
                                                            MonotonicDuration timeout) {
  MutexLock lock(mu_);
  Place& place = places_[step % 2];
  if (place.step == step) return Snapshot{place.values, place.ready};
  if (place.step.has_value() && *place.step > step) {
    return absl::InternalError(absl::StrCat("the dense parameters of step ", step, " are gone: those of step ",
                                            *place.step, " have their place"));
  }
  // Ranks that were given up may have left a pull behind that nobody waits for.
  if (place.step.has_value() && place.ready.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    place.values = NewValues();
  }
  std::promise<absl::Status> promise;
  place.step = step;
  place.ready = promise.get_future().share();
  std::vector<PullItem> items;
  for (size_t i = 0; i < tables_.size(); ++i) {
    items.push_back({.table = tables_[i], .values = absl::MakeSpan((*place.values)[i])});
  }
  CallOptions options;
  options.timeout = timeout;
  options.step = step;
  session.Pull(items, options, [promise = std::move(promise), values = place.values](absl::Status status) mutable {
    promise.set_value(std::move(status));
  });
  return Snapshot{place.values, place.ready};
}

}  // namespace pawl
