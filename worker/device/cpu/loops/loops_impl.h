// The loops for any processor, in vectors of up to 16 floats, which the compiler splits into those
// of its target. Each source that includes this file is compiled for different instructions. The
// loops must not call inline functions that other sources define too: the linker keeps one copy of
// each, perhaps with instructions that the processor lacks.
#ifndef PAWL_WORKER_DEVICE_CPU_LOOPS_LOOPS_IMPL_H_
#define PAWL_WORKER_DEVICE_CPU_LOOPS_LOOPS_IMPL_H_

#include <cstddef>
#include <cstdint>

#include "worker/device/cpu/loops/loops.h"

#define PAWL_INLINE inline __attribute__((always_inline))

namespace pawl {
namespace {

constexpr size_t kLanes = 16;

// kCount floats: the type of values and that of memory, which may have any alignment.
template <size_t kCount>
struct Floats;
template <>
struct Floats<16> {
  typedef float Type __attribute__((vector_size(64)));
  typedef float Memory __attribute__((vector_size(64), aligned(4), may_alias));
};
template <>
struct Floats<8> {
  typedef float Type __attribute__((vector_size(32)));
  typedef float Memory __attribute__((vector_size(32), aligned(4), may_alias));
};
template <>
struct Floats<4> {
  typedef float Type __attribute__((vector_size(16)));
  typedef float Memory __attribute__((vector_size(16), aligned(4), may_alias));
};
template <>
struct Floats<1> {
  using Type = float;
  using Memory = float;
};

// A group of kCount elements that are computed together.
template <size_t kCount>
struct Group {
  using Type = typename Floats<kCount>::Type;
  static PAWL_INLINE Type Load(const float* from) {
    return *reinterpret_cast<const typename Floats<kCount>::Memory*>(from);
  }
  static PAWL_INLINE void Store(float* to, Type x) {
    *reinterpret_cast<typename Floats<kCount>::Memory*>(to) = x;
  }
};

// Calls visit(group, index of the first element) for groups that cover `count` elements in order.
// No group crosses a multiple of 16.
template <typename Visit>
PAWL_INLINE void ForEachGroup(size_t count, Visit visit) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) visit(Group<16>(), i);
  if (i + 8 <= count) {
    visit(Group<8>(), i);
    i += 8;
  }
  if (i + 4 <= count) {
    visit(Group<4>(), i);
    i += 4;
  }
  for (; i < count; ++i) visit(Group<1>(), i);
}

