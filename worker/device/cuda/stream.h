// The operations of a stream on a GPU.
#ifndef PAWL_WORKER_DEVICE_CUDA_STREAM_H_
#define PAWL_WORKER_DEVICE_CUDA_STREAM_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "cublas_v2.h"
#include "cuda_runtime_api.h"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/library.h"
#include "worker/device/cuda/staging.h"
#include "worker/device/device.h"

namespace pawl {

// Calls enqueue work on a CUDA stream and return. Host memory is read in the call, into page-locked
// memory, and written in Await and Synchronize. Copies larger than Staging wait for the stream in
// between.
//
// The first error is kept, and nothing is executed until Synchronize has reported it. An error on
// the GPU itself shows in a later call; the CUDA context is then lost, and all later calls fail
// too. A hanging GPU (DEADLINE_EXCEEDED) is never awaited again, and the stream's memory is leaked.
//
// A recording is a CUDA graph, which owns the scratch memory of its operations.
//
// Bits: kernels sum in the orders that kernels.h specifies. cuBLAS has a handle and a workspace for
// each stream and no atomics, and chooses its algorithm by the shapes and the operands' alignment
// to 16 bytes. PoolRows, and PoolRowsBackward for keys of up to 64 entries, give the CPU's bits.
class CudaStream final : public Stream {
 public:
  struct Options {
    int number = 0;
    int processors = 1;
    // Outlives the stream.
    cudaMemPool_t pool = nullptr;
    CudaMath math = CudaMath::kFloat32;
    MonotonicDuration hang_limit = {};
  };
  // Limit of marks between two calls of Synchronize.
  static constexpr size_t kMaxMarks = 4096;
  // cuBLAS recommends this much for Hopper, less for others.
  static constexpr size_t kGemmWorkspaceBytes = size_t{32} << 20;

  static absl::StatusOr<std::unique_ptr<Stream>> Create(const Options& options);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  // stream.cc
  absl::Status Synchronize() override;
  Mark PlaceMark() override;
  absl::Status Await(Mark mark) override;
  void WaitFor(Stream& other) override;
  bool BeginRecording() override;
  std::unique_ptr<Recording> EndRecording() override;
  void Play(Recording& recording) override;
  void CopyToDevice(const void* host, size_t bytes, void* to) override;
  void CopyToHost(const void* from, size_t bytes, void* host) override;
  void Zero(void* data, size_t bytes) override;

  // matrix.cc
  void Copy(ConstMatrix from, Write write, Matrix to) override;
  void Gemm(Factors factors, Transpose transpose_a, Transpose transpose_b, float alpha,
            ConstMatrix a, ConstMatrix b, float beta, Matrix c) override;
  void AddBias(const float* bias, Matrix x) override;
  void SumColumns(ConstMatrix x, float* sums) override;

  // elementwise.cc
  void Axpy(size_t count, float alpha, const float* x, float* y) override;
  void AddConstant(size_t count, float value, float* x) override;
  void Scale(size_t count, float alpha, float* x) override;
  void Relu(Matrix x) override;
  void ReluBackward(ConstMatrix activation, Matrix gradient) override;
  void Multiply(ConstMatrix a, ConstMatrix b, Write write, Matrix out) override;
  void RowDots(ConstMatrix a, ConstMatrix b, Matrix out) override;
  void Softmax(ConstMatrix x, Matrix y) override;

  // embedding.cc
  void PoolRows(const Entries& entries, PoolOver over, ConstMatrix rows, Matrix pooled) override;
  void PoolRowsBackward(const Entries& entries, PoolOver over, ConstMatrix pooled_gradient,
                        Matrix rows_gradient) override;
  void MaxOfEntries(const Entries& entries, ConstMatrix rows, Matrix largest,
                    uint32_t* chosen) override;
  void MaxOfEntriesBackward(const Entries& entries, ConstMatrix largest_gradient,
                            const uint32_t* chosen, Matrix rows_gradient) override;

