// A batch's arrays where a device can read them.
#ifndef PAWL_WORKER_MODEL_DEVICE_BATCH_H_
#define PAWL_WORKER_MODEL_DEVICE_BATCH_H_

#include "absl/status/status.h"
#include "worker/data/batch.h"
#include "worker/device/device.h"
#include "worker/device/operands.h"
#include "worker/device/workspace.h"

namespace pawl {

// Of two, one is loaded while the other one is computed with. Not thread-safe.
class DeviceBatch {
 public:
  // `device` must outlive this.
  explicit DeviceBatch(Device& device) : device_(device), workspace_(device) {}

  // Copies the batch to the device by `upload`, which is not used where the device reads the host's memory: then this refers
  // to the batch. RESOURCE_EXHAUSTED: it does not fit, and this holds nothing. REQUIRES: the batch is as it is until the
  // stream has done it, or for as long as this is used; no stream uses what was loaded before.
  absl::Status Load(const Batch& batch, Stream* upload);
  // What it holds is of no use any more.
  void Forget() { batch_ = nullptr; }
  // It was loaded with this object, which REQUIRES that the object has not changed since.
  bool Holds(const Batch& batch) const { return batch_ == &batch; }

  const Entries& entries() const { return entries_; }
  ConstMatrix numerics() const { return numerics_; }
  const float* labels() const { return labels_; }
  size_t peak_bytes() const { return workspace_.peak_bytes(); }

 private:
  template <typename T>
  absl::Status ToDevice(const std::vector<T>& host, Stream* upload, const T** device);

  Device& device_;
  Workspace workspace_;
  const Batch* batch_ = nullptr;
  Entries entries_;
  ConstMatrix numerics_;
  const float* labels_ = nullptr;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_DEVICE_BATCH_H_
