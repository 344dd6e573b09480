#include <cblas.h>

#include <algorithm>
#include <vector>

#include "client_lib/base/elements.h"
#include "worker/device/cpu/stream.h"

namespace pawl {
namespace {

// OpenBLAS refuses a leading dimension of 0, even for an empty matrix.
int LeadingDimension(size_t stride) { return static_cast<int>(std::max<size_t>(stride, 1)); }

// Returns the matrix rounded to the 16-bit type, as floats in `memory`.
ConstMatrix Rounded(Factors factors, ConstMatrix x, std::vector<float>& memory) {
  const ElementType type = factors == Factors::kBfloat16 ? BFLOAT16 : FLOAT16;
  if (memory.size() < x.rows * x.columns) memory.resize(x.rows * x.columns);
  for (size_t r = 0; r < x.rows; ++r) {
    RoundElements(type, x.data + r * x.stride, x.columns, memory.data() + r * x.columns);
  }
  return {memory.data(), x.rows, x.columns, x.columns};
}

}  // namespace

void CpuStream::Copy(ConstMatrix from, Write write, Matrix to) {
  // Matrices without columns have no memory.
  if (to.columns == 0) return;
  for (size_t r = 0; r < to.rows; ++r) {
    const float* source = from.data + r * from.stride;
    float* target = to.data + r * to.stride;
    if (write == Write::kReplace) {
      std::copy_n(source, to.columns, target);
    } else {
      for (size_t c = 0; c < to.columns; ++c) target[c] += source[c];
    }
  }
}

void CpuStream::Gemm(Factors factors, Transpose transpose_a, Transpose transpose_b, float alpha,
                     ConstMatrix a, ConstMatrix b, float beta, Matrix c) {
  if (c.rows == 0 || c.columns == 0) return;
  const size_t inner = transpose_a == Transpose::kNo ? a.columns : a.rows;
  if (inner == 0) {
    for (size_t r = 0; r < c.rows; ++r) {
      float* row = c.data + r * c.stride;
      for (size_t i = 0; i < c.columns; ++i) row[i] = beta == 0 ? 0.0f : beta * row[i];
    }
    return;
  }
  RoundFactors(factors, a, b);
  if (!fast_products_) return gemm_.Multiply(transpose_a, transpose_b, alpha, a, b, beta, c);
  cblas_sgemm(CblasRowMajor, transpose_a == Transpose::kNo ? CblasNoTrans : CblasTrans,
              transpose_b == Transpose::kNo ? CblasNoTrans : CblasTrans, static_cast<int>(c.rows),
              static_cast<int>(c.columns), static_cast<int>(inner), alpha, a.data,
              LeadingDimension(a.stride), b.data, LeadingDimension(b.stride), beta, c.data,
              LeadingDimension(c.stride));
}

void CpuStream::Layer(Factors factors, ConstMatrix input, ConstMatrix weight, const float* bias,
                      Activation activation, float beta, Matrix result) {
  if (fast_products_) {
    return Stream::Layer(factors, input, weight, bias, activation, beta, result);
  }
  RoundFactors(factors, input, weight);
  gemm_.Multiply(Transpose::kNo, Transpose::kNo, 1, input, weight, beta, result,
                 {bias, activation});
}

void CpuStream::RoundFactors(Factors factors, ConstMatrix& a, ConstMatrix& b) {
  if (factors == Factors::kFloat32) return;
  a = Rounded(factors, a, rounded_a_);
  b = Rounded(factors, b, rounded_b_);
}

void CpuStream::AddBias(const float* bias, Matrix x) {
  for (size_t r = 0; r < x.rows; ++r) {
    float* row = x.data + r * x.stride;
    for (size_t c = 0; c < x.columns; ++c) row[c] += bias[c];
  }
}

void CpuStream::SumColumns(ConstMatrix x, float* sums) { loops_.sum_columns(x, sums); }

}  // namespace pawl