  // interaction.cc
  void SumOfDots(ConstMatrix vectors, size_t dim, Matrix sums, float* outputs) override;
  void SumOfDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix sums,
                         const float* output_gradients, Write write,
                         Matrix vectors_gradient) override;
  void PairwiseDots(ConstMatrix vectors, size_t dim, Matrix dots) override;
  void PairwiseDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix dot_gradients, Write write,
                            Matrix vectors_gradient) override;

  // loss.cc
  void LogisticLoss(size_t samples, const float* logits, const float* labels, const float* weights,
                    float gradient_scale, float* gradients, double* loss_sum) override;
  void SquaredLoss(size_t samples, const float* predictions, const float* labels,
                   const float* weights, float gradient_scale, float* gradients,
                   double* loss_sum) override;
  void SoftmaxLoss(ConstMatrix logits, const float* labels, const float* weights,
                   float gradient_scale, Matrix gradients, double* loss_sum) override;

  // optimizer.cc
  void FindNotFinite(size_t count, const float* x, float* found) override;
  void Update(const UpdateRule& rule, const UpdatePosition& position, float scale,
              absl::Span<const UpdatedRow> rows, const float* gradients, float* weights,
              float* slots) override;

 private:
  // Data copied from the GPU, and its destination.
  struct Download {
    const char* from;
    char* host;
    size_t bytes;
  };
  struct MarkRecord {
    cudaEvent_t event = nullptr;
    // Number of downloads before it since the last Synchronize.
    uint64_t downloads = 0;
  };
  // Memory for one operation, allocated and freed in stream order.
  class Scratch {
   public:
    Scratch(CudaStream& stream, size_t bytes);
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    void* data() const { return data_; }
    // False if the allocation failed; the stream then has the error. An empty one always succeeds.
    bool ok() const { return ok_; }

   private:
    CudaStream& stream_;
    void* data_ = nullptr;
    bool ok_ = true;
  };

  explicit CudaStream(const Options& options) : options_(options) {}
  absl::Status Initialize();
  absl::Status InitializeGemm();
  // Gemm for 16-bit factors and matrices that are not empty. `inner`: the number of products summed
  // for each element of c.
  void GemmOf16Bits(Factors factors, Transpose transpose_a, Transpose transpose_b, float alpha,
                    ConstMatrix a, ConstMatrix b, float beta, Matrix c, size_t inner);

  // Called before an operation: returns whether to execute it. Errors name `operation`.
  bool Begin(const char* operation);
  // Keep the first error. True without one.
  bool Check(cudaError_t error);
  bool Check(cublasStatus_t error);
  bool Check(absl::Status status);
  // Called after kernel launches.
  void Launched() { Check(cudaGetLastError()); }
  void Fail(absl::Status status);
  std::string Where() const;
  absl::Status AwaitQuery(const std::function<cudaError_t()>& query);
  // Waits until everything is done and copied, so that Staging is empty. False on an error.
  bool Drain();
  // Copies the downloads up to number `until` to their destinations.
  void Deliver(uint64_t until);
  Staging::Piece TakePiece(size_t bytes);

  // Orders the batch's entries by key. Ordered once for all tables of a batch, until a copy may
  // have changed the entries; no kernel changes them.
  bool OrderEntries(const Entries& entries, cuda::EntryOrder* order);

  cuda::Queue queue() const { return {stream_, static_cast<unsigned>(options_.processors)}; }

  const Options options_;
  // Constant after Create.
  cudaStream_t stream_ = nullptr;
  // Reused: a waiting stream waits for the state recorded at the time of its call.
  cudaEvent_t order_event_ = nullptr;

  absl::Status status_;
  bool hangs_ = false;
  bool records_ = false;
  const char* operation_ = "nothing";

  Staging staging_;
  // Downloads that are not delivered yet; the first one has number delivered_.
  std::deque<Download> downloads_;
  uint64_t delivered_ = 0;
  // The first marks_ of them are placed.
  std::vector<MarkRecord> mark_records_;
  size_t marks_ = 0;

  // Null before the first Gemm.
  cublasHandle_t gemm_ = nullptr;
  void* gemm_workspace_ = nullptr;

  Entries ordered_;
  bool is_ordered_ = false;
  cuda::EntryOrder order_;
  char* order_memory_ = nullptr;
  size_t order_bytes_ = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CUDA_STREAM_H_
