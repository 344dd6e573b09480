// Small matrix products for processors with and without wide vectors. Each is inlined into
// functions that are compiled for one instruction set (RUN_ON_AVX512, RUN_ON_AVX2).
#ifndef PAWL_TESTS_PERF_MATRIX_PRODUCTS_H_
#define PAWL_TESTS_PERF_MATRIX_PRODUCTS_H_

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "client_lib/base/compiler.h"

// Vectors never cross the boundary of a function that is not inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

// "avx2" alone has no fused multiply-add.
#define RUN_ON_AVX512 PAWL_TARGET_AVX512
#if defined(__x86_64__)
#define RUN_ON_AVX2 __attribute__((target("avx2,fma")))
#else
#define RUN_ON_AVX2
#endif

namespace pawl {

// The kinds of processors: a register of floats, and how much of a product's result stays in
// registers: kRows rows of kColumns vectors.
struct Avx512 {
  static constexpr size_t kLanes = 16, kRows = 6, kColumns = 4;
  using Vector = float __attribute__((vector_size(64)));
};
struct Avx2 {
  static constexpr size_t kLanes = 8, kRows = 6, kColumns = 2;
  using Vector = float __attribute__((vector_size(32)));
};
struct Generic {
  static constexpr size_t kLanes = 4, kRows = 2, kColumns = 4;
  using Vector = float __attribute__((vector_size(16)));
};

template <typename Vector>
PAWL_ALWAYS_INLINE void Load(const float* from, Vector& to) {
  std::memcpy(&to, from, sizeof(Vector));
}
template <typename Vector>
PAWL_ALWAYS_INLINE void Store(const Vector& from, float* to) {
  std::memcpy(to, &from, sizeof(Vector));
}
template <typename Vector>
PAWL_ALWAYS_INLINE float Sum(const Vector& vector) {
  float sum = 0;
  for (size_t lane = 0; lane < sizeof(Vector) / sizeof(float); ++lane) sum += vector[lane];
  return sum;
}

// A matrix of floats: element (row, column) is data[row * stride + column].
struct MatrixView {
  float* data;
  size_t stride;

  float* At(size_t row, size_t column = 0) const { return data + row * stride + column; }
};

// c[rows, columns] = (bias or 0) + a[rows, depth] * b[depth, columns], and max(0, c) with relu.
template <typename Isa, size_t kRows, size_t kColumns>
PAWL_ALWAYS_INLINE void MultiplyBlock(MatrixView a, MatrixView b, MatrixView c, size_t depth,
                                      const float* bias, bool relu) {
  using Vector = typename Isa::Vector;
  constexpr size_t kLanes = Isa::kLanes;
  Vector sums[kRows][kColumns];
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t column = 0; column < kColumns; ++column) {
      if (bias != nullptr) {
        Load(bias + column * kLanes, sums[row][column]);
      } else {
        sums[row][column] = Vector{};
      }
    }
  }
  for (size_t k = 0; k < depth; ++k) {
    Vector factors[kColumns];
    for (size_t column = 0; column < kColumns; ++column)
      Load(b.At(k, column * kLanes), factors[column]);
    for (size_t row = 0; row < kRows; ++row) {
      const float factor = *a.At(row, k);
      for (size_t column = 0; column < kColumns; ++column)
        sums[row][column] += factor * factors[column];
    }
  }
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t column = 0; column < kColumns; ++column) {
      Vector sum = sums[row][column];
      if (relu) sum = sum > 0 ? sum : Vector{};
      Store(sum, c.At(row, column * kLanes));
    }
  }
}

