#include "worker/train/pulled_batch.h"

#include <utility>

#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/futures.h"

namespace pawl {

std::vector<size_t> DensePlaces(const std::vector<Table>& tables) {
  std::vector<size_t> places;
  size_t dense = 0;
  for (const Table& table : tables) places.push_back(table.dense() ? dense++ : 0);
  return places;
}

absl::Status PulledBatch::Start(BatchStream& stream, uint64_t step, DenseSource* dense) {
  PAWL_ASSIGN_OR_RETURN(batch_, stream.Next(context_.leave));
  stream_ = &stream;
  if (dense != nullptr) {
    // Also for an empty share, because asking keeps a rank from running ahead.
    PAWL_ASSIGN_OR_RETURN(dense_, dense->At(step, context_.session, context_.timeout));
  }
  if (batch_->samples > 0) StartPull(step, values_);
  return absl::OkStatus();
}

void PulledBatch::StartPull(uint64_t step, std::vector<std::vector<float>>& all_values) {
  std::vector<PullItem> items;
  for (size_t t = 0; t < context_.tables.size(); ++t) {
    if (IsShared(t)) continue;
    const Table& table = context_.tables[t];
    std::vector<float>& values = all_values[t];
    values.resize(context_.model.SpanSize(t, *batch_));
    if (values.empty()) continue;
    PullItem& item = items.emplace_back();
    item.table = table;
    if (!table.dense()) item.keys = context_.model.KeysOf(t, *batch_);
    item.values = absl::MakeSpan(values);
    item.keys_are_distinct = true;
  }
  if (items.empty()) return;
  CallOptions options;
  options.timeout = context_.timeout;
  options.step = step;
  context_.session.Pull(items, options, Fulfilling(pulled_));
}

absl::Status PulledBatch::PullAgain(uint64_t step, std::vector<std::vector<float>>& values) {
  values.resize(context_.tables.size());
  StartPull(step, values);
  if (!pulled_.valid()) return absl::OkStatus();
  return context_.waiting.Measure([&] {
    return pawl::Await(pulled_, context_.timeout + kLibraryGrace, context_.leave, "second pull");
  });
}

absl::Status PulledBatch::Await(std::vector<absl::Span<const float>>* parameters) {
  PAWL_RETURN_IF_ERROR(context_.waiting.Measure([&]() -> absl::Status {
    if (dense_ != nullptr) PAWL_RETURN_IF_ERROR(dense_->Await(context_.leave));
    if (!pulled_.valid()) return absl::OkStatus();
    return pawl::Await(pulled_, context_.timeout + kLibraryGrace, context_.leave, "pull");
  }));
  parameters->clear();
  for (size_t t = 0; t < context_.tables.size(); ++t) {
    parameters->push_back(IsShared(t) ? dense_->values(context_.dense_places[t]) : values_[t]);
  }
  return absl::OkStatus();
}

absl::Status PulledBatch::AwaitTable(size_t table) {
  if (!IsShared(table)) return absl::OkStatus();
  return context_.waiting.Measure(
      [&] { return dense_->AwaitTable(context_.dense_places[table], context_.leave); });
}

void PulledBatch::Release() {
  dense_.reset();
  if (batch_ != nullptr) stream_->Release(std::exchange(batch_, nullptr));
}

bool PulledBatch::IsIdle() const { return !pulled_.valid() || IsReady(pulled_); }

}  // namespace pawl
