// Prepares a row's gradient for the optimizer: scales, clips and regularizes it, and sums its
// squares.
#ifndef PAWL_SERVER_OPTIMIZER_GRADIENT_PASS_H_
#define PAWL_SERVER_OPTIMIZER_GRADIENT_PASS_H_

#include <cstddef>
#include <cstring>

#include "server/optimizer/math/isa.h"
#include "server/optimizer/update_formula.h"

namespace pawl {

// Four floats or doubles as vector types of the compiler. The sums need them, because no compiler
// may change the order of a sum in order to vectorise it.
typedef float Floats __attribute__((vector_size(16)));
typedef double Doubles __attribute__((vector_size(32)));

// The functions up to SumOfSquares process one element (T = float) or four (T = Floats), from i on.

template <typename T>
PAWL_ALWAYS_INLINE T ElementsAt(const void* floats, size_t i) {
  T elements;
  std::memcpy(&elements, static_cast<const char*>(floats) + i * sizeof(float), sizeof elements);
  return elements;
}

// The gradient as the optimizer sees it. `weights` starts at the same element as the gradient.
template <GradientMode kMode, typename T>
PAWL_ALWAYS_INLINE T PreparedAt(const GradientPass& pass, const char* gradient, size_t i,
                                const float* weights) {
  T weight = {};
  if constexpr (kMode == GradientMode::kRegularized) weight = ElementsAt<T>(weights, i);
  return Prepared<kMode, T>(pass, ElementsAt<T>(gradient, i), weight);
}

template <GradientMode kMode, bool kPrepared, typename T>
PAWL_ALWAYS_INLINE T Summand(const GradientPass& pass, const char* gradient, size_t i,
                             const float* weights) {
  if constexpr (kPrepared) {
    return PreparedAt<kMode, T>(pass, gradient, i, weights);
  } else {
    return Clipped<kMode, T>(pass, ElementsAt<T>(gradient, i));
  }
}

// Row sums use 16 lanes whatever the vector width, so that all widths give the same bits.
inline constexpr size_t kSumLanes = 16;

// The sum of the squares of `count` elements. Lane j sums elements j, j + 16, ... in double, where
// the squares are exact; then lane j adds lanes j + 8, j + 4, j + 2 and j + 1 in turn. The elements
// are those of Prepared if kPrepared, otherwise those of Clipped.
template <GradientMode kMode, bool kPrepared>
PAWL_ALWAYS_INLINE double SumOfSquares(const GradientPass& pass, const char* gradient, size_t count,
                                       const float* weights) {
  Doubles sums[kSumLanes / 4] = {};
  size_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    for (size_t part = 0; part < kSumLanes / 4; ++part) {
      const Floats g = Summand<kMode, kPrepared, Floats>(pass, gradient, i + 4 * part, weights);
      const Doubles x = __builtin_convertvector(g, Doubles);
      sums[part] += x * x;
    }
  }
  // The last elements go to the first lanes.
  for (size_t part = 0; part < kSumLanes / 4; ++part) {
    if (i + 4 <= count) {
      const Floats g = Summand<kMode, kPrepared, Floats>(pass, gradient, i, weights);
      const Doubles x = __builtin_convertvector(g, Doubles);
      sums[part] += x * x;
      i += 4;
    } else {
      for (size_t lane = 0; i < count; ++lane, ++i) {
        const double x = Summand<kMode, kPrepared, float>(pass, gradient, i, weights);
        sums[part][lane] += x * x;
      }
    }
  }
  const Doubles four = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_GRADIENT_PASS_H_