PAWL_INLINE float AddLanes(float* lanes) {
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

PAWL_INLINE void Zero(float* to, size_t count) {
  ForEachGroup(
      count, [=](auto group, size_t i) { group.Store(to + i, typename decltype(group)::Type{}); });
}

// Calls visit(sample, group of fields, first entry, end) for each sum, in order.
template <typename Visit>
PAWL_INLINE void ForEachSum(const Entries& entries, PoolOver over, Visit visit) {
  const size_t groups = over == PoolOver::kField ? entries.fields : 1;
  const size_t fields_in_group = over == PoolOver::kField ? 1 : entries.fields;
  const uint32_t* begin = entries.field_begin;
  for (size_t s = 0; s < entries.samples; ++s) {
    for (size_t g = 0; g < groups; ++g) {
      visit(s, g, begin[0], begin[fields_in_group]);
      begin += fields_in_group;
    }
  }
}

// The common widths are constants, so that the compiler unrolls their loops. 0: any width.
template <size_t kWidth>
void PoolWidth(const Entries& entries, PoolOver over, const ConstMatrix& rows,
               const Matrix& pooled) {
  const size_t width = kWidth > 0 ? kWidth : rows.columns;
  const uint32_t* const keys = entries.entry_key;
  const float* const values = entries.entry_value;
  const size_t row_stride = rows.stride, pooled_stride = pooled.stride;
  const float* const from = rows.data;
  float* const to = pooled.data;
  ForEachSum(entries, over, [=](size_t s, size_t g, uint32_t begin, uint32_t end) {
    float* const sum = to + s * pooled_stride + g * width;
    if (begin == end) return Zero(sum, width);
    ForEachGroup(width, [=](auto group, size_t i) {
      auto total = values[begin] * group.Load(from + keys[begin] * row_stride + i);
      for (uint32_t e = begin + 1; e < end; ++e)
        total += values[e] * group.Load(from + keys[e] * row_stride + i);
      group.Store(sum + i, total);
    });
  });
}

void PoolRows(const Entries& entries, PoolOver over, const ConstMatrix& rows,
              const Matrix& pooled) {
  switch (rows.columns) {
    case 1:
      return PoolWidth<1>(entries, over, rows, pooled);
    case 8:
      return PoolWidth<8>(entries, over, rows, pooled);
    case 16:
      return PoolWidth<16>(entries, over, rows, pooled);
    default:
      return PoolWidth<0>(entries, over, rows, pooled);
  }
}

template <size_t kWidth>
void PoolBackwardWidth(const Entries& entries, PoolOver over, const ConstMatrix& pooled_gradient,
                       const Matrix& rows_gradient) {
  const size_t width = kWidth > 0 ? kWidth : rows_gradient.columns;
  const uint32_t* const keys = entries.entry_key;
  const float* const values = entries.entry_value;
  const size_t row_stride = rows_gradient.stride, pooled_stride = pooled_gradient.stride;
  const float* const from = pooled_gradient.data;
  float* const to = rows_gradient.data;
  for (size_t k = 0; k < rows_gradient.rows; ++k) Zero(to + k * row_stride, width);
  ForEachSum(entries, over, [=](size_t s, size_t g, uint32_t begin, uint32_t end) {
    const float* const gradient = from + s * pooled_stride + g * width;
    for (uint32_t e = begin; e < end; ++e) {
      float* const row = to + keys[e] * row_stride;
      const float value = values[e];
      ForEachGroup(width, [=](auto group, size_t i) {
        group.Store(row + i, group.Load(row + i) + value * group.Load(gradient + i));
      });
    }
  });
}

void PoolRowsBackward(const Entries& entries, PoolOver over, const ConstMatrix& pooled_gradient,
                      const Matrix& rows_gradient) {
  switch (rows_gradient.columns) {
    case 1:
      return PoolBackwardWidth<1>(entries, over, pooled_gradient, rows_gradient);
    case 8:
      return PoolBackwardWidth<8>(entries, over, pooled_gradient, rows_gradient);
    case 16:
      return PoolBackwardWidth<16>(entries, over, pooled_gradient, rows_gradient);
    default:
      return PoolBackwardWidth<0>(entries, over, pooled_gradient, rows_gradient);
  }
}

// Computes the square of the sum minus the sum of the squares for each element, and their sum over
// the elements in lanes.
template <size_t kDim>
void SumOfDotsDim(const ConstMatrix& vectors, size_t any_dim, const Matrix& sums, float* outputs) {
  const size_t dim = kDim > 0 ? kDim : any_dim;
  const size_t columns = vectors.columns;
  for (size_t r = 0; r < vectors.rows; ++r) {
    const float* const vector = vectors.data + r * vectors.stride;
    float* const of_sum = sums.data + r * sums.stride;
    float lanes[kLanes] = {};
    ForEachGroup(dim, [=, &lanes](auto group, size_t i) {
      typename decltype(group)::Type sum{}, squares{};
      for (size_t begin = i; begin < columns; begin += dim) {
        const auto x = group.Load(vector + begin);
        sum += x;
        squares += x * x;
      }
      group.Store(of_sum + i, sum);
      float* const lane = lanes + i % kLanes;
      group.Store(lane, group.Load(lane) + (sum * sum - squares));
    });
    outputs[r] += 0.5f * AddLanes(lanes);
  }
}

void SumOfDots(const ConstMatrix& vectors, size_t dim, const Matrix& sums, float* outputs) {
  if (dim == 16) return SumOfDotsDim<16>(vectors, dim, sums, outputs);
  SumOfDotsDim<0>(vectors, dim, sums, outputs);
}

template <size_t kDim, Write kWrite>
void SumOfDotsBackwardDim(const ConstMatrix& vectors, size_t any_dim, const ConstMatrix& sums,
                          const float* output_gradients, const Matrix& vectors_gradient) {
  const size_t dim = kDim > 0 ? kDim : any_dim;
  for (size_t r = 0; r < vectors.rows; ++r) {
    const float* const vector = vectors.data + r * vectors.stride;
    const float* const of_sum = sums.data + r * sums.stride;
    float* const gradient = vectors_gradient.data + r * vectors_gradient.stride;
    const float output_gradient = output_gradients[r];
    const size_t columns = vectors.columns;
    ForEachGroup(dim, [=](auto group, size_t i) {
      const auto sum = group.Load(of_sum + i);
      for (size_t begin = i; begin < columns; begin += dim) {
        auto to = output_gradient * (sum - group.Load(vector + begin));
        if (kWrite == Write::kAdd) to = group.Load(gradient + begin) + to;
        group.Store(gradient + begin, to);
      }
    });
  }
}

void SumOfDotsBackward(const ConstMatrix& vectors, size_t dim, const ConstMatrix& sums,
                       const float* output_gradients, Write write, const Matrix& vectors_gradient) {
  const auto with = [&](auto backward) {
    backward(vectors, dim, sums, output_gradients, vectors_gradient);
  };
  if (dim == 16 && write == Write::kAdd) return with(SumOfDotsBackwardDim<16, Write::kAdd>);
  if (dim == 16) return with(SumOfDotsBackwardDim<16, Write::kReplace>);
  if (write == Write::kAdd) return with(SumOfDotsBackwardDim<0, Write::kAdd>);
  with(SumOfDotsBackwardDim<0, Write::kReplace>);
}

template <size_t kDim>
void PairwiseDotsDim(const ConstMatrix& vectors, size_t any_dim, const Matrix& dots) {
  const size_t dim = kDim > 0 ? kDim : any_dim;
  for (size_t r = 0; r < vectors.rows; ++r) {
    const float* const vector = vectors.data + r * vectors.stride;
    float* dot = dots.data + r * dots.stride;
    for (size_t i = 0; i < vectors.columns; i += dim) {
      for (size_t j = 0; j < i; j += dim) {
        float lanes[kLanes] = {};
        const float* const x = vector + i;
        const float* const y = vector + j;
        ForEachGroup(dim, [=, &lanes](auto group, size_t d) {
          float* const lane = lanes + d % kLanes;
          group.Store(lane, group.Load(lane) + group.Load(x + d) * group.Load(y + d));
        });
        *dot++ = AddLanes(lanes);
      }
    }
  }
}

void PairwiseDots(const ConstMatrix& vectors, size_t dim, const Matrix& dots) {
  if (dim == 16) return PairwiseDotsDim<16>(vectors, dim, dots);
  PairwiseDotsDim<0>(vectors, dim, dots);
}

template <size_t kDim>
void PairwiseDotsBackwardDim(const ConstMatrix& vectors, size_t any_dim,
                             const ConstMatrix& dot_gradients, Write write,
                             const Matrix& vectors_gradient) {
  const size_t dim = kDim > 0 ? kDim : any_dim;
  for (size_t r = 0; r < vectors.rows; ++r) {
    const float* const vector = vectors.data + r * vectors.stride;
    const float* dot_gradient = dot_gradients.data + r * dot_gradients.stride;
    float* const gradient = vectors_gradient.data + r * vectors_gradient.stride;
    if (write == Write::kReplace) Zero(gradient, vectors.columns);
    for (size_t i = 0; i < vectors.columns; i += dim) {
      for (size_t j = 0; j < i; j += dim) {
        const float factor = *dot_gradient++;
        ForEachGroup(dim, [=](auto group, size_t d) {
          float* const of_i = gradient + i + d;
          float* const of_j = gradient + j + d;
          group.Store(of_i, group.Load(of_i) + factor * group.Load(vector + j + d));
          group.Store(of_j, group.Load(of_j) + factor * group.Load(vector + i + d));
        });
      }
    }
  }
}

void PairwiseDotsBackward(const ConstMatrix& vectors, size_t dim, const ConstMatrix& dot_gradients,
                          Write write, const Matrix& vectors_gradient) {
  if (dim == 16) {
    return PairwiseDotsBackwardDim<16>(vectors, dim, dot_gradients, write, vectors_gradient);
  }
  PairwiseDotsBackwardDim<0>(vectors, dim, dot_gradients, write, vectors_gradient);
}

// kGroups groups of columns, whose sums stay in registers while all rows pass. kMasks: elements of
// x become 0 where `activation` is not positive.
template <bool kMasks, size_t kGroups, typename G>
PAWL_INLINE void SumGroups(const ConstMatrix& activation, float* x, size_t rows, size_t stride,
                           size_t column, float* sums) {
  using Type = typename G::Type;
  Type total[kGroups] = {};
  for (size_t r = 0; r < rows; ++r) {
    for (size_t g = 0; g < kGroups; ++g) {
      const size_t c = column + g * (sizeof(Type) / sizeof(float));
      Type value = G::Load(x + r * stride + c);
      if constexpr (kMasks) {
        value = G::Load(activation.data + r * activation.stride + c) > 0.0f ? value : Type{};
        G::Store(x + r * stride + c, value);
      }
      total[g] += value;
    }
  }
  for (size_t g = 0; g < kGroups; ++g)
    G::Store(sums + column + g * (sizeof(Type) / sizeof(float)), total[g]);
}

template <bool kMasks>
PAWL_INLINE void SumAllColumns(const ConstMatrix& activation, float* x, size_t rows, size_t columns,
                               size_t stride, float* sums) {
  size_t c = 0;
  for (; c + 64 <= columns; c += 64)
    SumGroups<kMasks, 4, Group<16>>(activation, x, rows, stride, c, sums);
  ForEachGroup(columns - c, [=, &activation](auto group, size_t i) {
    SumGroups<kMasks, 1, decltype(group)>(activation, x, rows, stride, c + i, sums);
  });
}

void SumColumns(const ConstMatrix& x, float* sums) {
  // Nothing is written to x.
  SumAllColumns<false>(x, const_cast<float*>(x.data), x.rows, x.columns, x.stride, sums);
}

void ReluBackwardAndSum(const ConstMatrix& activation, const Matrix& gradient, float* sums) {
  SumAllColumns<true>(activation, gradient.data, gradient.rows, gradient.columns, gradient.stride,
                      sums);
}

// 8 doubles and their bits.
typedef double Doubles __attribute__((vector_size(64)));
typedef int64_t Words __attribute__((vector_size(64)));
constexpr size_t kDoubles = 8;

// DeterministicExp for x <= 0 and NaN.
PAWL_INLINE Doubles ExpOfNegative(Doubles x) {
  constexpr double kRound = 0x1.8p52;
  constexpr double kSmallest = -708.0;
  const Doubles clamped = x < kSmallest ? Doubles{} + kSmallest : x;
  const Doubles shifted = clamped * 0x1.71547652b82fep+0 + kRound;
  const Doubles k = shifted - kRound;
  const Doubles r = (clamped - k * 0x1.62e42fefp-1) - k * 0x1.473de6af278edp-34;
  constexpr double kInverseFactorial[] = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
      1.0 / 5040,       1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      1.0 / 2};
  Doubles series{};
  for (const double coefficient : kInverseFactorial) series = series * r + coefficient;
  const Doubles power = 1.0 + (r + r * r * series);
  const Doubles scale =
      reinterpret_cast<Doubles>(((reinterpret_cast<Words>(shifted) + 1023) & 0x7FF) << 52);
  return x < kSmallest ? Doubles{} : power * scale;
}

