// The operations of a stream as loops in the calling thread.
#ifndef PAWL_WORKER_DEVICE_CPU_STREAM_H_
#define PAWL_WORKER_DEVICE_CPU_STREAM_H_

#include <vector>

#include "worker/device/cpu/gemm/gemm.h"
#include "worker/device/cpu/loops/loops.h"
#include "worker/device/device.h"

namespace pawl {

// Every operation is complete when its call returns, and none fails. Has no state but scratch
// memory.
class CpuStream final : public Stream {
 public:
  // Products and loops use the best instructions of this processor, or those of `kernel`. REQUIRES:
  // the processor has them.
  CpuStream() : CpuStream(SupportedGemmKernels().back()) {}
  explicit CpuStream(GemmKernel kernel);

  // stream.cc
  absl::Status Synchronize() override;
  Mark PlaceMark() override { return 0; }
  absl::Status Await(Mark mark) override;
  void WaitFor(Stream& other) override;
  void CopyToDevice(const void* host, size_t bytes, void* to) override;
  void CopyToHost(const void* from, size_t bytes, void* host) override;
  void Zero(void* data, size_t bytes) override;

  // matrix.cc
  void Copy(ConstMatrix from, Write write, Matrix to) override;
  void Gemm(Factors factors, Transpose transpose_a, Transpose transpose_b, float alpha,
            ConstMatrix a, ConstMatrix b, float beta, Matrix c) override;
  void Layer(Factors factors, ConstMatrix input, ConstMatrix weight, const float* bias,
             Activation activation, float beta, Matrix result) override;
  void UseFastProducts() override { fast_products_ = true; }
  void AddBias(const float* bias, Matrix x) override;
  void SumColumns(ConstMatrix x, float* sums) override;

  // elementwise.cc
  void Axpy(size_t count, float alpha, const float* x, float* y) override;
  void AddConstant(size_t count, float value, float* x) override;
  void Scale(size_t count, float alpha, float* x) override;
  void Relu(Matrix x) override;
  void ReluBackward(ConstMatrix activation, Matrix gradient) override;
  void ReluBackwardAndSum(ConstMatrix activation, Matrix gradient, float* sums) override;
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
  // Rounds the factors as asked for, in memory of this stream.
  void RoundFactors(Factors factors, ConstMatrix& a, ConstMatrix& b);

  const CpuLoops& loops_;
  pawl::Gemm gemm_;
  bool fast_products_ = false;
  // The rounded factors of 16-bit products; as large as the largest so far.
  std::vector<float> rounded_a_;
  std::vector<float> rounded_b_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CPU_STREAM_H_
