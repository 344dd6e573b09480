#include "worker/device/cuda/emulator/runtime.h"

#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "client_lib/base/half.h"
#include "cublas_v2.h"
#include "worker/device/cuda/emulator/emulator.h"

struct CUgraph_st {
  std::vector<std::function<void()>> work;
};

struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};

struct CUstream_st {
  std::deque<std::function<void()>> work;
  // The graph that is captured; null if none is.
  CUgraph_st* capture = nullptr;
  uint64_t given = 0;
  uint64_t done = 0;
  bool was_asked = false;
  int gpu = 0;
};

struct CUevent_st {
  CUstream_st* stream = nullptr;
  uint64_t place = 0;
  bool was_asked = false;
};

struct cublasContext {
  CUstream_st* stream = nullptr;
  bool has_workspace = false;
};

namespace pawl::cuda::emulator {
namespace {

struct Memory {
  size_t bytes;
  int gpu;
};

constexpr size_t kAlignment = 256;

// One thread at a time uses everything below and the emulator.
std::recursive_mutex mutex;
// Never destroyed, so that a sanitizer does not report memory that graphs still hold as leaked.
auto& device_memory = *new std::map<const char*, Memory>;
std::map<const char*, size_t> locked_memory;
size_t allocated = 0;
// Memory of graphs.
std::set<void*> captured_memory;
std::map<std::string, cudaError_t> failures;
bool hangs = false;
int capability_of_all = 90;

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_gpu = 0;

using Lock = std::lock_guard<std::recursive_mutex>;

// Records the error, as the runtime does.
cudaError_t Result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

bool Fails(const char* function, cudaError_t* error) {
  const auto at = failures.find(function);
  if (at == failures.end()) return false;
  *error = Result(at->second);
  failures.erase(at);
  return true;
}

template <typename Map>
auto Find(Map& map, const void* data, size_t bytes,
          size_t (*size)(const typename Map::mapped_type&)) {
  auto at = map.upper_bound(static_cast<const char*>(data));
  if (at == map.begin()) return map.end();
  --at;
  const char* const end = static_cast<const char*>(data) + bytes;
  return end <= at->first + size(at->second) ? at : map.end();
}

bool IsDevice(const void* data, size_t bytes) {
  return Find(
             device_memory, data, bytes, +[](const Memory& memory) { return memory.bytes; }) !=
         device_memory.end();
}

bool IsLocked(const void* data, size_t bytes) {
  return Find(
             locked_memory, data, bytes, +[](const size_t& size) { return size; }) !=
         locked_memory.end();
}

void Put(CUstream_st* stream, std::function<void()> work) {
  if (stream->capture != nullptr) return stream->capture->work.push_back(std::move(work));
  stream->work.push_back(std::move(work));
  ++stream->given;
}

void RunUntil(CUstream_st* stream, uint64_t place) {
  while (stream->done < place) {
    const std::function<void()> work = std::move(stream->work.front());
    stream->work.pop_front();
    work();
    ++stream->done;
  }
}

void Fill(void* data, size_t bytes) { std::memset(data, 0xff, bytes); }

}  // namespace

void FailNext(const std::string& function, cudaError_t error) {
  const Lock lock(mutex);
  failures[function] = error;
}

void Hang(bool value) {
  const Lock lock(mutex);
  hangs = value;
}

void SetCapability(int capability) {
  const Lock lock(mutex);
  capability_of_all = capability;
}

size_t AllocatedBytes() {
  const Lock lock(mutex);
  return allocated;
}

void Enqueue(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes,
             std::function<void()> kernel) {
  const Lock lock(mutex);
  cudaError_t error;
  if (Fails("launch", &error)) return;
  constexpr unsigned kMaxThreads = 1024;
  constexpr unsigned kMaxGridRows = 65535;
  constexpr size_t kMaxSharedBytes = 48 << 10;
  const bool is_possible = grid.x > 0 && grid.y > 0 && grid.z > 0 && block.x > 0 && block.y > 0 &&
                           block.z > 0 && block.x * block.y * block.z <= kMaxThreads &&
                           grid.x <= (1u << 31) - 1 && grid.y <= kMaxGridRows &&
                           grid.z <= kMaxGridRows && shared_bytes <= kMaxSharedBytes;
  if (!is_possible || stream->gpu != current_gpu) {
    Result(is_possible ? cudaErrorInvalidResourceHandle : cudaErrorInvalidConfiguration);
    return;
  }
  Put(stream, [=] { Run(grid, block, shared_bytes, kernel); });
}

}  // namespace pawl::cuda::emulator

using namespace pawl::cuda::emulator;  // NOLINT: the functions below belong to it, except for their
                                       // names.

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t) { return "emulated"; }
const char* cudaGetErrorString(cudaError_t error) {
  static thread_local std::string text;
  text = "emulated error " + std::to_string(error);
  return text.c_str();
}

