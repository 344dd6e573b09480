#include "worker/device/cpu/stream.h"

#include <cstring>

namespace pawl {

absl::Status CpuStream::Synchronize() { return absl::OkStatus(); }

absl::Status CpuStream::Await(Mark) { return absl::OkStatus(); }

void CpuStream::WaitFor(Stream&) {}

void CpuStream::CopyToDevice(const void* host, size_t bytes, void* to) {
  if (bytes > 0) std::memcpy(to, host, bytes);
}

void CpuStream::CopyToHost(const void* from, size_t bytes, void* host) {
  if (bytes > 0) std::memcpy(host, from, bytes);
}

void CpuStream::Zero(void* data, size_t bytes) {
  if (bytes > 0) std::memset(data, 0, bytes);
}

}  // namespace pawl
