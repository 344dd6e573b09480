// A batch's arrays where a device can read them.
#ifndef PAWL_WORKER_MODEL_DEVICE_BATCH_H_
#define PAWL_WORKER_MODEL_DEVICE_BATCH_H_

#include <array>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/batch.h"
#include "worker/device/device.h"
#include "worker/device/operands.h"
#include "worker/device/workspace.h"

namespace pawl {

// Not thread-safe.
class DeviceBatch {
 public:
  // `device` must outlive this.
  explicit DeviceBatch(Device& device) : device_(device), workspace_(device) {}

  // Copies the batch to the device by `upload`, which is not used where the device reads the host's
  // memory: then this refers to the batch. RESOURCE_EXHAUSTED: it does not fit, and this holds
  // nothing. REQUIRES: the batch is as it is until the stream has done it, or for as long as this
  // is used; no stream uses what was loaded before.
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

// The batch that is computed with, and the next one, which is copied meanwhile. Not thread-safe.
class DeviceBatches {
 public:
  // Copies go by `upload`, for which `compute` waits; null where the device reads the host's
  // memory. All outlive this.
  DeviceBatches(Device& device, Stream& compute, Stream* upload)
      : compute_(compute), upload_(upload), batches_{DeviceBatch(device), DeviceBatch(device)} {}

  // The batch in the memory of the device, by now or by what the upload stream was given, before
  // what `compute` is given from now on: found where it is, as one more computation finds it, or
  // one with a batch that was fetched before, or loaded. It is the present one then. Errors as
  // DeviceBatch::Load.
  absl::StatusOr<const DeviceBatch*> Load(const Batch& batch);
  const DeviceBatch& present() const { return batches_[present_]; }
  // Begins to copy the batch of the next computation, if there is one; only a Load of that one
  // finds it.
  void Prefetch(const Batch* next);
  // It may change from now on; all may.
  void Forget(const Batch& batch);
  void ForgetAll();

  size_t peak_bytes() const { return batches_[0].peak_bytes() + batches_[1].peak_bytes(); }

 private:
  Stream& compute_;
  Stream* const upload_;
  std::array<DeviceBatch, 2> batches_;
  size_t present_ = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_DEVICE_BATCH_H_