cudaError_t cudaGetDeviceCount(int* count) {
  const Lock lock(mutex);
  cudaError_t error;
  if (Fails("cudaGetDeviceCount", &error)) return error;
  *count = kGpus;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const Lock lock(mutex);
  cudaError_t error;
  if (Fails("cudaDeviceGetAttribute", &error)) return error;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = capability_of_all / 10;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = capability_of_all % 10;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = kProcessors;
      return cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      return cudaSuccess;
    default:
      return Result(cudaErrorInvalidValue);
  }
}

cudaError_t cudaSetDevice(int gpu) {
  if (gpu < 0 || gpu >= kGpus) return Result(cudaErrorInvalidDevice);
  current_gpu = gpu;
  return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  // Encodes the GPU.
  *pool = reinterpret_cast<cudaMemPool_t>(uintptr_t{1} + properties->location.id);
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return cudaSuccess; }

cudaError_t cudaMallocFromPoolAsync(void** data, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  const Lock lock(mutex);
  cudaError_t error;
  if (Fails("cudaMallocFromPoolAsync", &error)) return error;
  const int gpu = static_cast<int>(reinterpret_cast<uintptr_t>(pool) - 1);
  if (gpu != current_gpu || stream->gpu != current_gpu || bytes == 0)
    return Result(cudaErrorInvalidValue);
  if (bytes > kMemoryBytes - std::min(allocated, kMemoryBytes))
    return Result(cudaErrorMemoryAllocation);
  // Exact size, so that a sanitizer detects accesses beyond the end.
  if (posix_memalign(data, kAlignment, bytes) != 0) return Result(cudaErrorMemoryAllocation);
  Fill(*data, bytes);
  device_memory[static_cast<char*>(*data)] = {bytes, gpu};
  allocated += bytes;
  // A graph owns its memory for its lifetime; here the memory of a capture is never released.
  if (stream->capture != nullptr) captured_memory.insert(*data);
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  const Lock lock(mutex);
  if (device_memory.count(static_cast<char*>(data)) == 0) return Result(cudaErrorInvalidValue);
  if (captured_memory.count(data) > 0) {
    const size_t bytes = device_memory[static_cast<char*>(data)].bytes;
    Put(stream, [data, bytes] { Fill(data, bytes); });
    return cudaSuccess;
  }
  Put(stream, [data] {
    const auto at = device_memory.find(static_cast<char*>(data));
    Fill(data, at->second.bytes);
    allocated -= at->second.bytes;
    device_memory.erase(at);
    std::free(data);
  });
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  const Lock lock(mutex);
  cudaError_t error;
  if (Fails("cudaHostAlloc", &error)) return error;
  if (posix_memalign(data, kAlignment, bytes) != 0) return Result(cudaErrorMemoryAllocation);
  Fill(*data, bytes);
  locked_memory[static_cast<char*>(*data)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  const Lock lock(mutex);
  if (locked_memory.erase(static_cast<char*>(data)) == 0) return Result(cudaErrorInvalidValue);
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Lock lock(mutex);
  cudaError_t error;
  if (Fails("cudaStreamCreateWithFlags", &error)) return error;
  *stream = new CUstream_st;
  (*stream)->gpu = current_gpu;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(mutex);
  RunUntil(stream, stream->given);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Lock lock(mutex);
  cudaError_t error;
  if (Fails("cudaStreamBeginCapture", &error)) return error;
  if (stream->capture != nullptr) return Result(cudaErrorIllegalState);
  stream->capture = new CUgraph_st;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(mutex);
  if (stream->capture == nullptr) return Result(cudaErrorIllegalState);
  *graph = std::exchange(stream->capture, nullptr);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  const Lock lock(mutex);
  cudaError_t error;
  if (Fails("cudaGraphInstantiate", &error)) return error;
  *executable = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const Lock lock(mutex);
  cudaError_t error;
  if (Fails("cudaGraphLaunch", &error)) return error;
  for (const std::function<void()>& work : executable->work) Put(stream, work);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const Lock lock(mutex);
  cudaError_t error;
  if (Fails("cudaStreamQuery", &error)) return error;
  if (stream->capture != nullptr) return Result(cudaErrorStreamCaptureUnsupported);
  if (hangs) return Result(cudaErrorNotReady);
  if (stream->done == stream->given) {
    stream->was_asked = false;
    return cudaSuccess;
  }
  if (!std::exchange(stream->was_asked, !stream->was_asked)) return Result(cudaErrorNotReady);
  RunUntil(stream, stream->given);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock(mutex);
  // CUDA could record this if the other stream is captured too; the back end never does that.
  if (stream->capture != nullptr) return Result(cudaErrorStreamCaptureIsolation);
  // The current state: the event may be recorded again before this stream reaches the wait.
  CUstream_st* const before = event->stream;
  const uint64_t place = event->place;
  if (before != nullptr && before != stream) {
    Put(stream, [before, place] { RunUntil(before, place); });
  }
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(mutex);
  if (stream->gpu != current_gpu) return Result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return Result(cudaErrorStreamCaptureUnsupported);
  *event = {stream, stream->given, false};
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock lock(mutex);
  cudaError_t error;
  if (Fails("cudaEventQuery", &error)) return error;
  if (hangs) return Result(cudaErrorNotReady);
  if (!std::exchange(event->was_asked, true)) return Result(cudaErrorNotReady);
  RunUntil(event->stream, event->place);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const Lock lock(mutex);
  cudaError_t error;
  if (Fails("cudaMemcpyAsync", &error)) return error;
  const bool is_upload = kind == cudaMemcpyHostToDevice;
  if (!is_upload && kind != cudaMemcpyDeviceToHost) return Result(cudaErrorInvalidValue);
  const bool is_possible = is_upload ? IsLocked(from, bytes) && IsDevice(to, bytes)
                                     : IsDevice(from, bytes) && IsLocked(to, bytes);
  if (!is_possible || stream->gpu != current_gpu) return Result(cudaErrorInvalidValue);
  if (stream->capture != nullptr) return Result(cudaErrorStreamCaptureUnsupported);
  Put(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  const Lock lock(mutex);
  if (!IsDevice(data, bytes) || stream->gpu != current_gpu) return Result(cudaErrorInvalidValue);
  Put(stream, [=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}

const char* cublasGetStatusString(cublasStatus_t) { return "emulated error of cuBLAS"; }

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  cudaError_t error;
  const Lock lock(mutex);
  if (Fails("cublasCreate", &error)) return CUBLAS_STATUS_ALLOC_FAILED;
  openblas_set_num_threads(1);
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  handle->has_workspace = false;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  const Lock lock(mutex);
  if (!IsDevice(workspace, bytes)) return CUBLAS_STATUS_INVALID_VALUE;
  handle->has_workspace = true;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transpose_a,
                              cublasOperation_t transpose_b, int m, int n, int k,
                              const float* alpha, const float* a, int a_stride, const float* b,
                              int b_stride, const float* beta, float* c, int c_stride) {
  const Lock lock(mutex);
  // As cuBLAS checks them.
  const bool is_possible =
      m >= 0 && n >= 0 && k >= 0 && a_stride >= std::max(1, transpose_a == CUBLAS_OP_N ? m : k) &&
      b_stride >= std::max(1, transpose_b == CUBLAS_OP_N ? k : n) && c_stride >= std::max(1, m);
  if (!is_possible || !handle->has_workspace || handle->stream->gpu != current_gpu)
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto of = [](cublasOperation_t operation) {
    return operation == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
  };
  Put(handle->stream, [=, alpha = *alpha, beta = *beta] {
    cblas_sgemm(CblasColMajor, of(transpose_a), of(transpose_b), m, n, k, alpha, a, a_stride, b,
                b_stride, beta, c, c_stride);
  });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transpose_a,
                            cublasOperation_t transpose_b, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType a_type, int a_stride, const void* b,
                            cudaDataType b_type, int b_stride, const void* beta, void* c,
                            cudaDataType c_type, int c_stride, cublasComputeType_t compute,
                            cublasGemmAlgo_t) {
  const Lock lock(mutex);
  const bool is_possible =
      m >= 0 && n >= 0 && k >= 0 && a_stride >= std::max(1, transpose_a == CUBLAS_OP_N ? m : k) &&
      b_stride >= std::max(1, transpose_b == CUBLAS_OP_N ? k : n) && c_stride >= std::max(1, m);
  // The subset of cuBLAS that is used.
  const bool is_known = (a_type == CUDA_R_16BF || a_type == CUDA_R_16F) && b_type == a_type &&
                        c_type == CUDA_R_32F && compute == CUBLAS_COMPUTE_32F;
  if (!is_possible || !is_known || !handle->has_workspace || handle->stream->gpu != current_gpu) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto of = [](cublasOperation_t operation) {
    return operation == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
  };
  // Column-major. The memory between columns may hold anything.
  const auto floats = [a_type](const void* halves, int stride, int rows, int columns) {
    std::vector<float> values(static_cast<size_t>(rows) * columns);
    for (int column = 0; column < columns; ++column) {
      for (int row = 0; row < rows; ++row) {
        const uint16_t half =
            static_cast<const uint16_t*>(halves)[static_cast<size_t>(column) * stride + row];
        values[static_cast<size_t>(column) * rows + row] =
            a_type == CUDA_R_16BF ? pawl::FloatOfBfloat16(half) : pawl::FloatOfFloat16(half);
      }
    }
    return values;
  };
  Put(handle->stream, [=, alpha = *static_cast<const float*>(alpha),
                       beta = *static_cast<const float*>(beta)] {
    const int a_rows = transpose_a == CUBLAS_OP_N ? m : k,
              b_rows = transpose_b == CUBLAS_OP_N ? k : n;
    const std::vector<float> a_floats = floats(a, a_stride, a_rows, m + k - a_rows);
    const std::vector<float> b_floats = floats(b, b_stride, b_rows, k + n - b_rows);
    cblas_sgemm(CblasColMajor, of(transpose_a), of(transpose_b), m, n, k, alpha, a_floats.data(),
                a_rows, b_floats.data(), b_rows, beta, static_cast<float*>(c), c_stride);
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
