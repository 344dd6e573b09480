// The operations of a CPU stream that are loops over rows and vectors, compiled for different
// processors.
//
// All variants give the same bits. Vectors run across independent elements, products and sums are
// rounded separately, and a sum across the elements of a vector is kept in 16 lanes, whatever the
// processor's vectors hold: lane l takes the elements whose index is l modulo 16, in ascending
// order, and the lanes are added as in
//
//   for half = 8, 4, 2, 1:  lane[l] += lane[l + half] for l < half
#ifndef PAWL_WORKER_DEVICE_CPU_LOOPS_LOOPS_H_
#define PAWL_WORKER_DEVICE_CPU_LOOPS_LOOPS_H_

#include <cstddef>

#include "worker/device/operands.h"

namespace pawl {

// The operations of worker/device/device.h with the same names.
struct CpuLoops {
  void (*pool_rows)(const Entries& entries, PoolOver over, const ConstMatrix& rows,
                    const Matrix& pooled);
  void (*pool_rows_backward)(const Entries& entries, PoolOver over,
                             const ConstMatrix& pooled_gradient, const Matrix& rows_gradient);
  void (*sum_of_dots)(const ConstMatrix& vectors, size_t dim, const Matrix& sums, float* outputs);
  void (*sum_of_dots_backward)(const ConstMatrix& vectors, size_t dim, const ConstMatrix& sums,
                               const float* output_gradients, Write write,
                               const Matrix& vectors_gradient);
  void (*pairwise_dots)(const ConstMatrix& vectors, size_t dim, const Matrix& dots);
  void (*pairwise_dots_backward)(const ConstMatrix& vectors, size_t dim,
                                 const ConstMatrix& dot_gradients, Write write,
                                 const Matrix& vectors_gradient);
  void (*sum_columns)(const ConstMatrix& x, float* sums);
  void (*relu_backward_and_sum)(const ConstMatrix& activation, const Matrix& gradient, float* sums);
  // Bit-identical to server/optimizer/math/deterministic_math.h. Adds the losses in sample order.
  void (*logistic_loss)(size_t samples, const float* logits, const float* labels,
                        float gradient_scale, float* gradients, double* loss_sum);
};

// Compiled for instructions that a processor may lack: call only on processors that have them.
extern const CpuLoops kAvx512Loops;
extern const CpuLoops kAvx2Loops;
extern const CpuLoops kPortableLoops;

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CPU_LOOPS_LOOPS_H_
