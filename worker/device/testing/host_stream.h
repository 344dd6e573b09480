// For tests: operations of any device on host memory.
#ifndef PAWL_WORKER_DEVICE_TESTING_HOST_STREAM_H_
#define PAWL_WORKER_DEVICE_TESTING_HOST_STREAM_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker/device/device.h"

namespace pawl {

// Copies an operation's operands to the device, executes it there, waits, and copies possibly
// changed operands back. On the device they have the same alignment as on the host, up to 64 bytes,
// and lie between guards: writing beyond an operand is an error. Not thread-safe.
class HostStream final : public Stream {
 public:
  // `device` must outlive it.
  static absl::StatusOr<std::unique_ptr<HostStream>> Create(Device& device);
  ~HostStream() override;

  // The first error.
  const absl::Status& status() const { return status_; }

  absl::Status Synchronize() override { return status_; }
  Mark PlaceMark() override { return 0; }
  absl::Status Await(Mark) override { return status_; }
  void WaitFor(Stream&) override {}
  void CopyToDevice(const void* host, size_t bytes, void* to) override;
  void CopyToHost(const void* from, size_t bytes, void* host) override;
  void Zero(void* data, size_t bytes) override;
  void Copy(ConstMatrix from, Write write, Matrix to) override;
  void Gemm(Factors factors, Transpose transpose_a, Transpose transpose_b, float alpha,
            ConstMatrix a, ConstMatrix b, float beta, Matrix c) override;
  void Layer(Factors factors, ConstMatrix input, ConstMatrix weight, const float* bias,
             Activation activation, float beta, Matrix result) override;
  void AddBias(const float* bias, Matrix x) override;
  void SumColumns(ConstMatrix x, float* sums) override;
  void Axpy(size_t count, float alpha, const float* x, float* y) override;
  void AddConstant(size_t count, float value, float* x) override;
  void Scale(size_t count, float alpha, float* x) override;
  void Relu(Matrix x) override;
  void ReluBackward(ConstMatrix activation, Matrix gradient) override;
  void ReluBackwardAndSum(ConstMatrix activation, Matrix gradient, float* sums) override;
  void Multiply(ConstMatrix a, ConstMatrix b, Write write, Matrix out) override;
  void RowDots(ConstMatrix a, ConstMatrix b, Matrix out) override;
  void Softmax(ConstMatrix x, Matrix y) override;
  void PoolRows(const Entries& entries, PoolOver over, ConstMatrix rows, Matrix pooled) override;
  void PoolRowsBackward(const Entries& entries, PoolOver over, ConstMatrix pooled_gradient,
                        Matrix rows_gradient) override;
  void MaxOfEntries(const Entries& entries, ConstMatrix rows, Matrix largest,
                    uint32_t* chosen) override;
  void MaxOfEntriesBackward(const Entries& entries, ConstMatrix largest_gradient,
                            const uint32_t* chosen, Matrix rows_gradient) override;
  void SumOfDots(ConstMatrix vectors, size_t dim, Matrix sums, float* outputs) override;
  void SumOfDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix sums,
                         const float* output_gradients, Write write,
                         Matrix vectors_gradient) override;
  void PairwiseDots(ConstMatrix vectors, size_t dim, Matrix dots) override;
  void PairwiseDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix dot_gradients, Write write,
                            Matrix vectors_gradient) override;
  void LogisticLoss(size_t samples, const float* logits, const float* labels, const float* weights,
                    float gradient_scale, float* gradients, double* loss_sum) override;
  void SquaredLoss(size_t samples, const float* predictions, const float* labels,
                   const float* weights, float gradient_scale, float* gradients,
                   double* loss_sum) override;
  void SoftmaxLoss(ConstMatrix logits, const float* labels, const float* weights,
                   float gradient_scale, Matrix gradients, double* loss_sum) override;
  void FindNotFinite(size_t count, const float* x, float* found) override;
  void Update(const UpdateRule& rule, const UpdatePosition& position, float scale,
              absl::Span<const UpdatedRow> rows, const float* gradients, float* weights,
              float* slots) override;

 private:
  struct Operand {
    const char* host;
    char* memory;
    // Offset from `memory`.
    size_t begin;
    size_t bytes;
    bool is_output;
  };

  HostStream(Device& device, std::unique_ptr<Stream> stream)
      : device_(device), stream_(std::move(stream)) {}

  // The operand's address on the device. An operand that occurs twice is placed once.
  template <typename T>
  const T* In(const T* host, size_t count) {
    return reinterpret_cast<const T*>(Place(host, count * sizeof(T), false));
  }
  template <typename T>
  T* Out(T* host, size_t count) {
    return reinterpret_cast<T*>(Place(host, count * sizeof(T), true));
  }
  ConstMatrix In(ConstMatrix x) { return {In(x.data, Extent(x)), x.rows, x.columns, x.stride}; }
  Matrix Out(Matrix x) { return {Out(x.data, Extent(x)), x.rows, x.columns, x.stride}; }
  Entries In(const Entries& entries);
  static size_t Extent(ConstMatrix x) {
    return x.rows == 0 || x.columns == 0 ? 0 : (x.rows - 1) * x.stride + x.columns;
  }

  char* Place(const void* host, size_t bytes, bool is_output);
  // Called after each operation.
  void Finish();
  void Fail(absl::Status status);

  Device& device_;
  const std::unique_ptr<Stream> stream_;
  std::vector<Operand> operands_;
  // The contents of the guards and inputs, for comparison.
  std::vector<std::vector<char>> written_;
  absl::Status status_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_TESTING_HOST_STREAM_H_
