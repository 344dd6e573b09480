// What computes: memory, and operations on it in streams.
//
// A back end is a sibling folder with the same file names (cpu/, cuda/).
// Model code knows this interface alone.
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

// Operations of a stream that it can do again as a whole, at less cost than one by one. The stream
// must outlive it.
class Recording {
 public:
  virtual ~Recording() = default;
};

// A sequence of operations on one device, done in the order of the calls, perhaps
// after the call has returned. An operation that fails makes the next Synchronize
// fail; the ones after it then have no meaning.
//
// Pointers are to device memory unless they are called `host`; they must stay
// valid until Synchronize returns, or Await of a mark behind the operation. Sizes may be 0.
// Outputs overlap no input unless said so. Every operation sums in an order that depends on the
// shapes, on the entries' keys, and on how the operands are aligned, alone, so the same inputs
// give the same bits in every run on a device of the same kind.
//
// Not thread-safe: one thread at a time uses a stream.
class Stream {
 public:
  virtual ~Stream() = default;

  // Waits until all is done. DEADLINE_EXCEEDED after a limit of the back end: the device hangs.
  virtual absl::Status Synchronize() = 0;
  // A mark behind what the stream was given so far; it means nothing after the next Synchronize.
  // Await waits until all before the mark is done; errors as those of Synchronize, which gives them
  // again.
  using Mark = size_t;
  virtual Mark PlaceMark() = 0;
  virtual absl::Status Await(Mark mark) = 0;
  // What is called on this stream from now on is done after what `other` was given so far. Same
  // device.
  virtual void WaitFor(Stream& other) = 0;

  // From here on until EndRecording operations are recorded instead of done: those on the device's
  // memory alone, no copies from or to the host, no marks, no waiting, and none on Entries, whose
  // order is not the recording's. The same operations, of the same shapes, must have been done
  // before: what the back end prepares for the first one cannot be recorded. False: the back end
  // cannot, or it failed, which Synchronize tells.
  virtual bool BeginRecording() { return false; }
  // Null if something failed, which Synchronize tells. REQUIRES: BeginRecording returned true.
  virtual std::unique_ptr<Recording> EndRecording() { return nullptr; }
  // Does what this stream has recorded, with what is in the same memory now.
  virtual void Play(Recording& recording) { static_cast<void>(recording); }

  // Host memory may be read at any time until Synchronize or Await, and is written in these alone,
  // or in the call itself.
  virtual void CopyToDevice(const void* host, size_t bytes, void* to) = 0;
  virtual void CopyToHost(const void* from, size_t bytes, void* host) = 0;
  virtual void Zero(void* data, size_t bytes) = 0;

  // to (+)= from, of the same shape: with Matrix::Columns, concatenation and splitting.
  virtual void Copy(ConstMatrix from, Write write, Matrix to) = 0;

  // c = alpha * op(a) * op(b) + beta * c; with beta == 0, c may hold anything. a and b are not
  // changed by being rounded.
  virtual void Gemm(Factors factors, Transpose transpose_a, Transpose transpose_b, float alpha,
                    ConstMatrix a, ConstMatrix b, float beta, Matrix c) = 0;
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
  // y = 1 / (1 + exp(-x)); x and y may be the same.
  virtual void Sigmoid(size_t count, const float* x, float* y) = 0;
  // x = max(x, 0)
  virtual void Relu(Matrix x) = 0;
  // gradient = 0 where `activation`, the result of Relu, is 0.
  virtual void ReluBackward(ConstMatrix activation, Matrix gradient) = 0;

  // Sums of value * row over entries, in their order. rows: [keys, width];
  // pooled: [samples, fields * width] for kField, [samples, width] for kSample.
  virtual void PoolRows(const Entries& entries, PoolOver over, const float* rows, size_t width,
                        Matrix pooled) = 0;
  // Its derivative: rows_gradient[keys, width] becomes, for each key, the sum of
  // value * pooled_gradient over the entries with that key.
  virtual void PoolRowsBackward(const Entries& entries, PoolOver over, ConstMatrix pooled_gradient,
                                size_t width, float* rows_gradient) = 0;

  // Each row of `vectors` is n = columns / dim vectors v_1 to v_n.
  //
  // outputs[r] += sum over i < j of v_i . v_j, as (|sum v_i|^2 - sum |v_i|^2) / 2
  // (Rendle 2010, lemma 3.1); sums[rows, dim] = sum v_i, for the derivative.
  virtual void SumOfDots(ConstMatrix vectors, size_t dim, Matrix sums, float* outputs) = 0;
  virtual void SumOfDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix sums,
                                 const float* output_gradients, Write write,
                                 Matrix vectors_gradient) = 0;
  // dots[rows, n (n - 1) / 2] = v_i . v_j for i > j: (2,1), (3,1), (3,2), (4,1), ...
  virtual void PairwiseDots(ConstMatrix vectors, size_t dim, Matrix dots) = 0;
  virtual void PairwiseDotsBackward(ConstMatrix vectors, size_t dim, ConstMatrix dot_gradients,
                                    Write write, Matrix vectors_gradient) = 0;

  // Losses: *loss_sum becomes the sum over the samples, the gradients those of
  // the sum, times gradient_scale.
  //
  // log(1 + exp(-z)) for labels > 0, log(1 + exp(z)) for others.
  virtual void LogisticLoss(size_t samples, const float* logits, const float* labels,
                            float gradient_scale, float* gradients, double* loss_sum) = 0;
  // (prediction - label)^2 / 2
  virtual void SquaredLoss(size_t samples, const float* predictions, const float* labels,
                           float gradient_scale, float* gradients, double* loss_sum) = 0;
  // -log(softmax(logits)[label]). REQUIRES: labels are 0, 1, ... logits.columns - 1.
  virtual void SoftmaxLoss(ConstMatrix logits, const float* labels, float gradient_scale,
                           Matrix gradients, double* loss_sum) = 0;

  // *found = 1 if any of the elements is Inf or NaN, otherwise 0.
  virtual void FindNotFinite(size_t count, const float* x, float* found) = 0;
  // rule.Apply, to the bit, for each of the rows as a whole. The rule must stay valid as memory
  // must, the list need not.
  virtual void Update(const UpdateRule& rule, const UpdatePosition& position, float scale,
                      absl::Span<const UpdatedRow> rows, const float* gradients, float* weights,
                      float* slots) = 0;
};

// Thread-safe. Outlives its streams and what was allocated from it.
class Device {
 public:
  virtual ~Device() = default;

  // Aligned to 64 bytes at least. RESOURCE_EXHAUSTED if there is not so much.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* data) = 0;

  // True if host memory is device memory: copies are then not needed, and the
  // results of a call are there when it returns.
  virtual bool SharesHostMemory() const = 0;

  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream() = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_DEVICE_H_