// DeterministicLog for 1 <= x <= 2 and NaN.
PAWL_INLINE Doubles LogFromOneToTwo(Doubles x) {
  const Words bits = reinterpret_cast<Words>(x);
  // The exponent, 0 or 1, becomes a double in the low bits of 1.5 * 2^52.
  Doubles e = reinterpret_cast<Doubles>((bits >> 52) - 1023 + 0x4338000000000000) - 0x1.8p52;
  Doubles m = reinterpret_cast<Doubles>((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000);
  const Words above = m >= 1.4142135623730951;
  m = above ? m * 0.5 : m;
  e = above ? e + 1.0 : e;
  const Doubles s = (m - 1.0) / (m + 1.0);
  const Doubles z = s * s;
  constexpr double kInverseOdd[] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                    1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
  Doubles series{};
  for (const double coefficient : kInverseOdd) series = series * z + coefficient;
  const Doubles log_m = 2.0 * s + 2.0 * s * (z * series);
  return e * 0x1.62e42fefp-1 + (log_m + e * 0x1.473de6af278edp-34) + (x - x);
}

// DeterministicLog1p.
PAWL_INLINE Doubles Log1pOfFraction(Doubles x) {
  const Doubles u = 1.0 + x;
  return u == 1.0 ? x : LogFromOneToTwo(u) * x / (u - 1.0);
}

// 8 samples. losses: [8].
PAWL_INLINE void LogisticLossOfGroup(const float* logits, const float* labels, float gradient_scale,
                                     float* gradients, double* losses) {
  const Doubles z = __builtin_convertvector(Group<8>::Load(logits), Doubles);
  const Words positive = __builtin_convertvector(Group<8>::Load(labels), Doubles) > 0.0;
  const Words below = z < 0.0;
  const Doubles e = ExpOfNegative(below ? z : -z);
  const Doubles one = Doubles{} + 1.0;
  const Doubles probability = (below ? e : one) / (1.0 + e);
  const Doubles margin = positive ? -z : z;
  const Doubles loss = Log1pOfFraction(e) + (margin < 0.0 ? Doubles{} : margin);
  const Doubles gradient =
      static_cast<double>(gradient_scale) * (probability - (positive ? one : Doubles{}));
  Group<8>::Store(gradients, __builtin_convertvector(gradient, Floats<8>::Type));
  for (size_t i = 0; i < kDoubles; ++i) losses[i] = loss[i];
}

void LogisticLoss(size_t samples, const float* logits, const float* labels, float gradient_scale,
                  float* gradients, double* loss_sum) {
  double sum = 0;
  double losses[kDoubles];
  size_t s = 0;
  for (; s + kDoubles <= samples; s += kDoubles) {
    LogisticLossOfGroup(logits + s, labels + s, gradient_scale, gradients + s, losses);
    for (size_t i = 0; i < kDoubles; ++i) sum += losses[i];
  }
  if (s < samples) {
    float last[3][kDoubles] = {};
    for (size_t i = 0; s + i < samples; ++i) {
      last[0][i] = logits[s + i];
      last[1][i] = labels[s + i];
    }
    LogisticLossOfGroup(last[0], last[1], gradient_scale, last[2], losses);
    for (size_t i = 0; s + i < samples; ++i) {
      gradients[s + i] = last[2][i];
      sum += losses[i];
    }
  }
  *loss_sum = sum;
}

constexpr CpuLoops kLoops = {PoolRows,          PoolRowsBackward,   SumOfDots,
                             SumOfDotsBackward, PairwiseDots,       PairwiseDotsBackward,
                             SumColumns,        ReluBackwardAndSum, LogisticLoss};

}  // namespace
}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CPU_LOOPS_LOOPS_IMPL_H_
