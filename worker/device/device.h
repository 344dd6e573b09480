// A compute device: memory, and streams of operations on it.
//
// A back end is a subfolder with the same file names (cpu/, cuda/). Model code uses only this
// interface.
#ifndef PAWL_WORKER_DEVICE_DEVICE_H_
#define PAWL_WORKER_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/optimizer/update_rule.h"
#include "worker/device/operands.h"

namespace pawl {

// Recorded operations of a stream, which it can replay as a whole at less cost. The stream must
// outlive it.
class Recording {
 public:
  virtual ~Recording() = default;
};

// A sequence of operations on one device, executed in the order of the calls, possibly after the
// call has returned. An operation that fails makes the next Synchronize fail; the results of later
// operations are then undefined.
//
// Pointers refer to device memory unless they are called `host`. They must stay valid until
// Synchronize returns, or Await of a mark behind the operation. Sizes may be 0. Outputs overlap no
// input unless stated. The order of every sum depends only on the shapes, the entries' keys and the
// alignment of the operands, so the same inputs give the same bits in every run on a device of the
// same kind.
//
// Not thread-safe: one thread at a time uses a stream.
class Stream {
 public:
  virtual ~Stream() = default;

  // Waits until all operations are done. DEADLINE_EXCEEDED after a limit of the back end, if the
  // device hangs.
  virtual absl::Status Synchronize() = 0;
  // PlaceMark places a mark behind all earlier operations; it is valid until the next Synchronize.
  // Await waits until all operations before the mark are done. It has the errors of Synchronize,
  // which reports them again.
  using Mark = size_t;
  virtual Mark PlaceMark() = 0;
  virtual absl::Status Await(Mark mark) = 0;
  // Later operations of this stream run after all operations that `other` has so far. Both must be
  // on the same device.
  virtual void WaitFor(Stream& other) = 0;

  // Until EndRecording, operations are recorded instead of executed. Allowed are only operations on
  // device memory: no copies from or to the host, marks or waits, and none on Entries, whose order
  // is not part of the recording. The same operations with the same shapes must have run before,
  // because the back end cannot record what it prepares for the first one. Returns false if the
  // back end does not support this, or on an error, which Synchronize reports.
  virtual bool BeginRecording() { return false; }
  // Null after an error, which Synchronize reports. REQUIRES: BeginRecording returned true.
  virtual std::unique_ptr<Recording> EndRecording() { return nullptr; }
  // Replays what this stream has recorded, with the current contents of its memory.
  virtual void Play(Recording& recording) { static_cast<void>(recording); }

  // Host memory may be read at any time until Synchronize or Await. It is written only in these
  // two, or in the call itself.
  virtual void CopyToDevice(const void* host, size_t bytes, void* to) = 0;
  virtual void CopyToHost(const void* from, size_t bytes, void* host) = 0;
  virtual void Zero(void* data, size_t bytes) = 0;

  // to (+)= from, of the same shape. With Matrix::Columns this concatenates and splits.
  virtual void Copy(ConstMatrix from, Write write, Matrix to) = 0;

  // c = alpha * op(a) * op(b) + beta * c. With beta == 0, c may hold anything. Rounding does not
  // change a and b.
  virtual void Gemm(Factors factors, Transpose transpose_a, Transpose transpose_b, float alpha,
                    ConstMatrix a, ConstMatrix b, float beta, Matrix c) = 0;
  // result = activation(input * weight + beta * result + bias) with the roundings of Gemm, AddBias
  // and Relu: one layer of an MLP.
  virtual void Layer(Factors factors, ConstMatrix input, ConstMatrix weight, const float* bias,
                     Activation activation, float beta, Matrix result) {
    Gemm(factors, Transpose::kNo, Transpose::kNo, 1, input, weight, beta, result);
    AddBias(bias, result);
    if (activation == Activation::kRelu) Relu(result);
  }
  // From here on products may have bits that depend on the processor, if that is faster.
  virtual void UseFastProducts() {}
  // Adds bias[columns] to every row.
  virtual void AddBias(const float* bias, Matrix x) = 0;
  // sums[c] = the sum of column c.
  virtual void SumColumns(ConstMatrix x, float* sums) = 0;

  // y += alpha * x
  virtual void Axpy(size_t count, float alpha, const float* x, float* y) = 0;
  // x += value
  virtual void AddConstant(size_t count, float value, float* x) = 0;
  // x *= alpha
  virtual void Scale(size_t count, float alpha, float* x) = 0;
  // x = max(x, 0)
  virtual void Relu(Matrix x) = 0;
  // gradient = 0 where `activation`, the result of Relu, is 0.
  virtual void ReluBackward(ConstMatrix activation, Matrix gradient) = 0;
  // ReluBackward, then SumColumns of the gradient.
  virtual void ReluBackwardAndSum(ConstMatrix activation, Matrix gradient, float* sums) {
    ReluBackward(activation, gradient);
    SumColumns(gradient, sums);
  }

