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

std::unique_ptr<DenseMemory> DenseMemory::OfHost() {
  auto device = std::make_unique<CpuDevice>();
  Device& cpu = *device;
  auto memory = absl::WrapUnique(new DenseMemory(cpu, std::move(device)));
  // The processor refuses none.
  memory->CreateStreams().IgnoreError();
  return memory;
}

DenseMemory::~DenseMemory() {
  MutexLock lock(mu_);
  // Nothing else is held any more.
  if (!lost_.empty()) Abandon();
  lost_.clear();
}

absl::Status DenseMemory::CreateStreams() {
  PAWL_ASSIGN_OR_RETURN(stream_, device_.CreateStream());
  MutexLock lock(mu_);
  PAWL_ASSIGN_OR_RETURN(copies_, device_.CreateStream());
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<float>> DenseMemory::Allocate(size_t count) {
  const absl::StatusOr<void*> data = device_.Allocate(count * sizeof(float));
  // That there is too little of it is no error of the device's.
  if (absl::IsDeadlineExceeded(data.status())) return Keep(data.status());
  PAWL_RETURN_IF_ERROR(data.status());
  std::shared_ptr<float> floats(static_cast<float*>(*data), [this](float* unused) {
    if (!is_abandoned_) device_.Free(unused);
  });
  absl::Status zeroed;
  {
    MutexLock lock(mu_);
    copies_->Zero(*data, count * sizeof(float));
    zeroed = copies_->Synchronize();
  }
  PAWL_RETURN_IF_ERROR(Keep(zeroed));
  return floats;
}

absl::Status DenseMemory::Copy(const float* from, size_t count, float* to, bool to_host) {
  if (IsOfHost()) {
    if (count > 0) std::memcpy(to, from, count * sizeof(float));
    return absl::OkStatus();
  }
  absl::Status copied;
  {
    MutexLock lock(mu_);
    if (to_host) {
      copies_->CopyToHost(from, count * sizeof(float), to);
    } else {
      copies_->CopyToDevice(from, count * sizeof(float), to);
    }
    copied = copies_->Synchronize();
  }
  return Keep(copied);
}

void DenseMemory::Lose(std::shared_ptr<float> floats) {
  MutexLock lock(mu_);
  lost_.push_back(std::move(floats));
}

absl::Status DenseMemory::status() const {
  MutexLock lock(mu_);
  return status_;
}

absl::Status DenseMemory::Keep(const absl::Status& status) {
  if (status.ok()) return status;
  if (absl::IsDeadlineExceeded(status)) Abandon();
  MutexLock lock(mu_);
  if (status_.ok()) status_ = status;
  return status;
}

}  // namespace pawl
