// The panel product for one kind of vector. Each source that includes this file is compiled for
// other instructions; it may call no function that other sources define inline.
#ifndef PAWL_WORKER_DEVICE_CPU_GEMM_PANEL_KERNEL_IMPL_H_
#define PAWL_WORKER_DEVICE_CPU_GEMM_PANEL_KERNEL_IMPL_H_

#include <cstddef>

#include "worker/device/cpu/gemm/panel_kernel.h"

namespace pawl {
namespace {

// Vec has:  Type, Mask; kFloats; Zero, Set, Load, LoadPart, Store, StorePart, Multiply,
// Fma (x * y + z, rounded once), Add, Relu (0 if x is below 0, otherwise x, also NaN), First(n)
// (the mask of the first n elements).
//
// kRows rows times kVectors vectors of columns. The last vector may be partial.
template <typename Vec, int kRows, int kVectors>
inline __attribute__((always_inline)) void MultiplyTile(const PanelProduct& p, size_t row,
                                                        typename Vec::Mask last) {
  const float* a = p.a + row * p.a_row_step;
  float* c = p.c + row * p.c_stride;
  typename Vec::Type sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      if (p.beta == 0) {
        sums[r][v] = Vec::Zero();
        continue;
      }
      const float* from = c + r * p.c_stride + v * Vec::kFloats;
      sums[r][v] = v + 1 < kVectors ? Vec::Load(from) : Vec::LoadPart(last, from);
      if (p.beta != 1) sums[r][v] = Vec::Multiply(Vec::Set(p.beta), sums[r][v]);
    }
  }
  const float* b = p.b;
  for (size_t k = 0; k < p.inner; ++k, b += p.b_stride, a += p.a_inner_step) {
    typename Vec::Type row_of_b[kVectors];
    for (int v = 0; v < kVectors; ++v) row_of_b[v] = Vec::Load(b + v * Vec::kFloats);
    for (int r = 0; r < kRows; ++r) {
      const typename Vec::Type factor = Vec::Set(a[r * p.a_row_step]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Vec::Fma(factor, row_of_b[v], sums[r][v]);
    }
  }
  if (p.bias != nullptr) {
    for (int v = 0; v < kVectors; ++v) {
      const float* from = p.bias + v * Vec::kFloats;
      const typename Vec::Type bias =
          v + 1 < kVectors ? Vec::Load(from) : Vec::LoadPart(last, from);
      for (int r = 0; r < kRows; ++r) sums[r][v] = Vec::Add(sums[r][v], bias);
    }
  }
  if (p.has_relu) {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Vec::Relu(sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      float* to = c + r * p.c_stride + v * Vec::kFloats;
      if (v + 1 < kVectors) {
        Vec::Store(to, sums[r][v]);
      } else {
        Vec::StorePart(last, to, sums[r][v]);
      }
    }
  }
}

template <typename Vec, int kRows, int kVectors>
void MultiplyRows(const PanelProduct& p) {
  const typename Vec::Mask last = Vec::First(p.columns - (kVectors - 1) * Vec::kFloats);
  size_t row = 0;
  for (; row + kRows <= p.rows; row += kRows) MultiplyTile<Vec, kRows, kVectors>(p, row, last);
  for (; row + 4 <= p.rows; row += 4) MultiplyTile<Vec, 4, kVectors>(p, row, last);
  for (; row < p.rows; ++row) MultiplyTile<Vec, 1, kVectors>(p, row, last);
}

}  // namespace
}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CPU_GEMM_PANEL_KERNEL_IMPL_H_
