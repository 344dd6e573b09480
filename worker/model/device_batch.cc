#include "worker/model/device_batch.h"

#include <numeric>

#include "client_lib/base/status_macros.h"

namespace pawl {

template <typename T>
absl::Status DeviceBatch::ToDevice(const std::vector<T>& host, Stream* upload, const T** device) {
  if (device_.SharesHostMemory()) {
    *device = host.data();
    return absl::OkStatus();
  }
  PAWL_ASSIGN_OR_RETURN(T * data, workspace_.Allocate<T>(host.size()));
  upload->CopyToDevice(host.data(), host.size() * sizeof(T), data);
  *device = data;
  return absl::OkStatus();
}

absl::Status DeviceBatch::Load(const Batch& batch, Stream* upload) {
  Forget();
  workspace_.Reset();
  const size_t sets = batch.field_sets.size();
  field_sets_.assign(sets, Entries());
  entry_lists_.assign(sets, EntryList());
  host_lists_.resize(sets);
  for (size_t i = 0; i < sets; ++i) {
    const FieldSet& set = batch.field_sets[i];
    Entries& entries = field_sets_[i];
    entries.samples = batch.samples;
    entries.fields = set.field_count;
    entries.entries = set.entry_key.size();
    entries.keys = batch.keys[set.key_set].size();
    PAWL_RETURN_IF_ERROR(ToDevice(set.field_begin, upload, &entries.field_begin));
    PAWL_RETURN_IF_ERROR(ToDevice(set.entry_key, upload, &entries.entry_key));
    PAWL_RETURN_IF_ERROR(ToDevice(set.entry_value, upload, &entries.entry_value));
    const FieldPooling pooling = layout_.field_sets[i].pooling;
    if (pooling == FieldPooling::kMax || pooling == FieldPooling::kNone)
      PAWL_RETURN_IF_ERROR(LoadList(set, i, upload));
  }
  const float* numerics = nullptr;
  PAWL_RETURN_IF_ERROR(ToDevice(batch.numerics, upload, &numerics));
  numerics_ = ConstMatrix(numerics, batch.samples, batch.numeric_count, batch.numeric_count);
  PAWL_RETURN_IF_ERROR(ToDevice(batch.labels, upload, &labels_));
  weights_ = nullptr;
  if (!batch.weights.empty() || !label_weights_.empty()) {
    host_weights_.clear();
    for (uint32_t s = 0; s < batch.samples; ++s) {
      const float of_sample = batch.weights.empty() ? 1.0f : batch.weights[s];
      for (uint32_t l = 0; l < batch.label_count; ++l)
        host_weights_.push_back(of_sample * (label_weights_.empty() ? 1.0f : label_weights_[l]));
    }
    PAWL_RETURN_IF_ERROR(ToDevice(host_weights_, upload, &weights_));
  }
  batch_ = &batch;
  return absl::OkStatus();
}

absl::Status DeviceBatch::LoadList(const FieldSet& set, size_t index, Stream* upload) {
  const Entries& entries = field_sets_[index];
  HostLists& lists = host_lists_[index];
  lists.places.resize(entries.entries + 1);
  std::iota(lists.places.begin(), lists.places.end(), 0u);
  lists.ones.assign(entries.entries, 1.0f);
  lists.samples.clear();
  for (uint32_t sample = 0; sample < entries.samples; ++sample) {
    const uint32_t begin = set.field_begin[size_t{sample} * set.field_count];
    const uint32_t end = set.field_begin[size_t{sample + 1} * set.field_count];
    lists.samples.insert(lists.samples.end(), end - begin, sample);
  }
  EntryList& list = entry_lists_[index];
  list.rows = entries;
  list.rows.samples = entries.entries;
  list.rows.fields = 1;
  PAWL_RETURN_IF_ERROR(ToDevice(lists.places, upload, &list.rows.field_begin));
  list.samples = list.rows;
  list.samples.keys = entries.samples;
  PAWL_RETURN_IF_ERROR(ToDevice(lists.samples, upload, &list.samples.entry_key));
  return ToDevice(lists.ones, upload, &list.samples.entry_value);
}

absl::StatusOr<const DeviceBatch*> DeviceBatches::Load(const Batch& batch) {
  if (!batches_[present_].Holds(batch) && batches_[1 - present_].Holds(batch))
    present_ = 1 - present_;
  if (!batches_[present_].Holds(batch)) {
    batches_[1 - present_].Forget();
    PAWL_RETURN_IF_ERROR(batches_[present_].Load(batch, upload_));
  }
  if (upload_ != nullptr) compute_.WaitFor(*upload_);
  return &batches_[present_];
}

void DeviceBatches::Prefetch(const Batch* next) {
  DeviceBatch& other = batches_[1 - present_];
  // Already loaded by an earlier attempt of the same computation.
  if (next != nullptr && other.Holds(*next)) return;
  other.Forget();
  // Useful only if data is copied. A batch that does not fit now may fit when it is its turn.
  if (next != nullptr && upload_ != nullptr) other.Load(*next, upload_).IgnoreError();
}

void DeviceBatches::Forget(const Batch& batch) {
  for (DeviceBatch& there : batches_) {
    if (there.Holds(batch)) there.Forget();
  }
}

void DeviceBatches::ForgetAll() {
  for (DeviceBatch& there : batches_) there.Forget();
}

}  // namespace pawl