// Calls block(column, width) for blocks of Isa::kColumns, 2 and 1 vectors that cover the columns.
// `width` is a std::integral_constant.
template <typename Isa, typename Block>
PAWL_ALWAYS_INLINE void ForEachColumnBlock(size_t columns, const Block& block) {
  constexpr size_t kLanes = Isa::kLanes;
  size_t column = 0;
  for (; column + Isa::kColumns * kLanes <= columns; column += Isa::kColumns * kLanes)
    block(column, std::integral_constant<size_t, Isa::kColumns>());
  for (; column + 2 * kLanes <= columns; column += 2 * kLanes)
    block(column, std::integral_constant<size_t, 2>());
  for (; column < columns; column += kLanes) block(column, std::integral_constant<size_t, 1>());
}

// The same for any number of rows. REQUIRES: columns is a multiple of Isa::kLanes.
template <typename Isa>
PAWL_ALWAYS_INLINE void Multiply(MatrixView a, MatrixView b, MatrixView c, size_t rows,
                                 size_t depth, size_t columns, const float* bias, bool relu) {
  ForEachColumnBlock<Isa>(
      columns, [&](size_t column, auto width) __attribute__((always_inline)) {
        constexpr size_t kWidth = decltype(width)::value;
        const MatrixView b_part{b.At(0, column), b.stride};
        const float* const bias_part = bias != nullptr ? bias + column : nullptr;
        size_t row = 0;
        for (; row + Isa::kRows <= rows; row += Isa::kRows)
          MultiplyBlock<Isa, Isa::kRows, kWidth>(
              {a.At(row), a.stride}, b_part, {c.At(row, column), c.stride}, depth, bias_part, relu);
        for (; row < rows; ++row)
          MultiplyBlock<Isa, 1, kWidth>({a.At(row), a.stride}, b_part,
                                        {c.At(row, column), c.stride}, depth, bias_part, relu);
      });
}

// c[kRows, columns] += transposed(a[samples, kRows]) * b[samples, columns].
template <typename Isa, size_t kRows, size_t kColumns>
PAWL_ALWAYS_INLINE void AddTransposedBlock(MatrixView a, MatrixView b, MatrixView c,
                                           size_t samples) {
  using Vector = typename Isa::Vector;
  constexpr size_t kLanes = Isa::kLanes;
  Vector sums[kRows][kColumns];
  for (size_t row = 0; row < kRows; ++row)
    for (size_t column = 0; column < kColumns; ++column)
      Load(c.At(row, column * kLanes), sums[row][column]);
  for (size_t sample = 0; sample < samples; ++sample) {
    Vector factors[kColumns];
    for (size_t column = 0; column < kColumns; ++column)
      Load(b.At(sample, column * kLanes), factors[column]);
    for (size_t row = 0; row < kRows; ++row) {
      const float factor = *a.At(sample, row);
      for (size_t column = 0; column < kColumns; ++column)
        sums[row][column] += factor * factors[column];
    }
  }
  for (size_t row = 0; row < kRows; ++row)
    for (size_t column = 0; column < kColumns; ++column)
      Store(sums[row][column], c.At(row, column * kLanes));
}

// The same for any number of rows. REQUIRES: columns is a multiple of Isa::kLanes.
template <typename Isa>
PAWL_ALWAYS_INLINE void AddTransposed(MatrixView a, MatrixView b, MatrixView c, size_t samples,
                                      size_t rows, size_t columns) {
  ForEachColumnBlock<Isa>(
      columns, [&](size_t column, auto width) __attribute__((always_inline)) {
        constexpr size_t kWidth = decltype(width)::value;
        const MatrixView b_part{b.At(0, column), b.stride};
        size_t row = 0;
        for (; row + Isa::kRows <= rows; row += Isa::kRows)
          AddTransposedBlock<Isa, Isa::kRows, kWidth>({a.At(0, row), a.stride}, b_part,
                                                      {c.At(row, column), c.stride}, samples);
        for (; row < rows; ++row)
          AddTransposedBlock<Isa, 1, kWidth>({a.At(0, row), a.stride}, b_part,
                                             {c.At(row, column), c.stride}, samples);
      });
}

}  // namespace pawl

#endif  // PAWL_TESTS_PERF_MATRIX_PRODUCTS_H_
