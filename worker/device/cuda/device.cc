#include "worker/device/cuda/device.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "worker/device/cuda/status.h"
#include "worker/device/cuda/stream.h"

namespace pawl {
namespace {

// The oldest architecture with code: sm_80.
constexpr int kMinCapability = 8;

std::string Gpu(int number) { return absl::StrCat("GPU ", number); }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(const Options& options) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(options));
  PAWL_RETURN_IF_ERROR(device->Initialize());
  return device;
}

absl::Status CudaDevice::Initialize() {
  const std::string gpu = Gpu(options_.number);
  int devices = 0;
  PAWL_RETURN_IF_ERROR(StatusOf(cudaGetDeviceCount(&devices), "this machine's GPUs"));
  if (options_.number < 0 || options_.number >= devices) {
    return absl::NotFoundError(
        absl::StrCat("there is no ", gpu, ": this machine has ", devices,
                     devices == 1 ? " GPU, number 0" : " GPUs, numbers from 0",
                     " (CUDA_VISIBLE_DEVICES may hide some)"));
  }
  int major = 0, minor = 0, has_pools = 0;
  PAWL_RETURN_IF_ERROR(StatusOf(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, options_.number), gpu));
  PAWL_RETURN_IF_ERROR(StatusOf(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, options_.number), gpu));
  if (major < kMinCapability) {
    return absl::FailedPreconditionError(absl::StrCat(gpu, " has compute capability ", major, ".",
                                                      minor, "; ", kMinCapability,
                                                      ".0 is needed (Ampere, or newer)"));
  }
  PAWL_RETURN_IF_ERROR(StatusOf(
      cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, options_.number), gpu));
  if (has_pools == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        gpu, " has no memory pools (a virtual GPU without unified memory?), which Pawl needs"));
  }
  PAWL_RETURN_IF_ERROR(StatusOf(
      cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, options_.number), gpu));
  PAWL_RETURN_IF_ERROR(StatusOf(cudaSetDevice(options_.number), gpu));
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypeNone;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = options_.number;
  PAWL_RETURN_IF_ERROR(
      StatusOf(cudaMemPoolCreate(&pool_, &properties), absl::StrCat(gpu, ": memory pool")));
  uint64_t retained_bytes = kKeptBytes;
  PAWL_RETURN_IF_ERROR(
      StatusOf(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &retained_bytes),
               absl::StrCat(gpu, ": memory pool")));
  return StatusOf(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                  absl::StrCat(gpu, ": stream"));
}

CudaDevice::~CudaDevice() {
  static_cast<void>(cudaSetDevice(options_.number));
  if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  if (pool_ != nullptr) static_cast<void>(cudaMemPoolDestroy(pool_));
}

absl::StatusOr<void*> CudaDevice::Allocate(size_t bytes) {
  const std::string what = absl::StrCat(Gpu(options_.number), ": ", bytes, " bytes of memory");
  PAWL_RETURN_IF_ERROR(StatusOf(cudaSetDevice(options_.number), what));
  void* data = nullptr;
  if (const cudaError_t error =
          cudaMallocFromPoolAsync(&data, bytes == 0 ? 1 : bytes, pool_, stream_);
      error != cudaSuccess) {
    // Clear the error, so that the next call does not report it.
    static_cast<void>(cudaGetLastError());
    return StatusOf(error, what);
  }
  // The memory belongs to this stream until the stream has reached the allocation.
  PAWL_RETURN_IF_ERROR(
      Await([this] { return cudaStreamQuery(stream_); }, options_.hang_limit, what));
  return data;
}

void CudaDevice::Free(void* data) {
  if (data == nullptr) return;
  static_cast<void>(cudaSetDevice(options_.number));
  static_cast<void>(cudaFreeAsync(data, stream_));
}

absl::StatusOr<std::unique_ptr<Stream>> CudaDevice::CreateStream() {
  CudaStream::Options options;
  options.number = options_.number;
  options.processors = processors_;
  options.pool = pool_;
  options.math = options_.math;
  options.hang_limit = options_.hang_limit;
  return CudaStream::Create(options);
}

}  // namespace pawl
