// A batch's arrays where a device can read them.
#ifndef PAWL_WORKER_MODEL_DEVICE_BATCH_H_
#define PAWL_WORKER_MODEL_DEVICE_BATCH_H_

#include <array>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/job/field_layout.h"
#include "worker/data/batch.h"
#include "worker/device/device.h"
#include "worker/device/operands.h"
#include "worker/device/workspace.h"

namespace pawl {

// Not thread-safe.
class DeviceBatch {
 public:
  // `device`, `layout` and `label_weights`, one for each label or none, must outlive this.
  DeviceBatch(Device& device, const FieldLayout& layout, const std::vector<float>& label_weights)
      : device_(device), layout_(layout), label_weights_(label_weights), workspace_(device) {}

  // Copies the batch to the device by `upload`. If the device reads host memory, `upload` is not
  // used and this refers to the batch. RESOURCE_EXHAUSTED: the batch does not fit, and this is
  // empty. REQUIRES: the batch does not change until the stream has finished, or, without a copy,
  // while this is used; no stream uses the batch that was loaded before.
  absl::Status Load(const Batch& batch, Stream* upload);
  // Drops the batch.
  void Forget() { batch_ = nullptr; }
  // Whether it was loaded from this object. REQUIRES: the object has not changed since.
  bool Holds(const Batch& batch) const { return batch_ == &batch; }

  // By field set, as in ModelStep.
  const std::vector<Entries>& field_sets() const { return field_sets_; }
  const std::vector<EntryList>& entry_lists() const { return entry_lists_; }
  ConstMatrix numerics() const { return numerics_; }
  const float* labels() const { return labels_; }
  // [samples, labels]: the weights of the sample and of the label, multiplied. Null: all are 1.
  const float* weights() const { return weights_; }
  size_t peak_bytes() const { return workspace_.peak_bytes(); }

 private:
  // The places and samples of a set's entries, in host memory.
  struct HostLists {
    std::vector<uint32_t> places;  // 0, 1, 2, ...
    std::vector<uint32_t> samples;
    std::vector<float> ones;
  };

  absl::Status LoadList(const FieldSet& set, size_t index, Stream* upload);
  template <typename T>
  absl::Status ToDevice(const std::vector<T>& host, Stream* upload, const T** device);

  Device& device_;
  const FieldLayout& layout_;
  const std::vector<float>& label_weights_;
  Workspace workspace_;
  const Batch* batch_ = nullptr;
  std::vector<Entries> field_sets_;
  std::vector<EntryList> entry_lists_;
  std::vector<HostLists> host_lists_;
  std::vector<float> host_weights_;
  ConstMatrix numerics_;
  const float* labels_ = nullptr;
  const float* weights_ = nullptr;
};

// The current batch of a computation, and the next one, which is copied meanwhile. Not thread-safe.
class DeviceBatches {
 public:
  // `upload` copies, and `compute` waits for it; null if the device reads host memory. All
  // arguments outlive this.
  DeviceBatches(Device& device, const FieldLayout& layout, const std::vector<float>& label_weights,
                Stream& compute, Stream* upload)
      : compute_(compute),
        upload_(upload),
        batches_{DeviceBatch(device, layout, label_weights),
                 DeviceBatch(device, layout, label_weights)} {}

  // Makes the batch current and returns it in device memory, either already copied or enqueued on
  // the upload stream before any later work of `compute`. Reuses a batch that is current or was
  // prefetched, and loads it otherwise. Errors as DeviceBatch::Load.
  absl::StatusOr<const DeviceBatch*> Load(const Batch& batch);
  const DeviceBatch& present() const { return batches_[present_]; }
  // Starts to copy the batch of the next computation, if there is one, for a later Load of it.
  void Prefetch(const Batch* next);
  // The batch, or every batch, may change from now on.
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
