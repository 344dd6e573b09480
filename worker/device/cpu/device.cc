#include "worker/device/cpu/device.h"

#include <cblas.h>

#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/device/cpu/stream.h"

namespace pawl {
namespace {

// The size of a cache line and of the widest vector register.
constexpr size_t kAlignment = 64;

}  // namespace

// With several threads OpenBLAS would split matrices, and so order its sums, by the number of
// threads.
CpuDevice::CpuDevice(GemmKernel kernel) : kernel_(kernel) { openblas_set_num_threads(1); }

CpuDevice::CpuDevice() : CpuDevice(SupportedGemmKernels().back()) {}

absl::StatusOr<void*> CpuDevice::Allocate(size_t bytes) {
  const size_t rounded =
      bytes < kAlignment ? kAlignment : (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = rounded < bytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr)
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate ", bytes, " bytes of memory"));
  return data;
}

void CpuDevice::Free(void* data) { std::free(data); }

absl::StatusOr<std::unique_ptr<Stream>> CpuDevice::CreateStream() {
  return std::make_unique<CpuStream>(kernel_);
}

}  // namespace pawl
