#include "worker/device/cpu/gemm/gemm.h"

#include <algorithm>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/device/cpu/gemm/panel_kernel.h"

namespace pawl {
namespace {

// Blocks of the inner dimension: a panel of kAvx512PanelKernel takes 64 KiB of the second-level
// cache.
constexpr size_t kInnerBlock = 256;
// Rows of a for which all panels of a block are used before the next rows: their part of `a` takes
// at most 256 KiB.
constexpr size_t kRowBlock = 240;  // a multiple of all kernels' rows
constexpr size_t kRowsInPlace = 24;
constexpr size_t kAlignedFloats = 16;

const PanelKernel& KernelOf(GemmKernel kernel) {
#if defined(__x86_64__)
  if (kernel == GemmKernel::kAvx512) return kAvx512PanelKernel;
  if (kernel == GemmKernel::kAvx2) return kAvx2PanelKernel;
#endif
  static_cast<void>(kernel);
  return kPortablePanelKernel;
}

// A matrix by the steps between its elements: a transpose only swaps them.
struct Steps {
  const float* data;
  size_t row;
  size_t column;
};

Steps StepsOf(Transpose transpose, ConstMatrix x) {
  if (transpose == Transpose::kNo) return {x.data, x.stride, 1};
  return {x.data, 1, x.stride};
}

float* Aligned(std::vector<float>& memory, size_t floats) {
  if (memory.size() < floats + kAlignedFloats) memory.resize(floats + kAlignedFloats);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() +
         (kAlignedFloats - address / sizeof(float) % kAlignedFloats) % kAlignedFloats;
}

// to[c][r] = alpha * from[r][c] for 4 rows and 4 columns.
void Transpose4(const float* from, size_t from_stride, float alpha, float* to, size_t to_stride) {
#if defined(__SSE2__)
  const __m128 factor = _mm_set1_ps(alpha);
  __m128 r0 = _mm_mul_ps(factor, _mm_loadu_ps(from));
  __m128 r1 = _mm_mul_ps(factor, _mm_loadu_ps(from + from_stride));
  __m128 r2 = _mm_mul_ps(factor, _mm_loadu_ps(from + 2 * from_stride));
  __m128 r3 = _mm_mul_ps(factor, _mm_loadu_ps(from + 3 * from_stride));
  _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
  _mm_storeu_ps(to, r0);
  _mm_storeu_ps(to + to_stride, r1);
  _mm_storeu_ps(to + 2 * to_stride, r2);
  _mm_storeu_ps(to + 3 * to_stride, r3);
#else
  for (size_t r = 0; r < 4; ++r) {
    for (size_t c = 0; c < 4; ++c) to[c * to_stride + r] = alpha * from[r * from_stride + c];
  }
#endif
}

// alpha * b[inner][columns] as rows of `width` floats, the rest 0.
void Pack(Steps b, float alpha, size_t inner, size_t columns, size_t width, float* to) {
  if (b.column == 1) {
    for (size_t k = 0; k < inner; ++k) {
      const float* from = b.data + k * b.row;
      float* row = to + k * width;
      for (size_t j = 0; j < columns; ++j) row[j] = alpha * from[j];
      for (size_t j = columns; j < width; ++j) row[j] = 0;
    }
    return;
  }
  size_t j = 0;
  if (b.row == 1) {
    for (; j + 4 <= columns; j += 4) {
      const float* from = b.data + j * b.column;
      size_t k = 0;
      for (; k + 4 <= inner; k += 4)
        Transpose4(from + k, b.column, alpha, to + k * width + j, width);
      for (; k < inner; ++k) {
        for (size_t r = 0; r < 4; ++r) to[k * width + j + r] = alpha * from[r * b.column + k];
      }
    }
  }
  for (; j < width; ++j) {
    const float* from = b.data + j * b.column;
    for (size_t k = 0; k < inner; ++k) {
      to[k * width + j] = j < columns ? alpha * from[k * b.row] : 0.0f;
    }
  }
}

// Whether the kernel reads b where it is: packing a panel for so few rows would cost more.
bool IsReadInPlace(const PanelKernel& kernel, size_t rows, size_t columns, Steps b, float alpha) {
  return b.column == 1 && alpha == 1 && rows <= kRowsInPlace && columns % kernel.vector_floats == 0;
}

// One block of the inner dimension: b is packed once and used for all rows.
void MultiplyBlock(const PanelKernel& kernel, size_t rows, size_t columns, size_t inner, Steps a,
                   Steps b, float alpha, float beta, float* c, size_t c_stride,
                   const GemmEpilogue& epilogue, float* panels) {
  const size_t vector = kernel.vector_floats;
  const auto padded = [&](size_t n) { return (n + vector - 1) / vector * vector; };
  const bool in_place = IsReadInPlace(kernel, rows, columns, b, alpha);
  for (size_t j = 0; j < columns && !in_place; j += kernel.panel_columns) {
    const size_t width = std::min(kernel.panel_columns, columns - j);
    Pack({b.data + j * b.column, b.row, b.column}, alpha, inner, width, padded(width),
         panels + inner * j);
  }
  for (size_t i = 0; i < rows; i += kRowBlock) {
    PanelProduct product;
    product.rows = std::min(kRowBlock, rows - i);
    product.inner = inner;
    product.a = a.data + i * a.row;
    product.a_row_step = a.row;
    product.a_inner_step = a.column;
    product.beta = beta;
    product.c_stride = c_stride;
    for (size_t j = 0; j < columns; j += kernel.panel_columns) {
      product.columns = std::min(kernel.panel_columns, columns - j);
      product.b = in_place ? b.data + j : panels + inner * j;
      product.b_stride = in_place ? b.row : padded(product.columns);
      product.c = c + i * c_stride + j;
      product.bias = epilogue.bias == nullptr ? nullptr : epilogue.bias + j;
      product.has_relu = epilogue.activation == Activation::kRelu;
      kernel.multiply(product);
    }
  }
}

void MultiplyBlocks(const PanelKernel& kernel, size_t rows, size_t columns, size_t inner, Steps a,
                    Steps b, float alpha, float beta, float* c, size_t c_stride,
                    const GemmEpilogue& epilogue, std::vector<float>& memory) {
  const size_t block = std::min(kInnerBlock, inner);
  float* const panels = Aligned(memory, block * (columns + kernel.vector_floats));
  for (size_t k = 0; k < inner; k += kInnerBlock) {
    MultiplyBlock(kernel, rows, columns, std::min(kInnerBlock, inner - k),
                  {a.data + k * a.column, a.row, a.column}, {b.data + k * b.row, b.row, b.column},
                  alpha, k == 0 ? beta : 1, c, c_stride,
                  k + kInnerBlock < inner ? GemmEpilogue() : epilogue, panels);
  }
}

float Finish(const GemmEpilogue& epilogue, size_t column, float x) {
  if (epilogue.bias != nullptr) x += epilogue.bias[column];
  return epilogue.activation == Activation::kRelu && x < 0 ? 0 : x;
}

absl::string_view FlagNameOf(GemmKernel kernel) {
  switch (kernel) {
    case GemmKernel::kPortable:
      return "portable";
    case GemmKernel::kAvx2:
      return "avx2";
    case GemmKernel::kAvx512:
      return "avx512";
  }
  return "";
}

}  // namespace

std::vector<GemmKernel> SupportedGemmKernels() {
  std::vector<GemmKernel> kernels = {GemmKernel::kPortable};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("fma")) {
    if (__builtin_cpu_supports("avx2")) kernels.push_back(GemmKernel::kAvx2);
    if (__builtin_cpu_supports("avx512f")) kernels.push_back(GemmKernel::kAvx512);
  }
#endif
  return kernels;
}

