// The kernels behind a CUDA stream's operations, as plain functions: what nvcc compiles depends on
// nothing else of Pawl.
//
// Each function enqueues kernels and returns; cudaGetLastError says afterwards whether they were
// launched. worker/device/device.h specifies what they compute. Pointers refer to device memory.
// The order of a sum depends only on the shapes, the keys and the alignment of the operands, never
// on the number of processors: no kernel adds by atomics.
#ifndef PAWL_WORKER_DEVICE_CUDA_KERNELS_KERNELS_H_
#define PAWL_WORKER_DEVICE_CUDA_KERNELS_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "server/optimizer/update_formula.h"
#include "worker/device/operands.h"

// As in cuda_runtime_api.h.
using cudaStream_t = struct CUstream_st*;

namespace pawl::cuda {

// Where kernels are enqueued.
struct Queue {
  cudaStream_t stream = nullptr;
  // Streaming multiprocessors of the GPU; determines the number of blocks.
  unsigned processors = 1;
};

// elementwise.cu

void Axpy(const Queue& queue, size_t count, float alpha, const float* x, float* y);
void AddConstant(const Queue& queue, size_t count, float value, float* x);
void Scale(const Queue& queue, size_t count, float alpha, float* x);
void Relu(const Queue& queue, Matrix x);
void ReluBackward(const Queue& queue, ConstMatrix activation, Matrix gradient);

// matrix.cu

void CopyRows(const Queue& queue, ConstMatrix from, Write write, Matrix to);
// x *= factor. With 0, x may hold anything.
void ScaleRows(const Queue& queue, float factor, Matrix x);
// The stride of a 16-bit matrix whose rows are aligned to 16 bytes.
inline size_t HalfStride(size_t columns) { return (columns + 7) / 8 * 8; }
// Writes x as 16-bit numbers to memory for rows * stride of them; does not write the padding.
void RoundRows(const Queue& queue, Factors factors, ConstMatrix x, uint16_t* halves, size_t stride);
void Multiply(const Queue& queue, ConstMatrix a, ConstMatrix b, Write write, Matrix out);
void RowDots(const Queue& queue, ConstMatrix a, ConstMatrix b, Matrix out);
void Softmax(const Queue& queue, ConstMatrix x, Matrix y);
void AddBias(const Queue& queue, const float* bias, Matrix x);
// Floats of scratch memory that SumColumns needs.
size_t SumColumnsScratch(size_t rows, size_t columns);
void SumColumns(const Queue& queue, ConstMatrix x, float* scratch, float* sums);

// embedding.cu

// Limit of samples times fields, and of entries, so that 32 bits count them.
inline constexpr size_t kMaxEntries = size_t{1} << 30;

void PoolRows(const Queue& queue, const Entries& entries, PoolOver over, ConstMatrix rows,
              Matrix pooled);

// The entries of a batch, ordered by key; entries of a key keep their order.
struct EntryOrder {
  const uint32_t* key_begin = nullptr;  // [keys + 1]: each key's range of entries
  const uint32_t* key = nullptr;        // [entries]
  const uint32_t* field = nullptr;      // [entries]: sample * fields + field
  const float* value = nullptr;         // [entries]
};
// entry[e] = e, field[e] = sample * fields + the field of entry e.
void ListEntries(const Queue& queue, const Entries& entries, uint32_t* entry, uint32_t* field);
// Computes the rest of an EntryOrder from ordered_key and ordered_entry of SortByKey.
void IndexOrder(const Queue& queue, const Entries& entries, const uint32_t* field,
                const uint32_t* ordered_key, const uint32_t* ordered_entry, uint32_t* key_begin,
                uint32_t* ordered_field, float* ordered_value);
void MaxOfEntries(const Queue& queue, const Entries& entries, ConstMatrix rows, Matrix largest,
                  uint32_t* chosen);
void MaxOfEntriesBackward(const Queue& queue, const Entries& entries, ConstMatrix largest_gradient,
                          const uint32_t* chosen, Matrix rows_gradient);
// Floats of scratch memory that PoolRowsBackward needs.
size_t PoolRowsBackwardScratch(size_t entries, size_t width);
void PoolRowsBackward(const Queue& queue, const Entries& entries, const EntryOrder& order,
                      PoolOver over, ConstMatrix pooled_gradient, float* scratch,
                      Matrix rows_gradient);

// order.cu

// Bytes of scratch memory that SortByKey needs; 0 on an error of CUDA, which SortByKey then
// returns.
size_t SortByKeyScratch(size_t entries, size_t keys);
// Sorts by key; stable. Returns a cudaError_t, 0 for success. REQUIRES: key[e] < keys
int SortByKey(const Queue& queue, size_t entries, size_t keys, const uint32_t* key,
              const uint32_t* entry, void* scratch, size_t scratch_bytes, uint32_t* ordered_key,
              uint32_t* ordered_entry);

// interaction.cu

void SumOfDots(const Queue& queue, ConstMatrix vectors, size_t dim, Matrix sums, float* outputs);
void SumOfDotsBackward(const Queue& queue, ConstMatrix vectors, size_t dim, ConstMatrix sums,
                       const float* output_gradients, Write write, Matrix vectors_gradient);
void PairwiseDots(const Queue& queue, ConstMatrix vectors, size_t dim, Matrix dots);
void PairwiseDotsBackward(const Queue& queue, ConstMatrix vectors, size_t dim,
                          ConstMatrix dot_gradients, Write write, Matrix vectors_gradient);

// loss.cu

// Doubles of scratch memory that a loss of this many samples needs.
size_t LossScratch(size_t samples);
// weights: null, or a factor for each sample.
void LogisticLoss(const Queue& queue, size_t samples, const float* logits, const float* labels,
                  const float* weights, float gradient_scale, float* gradients, double* scratch,
                  double* loss_sum);
void SquaredLoss(const Queue& queue, size_t samples, const float* predictions, const float* labels,
                 const float* weights, float gradient_scale, float* gradients, double* scratch,
                 double* loss_sum);
void SoftmaxLoss(const Queue& queue, ConstMatrix logits, const float* labels, const float* weights,
                 float gradient_scale, Matrix gradients, double* scratch, double* loss_sum);

// optimizer.cu

// found: set to 1 if an element is not finite, otherwise unchanged.
void FindNotFinite(const Queue& queue, size_t count, const float* x, float* found);
// Floats of scratch memory that Update needs.
size_t UpdateScratch(const UpdateFormula& formula);
void Update(const Queue& queue, const UpdateFormula& formula, const UpdatedRow* rows,
            size_t row_count, const float* gradients, float* scratch, float* weights, float* slots);

}  // namespace pawl::cuda

#endif  // PAWL_WORKER_DEVICE_CUDA_KERNELS_KERNELS_H_
