#include "worker/device/cpu/gemm/gemm.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr float kUntouched = 12345.0f;

// One product with operands that lie in larger matrices.
struct Case {
  size_t rows, columns, inner;
  Transpose transpose_a, transpose_b;
  float alpha, beta;
  size_t extra_columns;  // by which strides exceed columns
};

class Product {
 public:
  Product(const Case& c, std::mt19937_64& random) : case_(c) {
    const auto fill = [&](std::vector<float>& x, size_t rows, size_t stride) {
      x.resize(rows * stride);
      for (float& value : x) value = static_cast<float>(random() >> 40) * 0x1p-23f - 1.0f;
    };
    a_rows_ = c.transpose_a == Transpose::kNo ? c.rows : c.inner;
    a_columns_ = c.transpose_a == Transpose::kNo ? c.inner : c.rows;
    b_rows_ = c.transpose_b == Transpose::kNo ? c.inner : c.columns;
    b_columns_ = c.transpose_b == Transpose::kNo ? c.columns : c.inner;
    fill(a_, a_rows_, a_columns_ + c.extra_columns);
    fill(b_, b_rows_, b_columns_ + c.extra_columns);
    fill(c_, c.rows, c.columns + c.extra_columns);
    for (size_t i = 0; i < c.rows; ++i) {
      for (size_t j = c.columns; j < c.columns + c.extra_columns; ++j) {
        c_[i * stride() + j] = kUntouched;
      }
    }
  }

  size_t stride() const { return case_.columns + case_.extra_columns; }

  std::vector<float> Compute(Gemm& gemm) const {
    std::vector<float> result = c_;
    gemm.Multiply(case_.transpose_a, case_.transpose_b, case_.alpha,
                  {a_.data(), a_rows_, a_columns_, a_columns_ + case_.extra_columns},
                  {b_.data(), b_rows_, b_columns_, b_columns_ + case_.extra_columns}, case_.beta,
                  {result.data(), case_.rows, case_.columns, stride()});
    return result;
  }

  // The chain that gemm.h specifies.
  float Expected(size_t i, size_t j) const {
    const bool narrow = case_.columns < kNarrow && case_.rows > case_.columns;
    float x = case_.beta == 0 ? 0.0f : case_.beta * c_[i * stride() + j];
    for (size_t k = 0; k < case_.inner; ++k) {
      const float a = At(a_, case_.transpose_a, i, k, a_columns_);
      const float b = At(b_, case_.transpose_b, k, j, b_columns_);
      x = narrow ? std::fma(b, case_.alpha * a, x) : std::fma(a, case_.alpha * b, x);
    }
    return x;
  }

 private:
  float At(const std::vector<float>& x, Transpose transpose, size_t r, size_t c,
           size_t columns) const {
    const size_t stride = columns + case_.extra_columns;
    return transpose == Transpose::kNo ? x[r * stride + c] : x[c * stride + r];
  }

  const Case case_;
  size_t a_rows_, a_columns_, b_rows_, b_columns_;
  std::vector<float> a_, b_, c_;
};

void ExpectChains(const Case& c, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << c.rows << "x" << c.columns << "x" << c.inner << " transposed "
                                  << (c.transpose_a == Transpose::kYes)
                                  << (c.transpose_b == Transpose::kYes) << " alpha " << c.alpha
                                  << " beta " << c.beta << " stride +" << c.extra_columns);
  const Product product(c, random);
  for (const GemmKernel kernel : SupportedGemmKernels()) {
    Gemm gemm(kernel);
    const std::vector<float> result = product.Compute(gemm);
    for (size_t i = 0; i < c.rows; ++i) {
      for (size_t j = 0; j < product.stride(); ++j) {
        const float actual = result[i * product.stride() + j];
        const float expected = j < c.columns ? product.Expected(i, j) : kUntouched;
        ASSERT_EQ(std::memcmp(&actual, &expected, sizeof actual), 0)
            << GemmKernelName(kernel) << " at " << i << ", " << j << ": " << actual << ", not "
            << expected;
      }
    }
  }
}