const char* GemmKernelName(GemmKernel kernel) {
  switch (kernel) {
    case GemmKernel::kPortable:
      return "portable";
    case GemmKernel::kAvx2:
      return "AVX2";
    case GemmKernel::kAvx512:
      return "AVX-512";
  }
  return "unknown";
}

absl::StatusOr<GemmKernel> ParseGemmKernel(absl::string_view name) {
  const std::vector<GemmKernel> supported = SupportedGemmKernels();
  if (name == "auto") return supported.back();
  for (const GemmKernel kernel : {GemmKernel::kPortable, GemmKernel::kAvx2, GemmKernel::kAvx512}) {
    if (name != FlagNameOf(kernel)) continue;
    if (std::find(supported.begin(), supported.end(), kernel) != supported.end()) return kernel;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name, "\": this processor lacks these instructions; use auto"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\": must be auto, portable, avx2 or avx512"));
}

Gemm::Gemm() : Gemm(SupportedGemmKernels().back()) {}

Gemm::Gemm(GemmKernel kernel) : kernel_(kernel) {}

void Gemm::Multiply(Transpose transpose_a, Transpose transpose_b, float alpha, ConstMatrix a,
                    ConstMatrix b, float beta, Matrix c, const GemmEpilogue& epilogue) {
  if (c.rows == 0 || c.columns == 0) return;
  const size_t inner = transpose_a == Transpose::kNo ? a.columns : a.rows;
  if (inner == 0) {
    for (size_t i = 0; i < c.rows; ++i) {
      float* row = c.data + i * c.stride;
      for (size_t j = 0; j < c.columns; ++j)
        row[j] = Finish(epilogue, j, beta == 0 ? 0.0f : beta * row[j]);
    }
    return;
  }
  const PanelKernel& kernel = KernelOf(kernel_);
  const Steps left = StepsOf(transpose_a, a), right = StepsOf(transpose_b, b);
  if (c.columns >= kNarrow || c.rows <= c.columns) {
    MultiplyBlocks(kernel, c.rows, c.columns, inner, left, right, alpha, beta, c.data, c.stride,
                   epilogue, panels_);
    return;
  }
  // c^T = op(b)^T op(a)^T
  if (transposed_.size() < c.rows * c.columns) transposed_.resize(c.rows * c.columns);
  float* const transposed = transposed_.data();
  if (beta != 0) {
    for (size_t i = 0; i < c.rows; ++i) {
      for (size_t j = 0; j < c.columns; ++j) transposed[j * c.rows + i] = c.data[i * c.stride + j];
    }
  }
  MultiplyBlocks(kernel, c.columns, c.rows, inner, {right.data, right.column, right.row},
                 {left.data, left.column, left.row}, alpha, beta, transposed, c.rows,
                 GemmEpilogue(), panels_);
  for (size_t i = 0; i < c.rows; ++i) {
    for (size_t j = 0; j < c.columns; ++j)
      c.data[i * c.stride + j] = Finish(epilogue, j, transposed[j * c.rows + i]);
  }
}

}  // namespace pawl
