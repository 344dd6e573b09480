#include "worker/dense/dense_memory.h"

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "client_lib/base/status_macros.h"
#include "worker/device/cpu/device.h"

namespace pawl {

bool DenseStaysOnDevice(const Job& job, const Device& device) {
  return job.dense_path() == ALLREDUCE && !device.SharesHostMemory() && job.micro_batches() <= 1 &&
         !job.all_reduce().sharded_optimizer();
}

absl::StatusOr<std::unique_ptr<DenseMemory>> DenseMemory::Create(Device& device) {
  auto memory = absl::WrapUnique(new DenseMemory(device, nullptr));
  PAWL_RETURN_IF_ERROR(memory->CreateStreams());
  return memory;
}

std::unique_ptr<DenseMemory> DenseMemory::CreateOnHost() {
  auto device = std::make_unique<CpuDevice>();
  Device& cpu = *device;
  auto memory = absl::WrapUnique(new DenseMemory(cpu, std::move(device)));
  // The processor always has streams.
  memory->CreateStreams().IgnoreError();
  return memory;
}

DenseMemory::~DenseMemory() {
  MutexLock lock(mu_);
  // Only leaked memory is still held.
  if (!leaked_.empty()) Abandon();
  leaked_.clear();
}

absl::Status DenseMemory::CreateStreams() {
  PAWL_ASSIGN_OR_RETURN(stream_, device_.CreateStream());
  MutexLock lock(mu_);
  PAWL_ASSIGN_OR_RETURN(copy_stream_, device_.CreateStream());
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<float>> DenseMemory::Allocate(size_t count) {
  const absl::StatusOr<void*> data = device_.Allocate(count * sizeof(float));
  // Lack of memory is not an error of the device; a hang is.
  if (absl::IsDeadlineExceeded(data.status())) return Record(data.status());
  PAWL_RETURN_IF_ERROR(data.status());
  std::shared_ptr<float> floats(static_cast<float*>(*data), [this](float* unused) {
    if (!is_abandoned_) device_.Free(unused);
  });
  absl::Status zeroed;
  {
    MutexLock lock(mu_);
    copy_stream_->Zero(*data, count * sizeof(float));
    zeroed = copy_stream_->Synchronize();
  }
  PAWL_RETURN_IF_ERROR(Record(zeroed));
  return floats;
}

absl::Status DenseMemory::Copy(const float* from, size_t count, float* to, bool to_host) {
  if (IsHostMemory()) {
    if (count > 0) std::memcpy(to, from, count * sizeof(float));
    return absl::OkStatus();
  }
  absl::Status copied;
  {
    MutexLock lock(mu_);
    if (to_host) {
      copy_stream_->CopyToHost(from, count * sizeof(float), to);
    } else {
      copy_stream_->CopyToDevice(from, count * sizeof(float), to);
    }
    copied = copy_stream_->Synchronize();
  }
  return Record(copied);
}

void DenseMemory::Leak(std::shared_ptr<float> floats) {
  MutexLock lock(mu_);
  leaked_.push_back(std::move(floats));
}

absl::Status DenseMemory::status() const {
  MutexLock lock(mu_);
  return status_;
}

absl::Status DenseMemory::Record(const absl::Status& status) {
  if (status.ok()) return status;
  if (absl::IsDeadlineExceeded(status)) Abandon();
  MutexLock lock(mu_);
  if (status_.ok()) status_ = status;
  return status;
}

}  // namespace pawl