TEST(GemmTest, EveryKernelRoundsAsSpecified) {
  std::mt19937_64 random(7);
  const auto pick = [&](std::initializer_list<size_t> from) {
    return from.begin()[random() % from.size()];
  };
  for (int i = 0; i < 400; ++i) {
    Case c;
    c.rows = pick({1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 23, 24, 25, 63, 241});
    c.columns = pick({1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 130});
    c.inner = pick({1, 2, 3, 4, 5, 16, 31, 64, 255, 256, 257, 513});
    c.transpose_a = random() % 2 == 0 ? Transpose::kNo : Transpose::kYes;
    c.transpose_b = random() % 2 == 0 ? Transpose::kNo : Transpose::kYes;
    c.alpha = random() % 3 == 0 ? 0.3f : 1.0f;
    c.beta = std::vector<float>{0.0f, 1.0f, -0.7f}[random() % 3];
    c.extra_columns = random() % 2 == 0 ? 0 : random() % 7;
    ExpectChains(c, random);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(GemmTest, OneGemmComputesProductsOfDifferentShapes) {
  std::mt19937_64 random(8);
  Gemm gemm;
  for (const size_t size : {300, 3, 70, 1, 129}) {
    const Product product({size, size, size, Transpose::kNo, Transpose::kYes, 1, 0, 0}, random);
    Gemm fresh;
    EXPECT_EQ(product.Compute(gemm), product.Compute(fresh)) << size;
  }
}

TEST(GemmTest, OldContentsAreIgnoredWithBetaZero) {
  for (const GemmKernel kernel : SupportedGemmKernels()) {
    for (const size_t columns : {1, 20}) {
      std::vector<float> a(20, 1.0f), b(columns, 2.0f);
      std::vector<float> c(20 * columns, std::numeric_limits<float>::quiet_NaN());
      Gemm(kernel).Multiply(Transpose::kNo, Transpose::kNo, 1, {a.data(), 20, 1, 1},
                            {b.data(), 1, columns, columns}, 0, {c.data(), 20, columns, columns});
      for (const float value : c) EXPECT_EQ(value, 2.0f);
    }
  }
}

TEST(GemmTest, NotANumberReachesItsElements) {
  for (const GemmKernel kernel : SupportedGemmKernels()) {
    std::vector<float> a(8 * 3, 1.0f), b(3 * 9, 0.0f), c(8 * 9);
    a[2 * 3 + 1] = std::numeric_limits<float>::quiet_NaN();
    Gemm(kernel).Multiply(Transpose::kNo, Transpose::kNo, 1, {a.data(), 8, 3, 3},
                          {b.data(), 3, 9, 9}, 0, {c.data(), 8, 9, 9});
    for (size_t i = 0; i < c.size(); ++i) EXPECT_EQ(std::isnan(c[i]), i / 9 == 2) << i;
  }
}

TEST(GemmTest, KernelNamesAreParsed) {
  EXPECT_EQ(*ParseGemmKernel("portable"), GemmKernel::kPortable);
  EXPECT_EQ(*ParseGemmKernel("auto"), SupportedGemmKernels().back());
  EXPECT_EQ(ParseGemmKernel("sse").status().message(),
            "\"sse\": must be auto, portable, avx2 or avx512");
}

TEST(GemmTest, ProductWithoutInnerDimensionScales) {
  std::vector<float> c = {1, 2};
  Gemm gemm;
  gemm.Multiply(Transpose::kNo, Transpose::kNo, 1, {nullptr, 1, 0, 0}, {nullptr, 0, 2, 2}, 0.5f,
                {c.data(), 1, 2, 2});
  EXPECT_EQ(c, (std::vector<float>{0.5f, 1.0f}));
  gemm.Multiply(Transpose::kNo, Transpose::kNo, 1, {nullptr, 1, 0, 0}, {nullptr, 0, 2, 2}, 0,
                {c.data(), 1, 2, 2});
  EXPECT_EQ(c, (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace pawl
