#include "worker/device/cpu/stream.h"

#include <cstring>

namespace pawl {
namespace {

const CpuLoops& LoopsOf(GemmKernel kernel) {
#if defined(__x86_64__)
  if (kernel == GemmKernel::kAvx512) return kAvx512Loops;
  if (kernel == GemmKernel::kAvx2) return kAvx2Loops;
#endif
  static_cast<void>(kernel);
  return kPortableLoops;
}

}  // namespace

CpuStream::CpuStream(GemmKernel kernel) : loops_(LoopsOf(kernel)), gemm_(kernel) {}

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
