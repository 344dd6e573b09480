#include "worker/model/device_batch.h"

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
  entries_ = Entries();
  entries_.samples = batch.samples;
  entries_.fields = batch.field_count;
  entries_.entries = batch.entry_key.size();
  entries_.keys = batch.keys.size();
  PAWL_RETURN_IF_ERROR(ToDevice(batch.field_begin, upload, &entries_.field_begin));
  PAWL_RETURN_IF_ERROR(ToDevice(batch.entry_key, upload, &entries_.entry_key));
  PAWL_RETURN_IF_ERROR(ToDevice(batch.entry_value, upload, &entries_.entry_value));
  const float* numerics = nullptr;
  PAWL_RETURN_IF_ERROR(ToDevice(batch.numerics, upload, &numerics));
  numerics_ = ConstMatrix(numerics, batch.samples, batch.numeric_count, batch.numeric_count);
  PAWL_RETURN_IF_ERROR(ToDevice(batch.labels, upload, &labels_));
  batch_ = &batch;
  return absl::OkStatus();
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