  // out (+)= a * b, element by element. If b has one column, it is that factor of each row.
  virtual void Multiply(ConstMatrix a, ConstMatrix b, Write write, Matrix out) = 0;
  // out[r, 0] = the sum over c of a[r, c] * b[r, c]
  virtual void RowDots(ConstMatrix a, ConstMatrix b, Matrix out) = 0;
  // y[r, c] = exp(x[r, c]) / the sum over d of exp(x[r, d]); x and y may be the same.
  virtual void Softmax(ConstMatrix x, Matrix y) = 0;

  // Sums of value * row over entries, in their order. rows: [keys, width]. pooled: [samples, fields
  // * width] for kField, [samples, width] for kSample.
  virtual void PoolRows(const Entries& entries, PoolOver over, ConstMatrix rows, Matrix pooled) = 0;
  // The derivative of PoolRows: rows_gradient[keys, width] becomes, for each key, the sum of value
  // * pooled_gradient over the entries with that key.
  virtual void PoolRowsBackward(const Entries& entries, PoolOver over, ConstMatrix pooled_gradient,
                                Matrix rows_gradient) = 0;

  // largest[samples, fields * width]: the largest elements of the rows of a field's entries; 0 for
  // a field without entries. rows: [entries, width], one for each entry. chosen, as many as in
  // `largest`: the first entry that has the element, or kNoEntry.
  static constexpr uint32_t kNoEntry = ~uint32_t{0};
  virtual void MaxOfEntries(const Entries& entries, ConstMatrix rows, Matrix largest,
                            uint32_t* chosen) = 0;
  // The derivative: rows_gradient[entries, width].
  virtual void MaxOfEntriesBackward(const Entries& entries, ConstMatrix largest_gradient,
                                    const uint32_t* chosen, Matrix rows_gradient) = 0;

  // Each row of `vectors` consists of n = columns / dim vectors v_1 to v_n.
  //
  // outputs[r] += sum over i < j of v_i . v_j, computed as (|sum v_i|^2 - sum |v_i|^2) / 2 (Rendle
  // 2010, lemma 3.1). sums[rows, dim] = sum v_i, for the derivative.
  virtual void SumOfDots(ConstMatrix vectors, size_t dim, Matrix sums, float* outputs) = 0;
  virtual void SumOfDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix sums,
                                 const float* output_gradients, Write write,
                                 Matrix vectors_gradient) = 0;
  // dots[rows, n (n - 1) / 2] = v_i . v_j for i > j: (2,1), (3,1), (3,2), (4,1), ...
  virtual void PairwiseDots(ConstMatrix vectors, size_t dim, Matrix dots) = 0;
  virtual void PairwiseDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix dot_gradients,
                                    Write write, Matrix vectors_gradient) = 0;

  // Losses: *loss_sum becomes the sum over the samples, and the gradients those of the sum, times
  // gradient_scale. weights[samples]: factors of the samples' losses; null: all are 1.
  //
  // log(1 + exp(-z)) for labels > 0, log(1 + exp(z)) for others.
  virtual void LogisticLoss(size_t samples, const float* logits, const float* labels,
                            const float* weights, float gradient_scale, float* gradients,
                            double* loss_sum) = 0;
  // (prediction - label)^2 / 2
  virtual void SquaredLoss(size_t samples, const float* predictions, const float* labels,
                           const float* weights, float gradient_scale, float* gradients,
                           double* loss_sum) = 0;
  // -log(softmax(logits)[label]). REQUIRES: labels are 0, 1, ... logits.columns - 1.
  virtual void SoftmaxLoss(ConstMatrix logits, const float* labels, const float* weights,
                           float gradient_scale, Matrix gradients, double* loss_sum) = 0;

  // *found = 1 if any of the elements is Inf or NaN, otherwise 0.
  virtual void FindNotFinite(size_t count, const float* x, float* found) = 0;
  // Applies rule.Apply to each of the rows as a whole, with the same bits. The rule must stay valid
  // as long as memory must; the list need not.
  virtual void Update(const UpdateRule& rule, const UpdatePosition& position, float scale,
                      absl::Span<const UpdatedRow> rows, const float* gradients, float* weights,
                      float* slots) = 0;
};

// Thread-safe. Outlives its streams and its allocations.
class Device {
 public:
  virtual ~Device() = default;

  // Aligned to at least 64 bytes. RESOURCE_EXHAUSTED without enough memory.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* data) = 0;

  // Whether host memory is device memory: then copies are unnecessary, and the results of a call
  // are available when it returns.
  virtual bool SharesHostMemory() const = 0;

  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream() = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_DEVICE_H_
