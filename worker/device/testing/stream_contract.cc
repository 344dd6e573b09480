// Checks each operation against a plain loop, which sums in double.
#include "worker/device/testing/stream_contract.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "client_lib/base/half.h"

namespace pawl {

void StreamContractTest::SetUp() {
  absl::StatusOr<std::unique_ptr<Device>> device = GetParam()();
  if (absl::IsUnavailable(device.status()) || absl::IsUnimplemented(device.status())) {
    GTEST_SKIP() << "no such device: " << device.status();
  }
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
  absl::StatusOr<std::unique_ptr<HostStream>> stream = HostStream::Create(*device_);
  ASSERT_TRUE(stream.ok()) << stream.status();
  stream_ = *std::move(stream);
}

void StreamContractTest::TearDown() {
  if (stream_ == nullptr) return;
  EXPECT_TRUE(stream_->status().ok()) << stream_->status();
}

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// Marks the memory between the rows of a matrix, which no kernel may touch.
constexpr float kPadding = 12345.0f;

// A matrix with its memory and `padding` floats after each row.
struct Buffer {
  Buffer(size_t rows, size_t columns, size_t padding = 0)
      : data(rows * (columns + padding), kPadding),
        rows(rows),
        columns(columns),
        stride(columns + padding) {}

  Matrix matrix() { return {data.data(), rows, columns, stride}; }
  float& at(size_t r, size_t c) { return data[r * stride + c]; }

  bool PaddingIsUntouched() {
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = columns; c < stride; ++c) {
        if (at(r, c) != kPadding) return false;
      }
    }
    return true;
  }

  std::vector<float> data;
  size_t rows;
  size_t columns;
  size_t stride;
};

std::vector<float> RandomVector(std::mt19937& random, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(random);
  return values;
}

Buffer RandomBuffer(std::mt19937& random, size_t rows, size_t columns, size_t padding = 0) {
  Buffer buffer(rows, columns, padding);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c)
      buffer.at(r, c) = std::uniform_real_distribution<float>(-1, 1)(random);
  }
  return buffer;
}

// A batch's entries with their memory.
struct OwnedEntries {
  std::vector<uint32_t> field_begin{0};
  std::vector<uint32_t> entry_key;
  std::vector<float> entry_value;
  size_t samples = 0;
  size_t fields = 0;
  size_t keys = 0;

  Entries view() const {
    return {samples,           fields, entry_key.size(), keys, field_begin.data(), entry_key.data(),
            entry_value.data()};
  }
};

TEST_P(StreamContractTest, GemmMatchesReferenceForAllTransposesAndSizes) {
  const size_t sizes[][3] = {{1, 1, 1},    {3, 5, 7},      {17, 1, 33},   {1, 19, 4},
                             {64, 64, 64}, {65, 130, 129}, {300, 10, 257}};
  const float factors[][2] = {{1, 0}, {1, 1}, {-0.5f, 2}, {0, 1}};
  for (const auto& [m, n, k] : sizes) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        for (const auto& [alpha, beta] : factors) {
          Buffer a = transpose_a ? RandomBuffer(random_, k, m, 3) : RandomBuffer(random_, m, k, 3);
          Buffer b = transpose_b ? RandomBuffer(random_, n, k, 1) : RandomBuffer(random_, k, n, 1);
          Buffer c = RandomBuffer(random_, m, n, 2);
          Buffer before = c;
          stream_->Gemm(Factors::kFloat32, transpose_a ? Transpose::kYes : Transpose::kNo,
                        transpose_b ? Transpose::kYes : Transpose::kNo, alpha, a.matrix(),
                        b.matrix(), beta, c.matrix());
          for (size_t i = 0; i < m; ++i) {
            for (size_t j = 0; j < n; ++j) {
              double sum = 0;
              for (size_t l = 0; l < k; ++l) {
                sum += static_cast<double>(transpose_a ? a.at(l, i) : a.at(i, l)) *
                       (transpose_b ? b.at(j, l) : b.at(l, j));
              }
              ASSERT_NEAR(c.at(i, j), alpha * sum + beta * before.at(i, j), 1e-6 * (k + 2))
                  << m << " " << n << " " << k;
            }
          }
          EXPECT_TRUE(c.PaddingIsUntouched());
        }
      }
    }
  }
}

// The factors are rounded as defined, and nothing else is: sums of products that no 16-bit number
// represents are exact.
TEST_P(StreamContractTest, GemmOf16BitsRoundsOnlyTheFactors) {
  const size_t sizes[][3] = {{1, 1, 1},  {3, 5, 7},    {17, 1, 33},
                             {1, 19, 4}, {64, 64, 64}, {65, 30, 129}};
  const float factors_of_sums[][2] = {{1, 0}, {-0.5f, 2}};
  for (const auto& [factors, rounded] :
       {std::pair(
            Factors::kBfloat16, +[](float x) { return FloatOfBfloat16(Bfloat16Of(x)); }),
        std::pair(
            Factors::kFloat16, +[](float x) { return FloatOfFloat16(Float16Of(x)); })}) {
    for (const auto& [m, n, k] : sizes) {
      for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
          for (const auto& [alpha, beta] : factors_of_sums) {
            Buffer a =
                transpose_a ? RandomBuffer(random_, k, m, 3) : RandomBuffer(random_, m, k, 3);
            Buffer b =
                transpose_b ? RandomBuffer(random_, n, k, 1) : RandomBuffer(random_, k, n, 1);
            Buffer c = RandomBuffer(random_, m, n, 2);
            Buffer before = c;
            stream_->Gemm(factors, transpose_a ? Transpose::kYes : Transpose::kNo,
                          transpose_b ? Transpose::kYes : Transpose::kNo, alpha, a.matrix(),
                          b.matrix(), beta, c.matrix());
            for (size_t i = 0; i < m; ++i) {
              for (size_t j = 0; j < n; ++j) {
                double sum = 0;
                for (size_t l = 0; l < k; ++l) {
                  sum += static_cast<double>(rounded(transpose_a ? a.at(l, i) : a.at(i, l))) *
                         rounded(transpose_b ? b.at(j, l) : b.at(l, j));
                }
                // An error in the last place of any factor would be a thousand times that of the
                // sum.
                ASSERT_NEAR(c.at(i, j), alpha * sum + beta * before.at(i, j), 1e-7 * (k + 2))
                    << m << " " << n << " " << k;
              }
            }
            EXPECT_TRUE(c.PaddingIsUntouched());
          }
        }
      }
    }
    // 1 + 2^-11 rounds to 1 in both types, a factor of 2^17 is infinite in one.
    float x[] = {1 + std::ldexp(1.0f, -11), std::ldexp(1.0f, 17)}, product[] = {kNan, kNan};
    stream_->Gemm(factors, Transpose::kNo, Transpose::kNo, 1, {x, 2, 1, 1}, {x, 1, 1, 1}, 0,
                  {product, 2, 1, 1});
    EXPECT_EQ(product[0], 1);
    EXPECT_EQ(product[1], factors == Factors::kFloat16 ? std::numeric_limits<float>::infinity()
                                                       : std::ldexp(1.0f, 17));
    EXPECT_EQ(x[0], 1 + std::ldexp(1.0f, -11));
    // Without elements to sum.
    Buffer none(2, 0), of(0, 3), scaled(2, 3);
    stream_->Gemm(factors, Transpose::kNo, Transpose::kNo, 1, none.matrix(), of.matrix(), 0.5f,
                  scaled.matrix());
    for (const float value : scaled.data) EXPECT_EQ(value, kPadding / 2);
    Buffer no_rows(0, 3), weight(3, 4), nothing(0, 4);
    stream_->Gemm(factors, Transpose::kNo, Transpose::kNo, 1, no_rows.matrix(), weight.matrix(), 0,
                  nothing.matrix());
  }
}

TEST_P(StreamContractTest, GemmWithBetaZeroIgnoresTheOldOutput) {
  for (const size_t inner : {0, 1, 40}) {
    Buffer a = RandomBuffer(random_, 30, inner), b = RandomBuffer(random_, inner, 20);
    Buffer c(30, 20);
    std::fill(c.data.begin(), c.data.end(), kNan);
    stream_->Gemm(Factors::kFloat32, Transpose::kNo, Transpose::kNo, 1, a.matrix(), b.matrix(), 0,
                  c.matrix());
    for (const float value : c.data) ASSERT_FALSE(std::isnan(value));
  }
}

TEST_P(StreamContractTest, GemmOfEmptyMatricesScalesTheOutput) {
  Buffer a(2, 0), b(0, 3), c(2, 3);
  stream_->Gemm(Factors::kFloat32, Transpose::kNo, Transpose::kNo, 1, a.matrix(), b.matrix(), 0.5f,
                c.matrix());
  for (const float value : c.data) EXPECT_EQ(value, kPadding / 2);
  Buffer no_rows(0, 3), weight(3, 4), nothing(0, 4);
  stream_->Gemm(Factors::kFloat32, Transpose::kNo, Transpose::kNo, 1, no_rows.matrix(),
                weight.matrix(), 0, nothing.matrix());
}

TEST_P(StreamContractTest, CopyReplacesOrAddsColumns) {
  for (const size_t rows : {0, 1, 7, 100}) {
    for (const size_t columns : {0, 1, 13, 16, 140}) {
      const size_t padding = columns % 4 == 0 ? 4 : 2;
      Buffer from = RandomBuffer(random_, rows, columns, padding),
             to = RandomBuffer(random_, rows, columns, padding + 4);
      Buffer before = to;
      stream_->Copy(from.matrix(), Write::kAdd, to.matrix());
      for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < columns; ++c)
          ASSERT_EQ(to.at(r, c), before.at(r, c) + from.at(r, c));
      }
      stream_->Copy(from.matrix(), Write::kReplace, to.matrix());
      for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < columns; ++c) ASSERT_EQ(to.at(r, c), from.at(r, c));
      }
      EXPECT_TRUE(to.PaddingIsUntouched());
    }
  }
}

TEST_P(StreamContractTest, BiasIsAddedToAndSummedFromEveryRow) {
  for (const size_t rows : {0, 1, 9, 128, 129, 4096, 5000}) {
    for (const size_t columns : {0, 1, 5, 33, 64}) {
      Buffer x = RandomBuffer(random_, rows, columns, 3);
      Buffer before = x;
      const std::vector<float> bias = RandomVector(random_, columns);
      stream_->AddBias(bias.data(), x.matrix());
      std::vector<float> sums(columns, kNan);
      stream_->SumColumns(x.matrix(), sums.data());
      for (size_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (size_t r = 0; r < rows; ++r) {
          ASSERT_EQ(x.at(r, c), before.at(r, c) + bias[c]);
          sum += x.at(r, c);
        }
        ASSERT_NEAR(sums[c], sum, 1e-7 * (rows + 1) * std::sqrt(rows + 1.0));
      }
      EXPECT_TRUE(x.PaddingIsUntouched());
    }
  }
}

TEST_P(StreamContractTest, VectorOperationsMatchReference) {
  for (const size_t count : {0, 1, 3, 4, 15, 1000, 40001}) {
    const std::vector<float> x = RandomVector(random_, count);
    std::vector<float> y = RandomVector(random_, count);
    std::vector<float> expected = y;
    stream_->Axpy(count, 0.25f, x.data(), y.data());
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(y[i], expected[i] += 0.25f * x[i]);
    stream_->Scale(count, -3, y.data());
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(y[i], expected[i] *= -3);
    stream_->AddConstant(count, 1.5f, y.data());
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(y[i], expected[i] += 1.5f);
    stream_->Zero(y.data(), count * sizeof(float));
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(y[i], 0);
  }
}

TEST_P(StreamContractTest, ReluPassesPositiveValuesAndGradients) {
  for (const auto& [rows, columns, padding] : std::vector<std::array<size_t, 3>>{{0, 37, 2},
                                                                                 {1, 37, 2},
                                                                                 {11, 37, 2},
                                                                                 {1, 5000, 0},
                                                                                 {600, 1, 0},
                                                                                 {13, 64, 4},
                                                                                 {13, 64, 3},
                                                                                 {3, 300, 4}}) {
    Buffer x = RandomBuffer(random_, rows, columns, padding);
    if (rows > 0) x.at(0, 0) = 0;
    Buffer before = x;
    stream_->Relu(x.matrix());
    Buffer gradient = RandomBuffer(random_, rows, columns, padding * 2);
    Buffer gradient_before = gradient;
    stream_->ReluBackward(x.matrix(), gradient.matrix());
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < columns; ++c) {
        ASSERT_EQ(x.at(r, c), std::max(before.at(r, c), 0.0f));
        ASSERT_EQ(gradient.at(r, c), before.at(r, c) > 0 ? gradient_before.at(r, c) : 0);
      }
    }
    EXPECT_TRUE(x.PaddingIsUntouched());
    EXPECT_TRUE(gradient.PaddingIsUntouched());
  }
}

TEST_P(StreamContractTest, ReluPropagatesNan) {
  float x[] = {kNan, -1, 2, kNan};
  stream_->Relu({x, 1, 4, 4});
  EXPECT_TRUE(std::isnan(x[0]));
  EXPECT_TRUE(std::isnan(x[3]));
}

TEST_P(StreamContractTest, PoolingMatchesReference) {
  // {samples, fields, keys, most entries in a field}; with one key all entries collide.
  const size_t shapes[][4] = {{0, 3, 0, 1},    {1, 1, 1, 1},   {50, 3, 7, 1},  {33, 4, 100, 3},
                              {200, 2, 1, 2},  {5, 2, 3, 0},   {64, 1, 1, 1},  {65, 1, 1, 1},
                              {128, 1, 1, 1},  {700, 3, 4, 2}, {300, 4, 9, 3}, {400, 1, 2, 1},
                              {90, 26, 31, 1}, {20, 1, 500, 1}};
  for (const auto& [samples, fields, keys, most] : shapes) {
    OwnedEntries owned;
    owned.samples = samples;
    owned.fields = fields;
    owned.keys = keys;
    for (size_t f = 0; f < samples * fields; ++f) {
      for (size_t count = most <= 1 ? most : RandomBelow(most + 1); count > 0; --count) {
        owned.entry_key.push_back(RandomBelow(keys));
        owned.entry_value.push_back(Random());
      }
      owned.field_begin.push_back(owned.entry_key.size());
    }
    const Entries entries = owned.view();
    for (const size_t width : {1, 3, 7, 8, 16, 17, 64, 128, 132}) {
      for (const PoolOver over : {PoolOver::kField, PoolOver::kSample}) {
        const size_t groups = over == PoolOver::kField ? fields : 1;
        // Rows are also part of wider ones.
        const size_t padding = over == PoolOver::kField ? width % 4 : 4;
        Buffer rows = RandomBuffer(random_, keys, width, padding),
               rows_gradient(keys, width, padding);
        for (size_t k = 0; k < keys; ++k) std::fill_n(&rows_gradient.at(k, 0), width, kNan);
        Buffer pooled(samples, groups * width, 3), expected(samples, groups * width, 3);
        Buffer pooled_gradient = RandomBuffer(random_, samples, groups * width, 2);
        std::vector<double> expected_gradient(keys * width, 0);
        std::vector<size_t> expected_count(keys);
        stream_->PoolRows(entries, over, rows.matrix(), pooled.matrix());
        stream_->PoolRowsBackward(entries, over, pooled_gradient.matrix(), rows_gradient.matrix());
        for (size_t s = 0; s < samples; ++s) {
          for (size_t c = 0; c < groups * width; ++c) expected.at(s, c) = 0;
          for (size_t f = 0; f < fields; ++f) {
            for (uint32_t e = owned.field_begin[s * fields + f];
                 e < owned.field_begin[s * fields + f + 1]; ++e) {
              ++expected_count[owned.entry_key[e]];
              for (size_t d = 0; d < width; ++d) {
                const size_t column = (over == PoolOver::kField ? f * width : 0) + d;
                const size_t element = owned.entry_key[e] * width + d;
                expected.at(s, column) += owned.entry_value[e] * rows.at(owned.entry_key[e], d);
                expected_gradient[element] +=
                    static_cast<double>(owned.entry_value[e]) * pooled_gradient.at(s, column);
              }
            }
          }
        }
        EXPECT_TRUE(pooled.PaddingIsUntouched());
        EXPECT_TRUE(rows_gradient.PaddingIsUntouched());
        for (size_t i = 0; i < expected.data.size(); ++i) {
          ASSERT_NEAR(pooled.data[i], expected.data[i], 1e-6 * (most * fields + 1))
              << "width " << width;
        }
        for (size_t i = 0; i < expected_gradient.size(); ++i) {
          ASSERT_NEAR(rows_gradient.at(i / width, i % width), expected_gradient[i],
                      1e-6 * (expected_count[i / width] + 1))
              << "width " << width;
        }
      }
    }
  }
}

TEST_P(StreamContractTest, ProductsAreByElementOrByRow) {
  for (const size_t columns : {1, 5, 16, 33}) {
    for (const size_t factors : {columns, size_t{1}}) {
      for (const Write write : {Write::kReplace, Write::kAdd}) {
        Buffer a = RandomBuffer(random_, 9, columns, 1), b = RandomBuffer(random_, 9, factors, 2);
        Buffer out = RandomBuffer(random_, 9, columns, 3), dots(9, 1, 4);
        Buffer before = out;
        stream_->Multiply(a.matrix(), b.matrix(), write, out.matrix());
        for (size_t r = 0; r < 9; ++r) {
          for (size_t c = 0; c < columns; ++c) {
            const float product = a.at(r, c) * b.at(r, factors == 1 ? 0 : c);
            ASSERT_NEAR(out.at(r, c), write == Write::kAdd ? before.at(r, c) + product : product,
                        1e-6);
          }
        }
        EXPECT_TRUE(out.PaddingIsUntouched());
        if (factors != columns) continue;
        stream_->RowDots(a.matrix(), b.matrix(), dots.matrix());
        for (size_t r = 0; r < 9; ++r) {
          double expected = 0;
          for (size_t c = 0; c < columns; ++c) expected += double{a.at(r, c)} * b.at(r, c);
          ASSERT_NEAR(dots.at(r, 0), expected, 1e-6 * static_cast<double>(columns + 1));
        }
        EXPECT_TRUE(dots.PaddingIsUntouched());
      }
    }
  }
}

TEST_P(StreamContractTest, SoftmaxMatchesTheFormulaAlsoInPlace) {
  for (const size_t columns : {1, 2, 40}) {
    Buffer x = RandomBuffer(random_, 7, columns, 1), y(7, columns, 2);
    // Far from 0, where a naive exp would overflow.
    for (size_t r = 0; r < 7; ++r) {
      for (size_t c = 0; c < columns; ++c) x.at(r, c) = x.at(r, c) * 4 + (r % 2 == 0 ? 500 : -500);
    }
    stream_->Softmax(x.matrix(), y.matrix());
    for (size_t r = 0; r < 7; ++r) {
      const double shift = r % 2 == 0 ? 500 : -500;
      double sum = 0;
      for (size_t c = 0; c < columns; ++c) sum += std::exp(x.at(r, c) - shift);
      for (size_t c = 0; c < columns; ++c)
        ASSERT_NEAR(y.at(r, c), std::exp(x.at(r, c) - shift) / sum, 1e-6);
    }
    EXPECT_TRUE(y.PaddingIsUntouched());
    stream_->Softmax(x.matrix(), x.matrix());
    for (size_t r = 0; r < 7; ++r) {
      for (size_t c = 0; c < columns; ++c) ASSERT_EQ(x.at(r, c), y.at(r, c));
    }
  }
}

TEST_P(StreamContractTest, MaximaGoBackToTheEntriesThatHaveThem) {
  // {samples, fields, most entries in a field}
  const size_t shapes[][3] = {{0, 2, 1}, {1, 1, 1}, {30, 3, 4}, {100, 1, 9}, {3, 2, 0}};
  for (const auto& [samples, fields, most] : shapes) {
    OwnedEntries owned;
    owned.samples = samples;
    owned.fields = fields;
    for (size_t f = 0; f < samples * fields; ++f) {
      for (size_t count = RandomBelow(most + 1); count > 0; --count) {
        owned.entry_key.push_back(static_cast<uint32_t>(owned.keys++));
        owned.entry_value.push_back(1);
      }
      owned.field_begin.push_back(static_cast<uint32_t>(owned.entry_key.size()));
    }
    for (const size_t width : {1, 3, 16}) {
      // A field's first two entries are equal, so that the first must be chosen.
      Buffer rows = RandomBuffer(random_, owned.keys, width, 1),
             rows_gradient(owned.keys, width, 2);
      for (size_t f = 0; f < samples * fields; ++f) {
        const uint32_t begin = owned.field_begin[f];
        if (owned.field_begin[f + 1] < begin + 2) continue;
        for (size_t c = 0; c < width; ++c) rows.at(begin + 1, c) = rows.at(begin, c);
      }
      Buffer largest(samples, fields * width, 3);
      Buffer gradient = RandomBuffer(random_, samples, fields * width, 1);
      std::vector<uint32_t> chosen(samples * fields * width);
      stream_->MaxOfEntries(owned.view(), rows.matrix(), largest.matrix(), chosen.data());
      stream_->MaxOfEntriesBackward(owned.view(), gradient.matrix(), chosen.data(),
                                    rows_gradient.matrix());
      for (size_t f = 0; f < samples * fields; ++f) {
        const uint32_t begin = owned.field_begin[f], end = owned.field_begin[f + 1];
        for (size_t c = 0; c < width; ++c) {
          uint32_t best = begin;
          for (uint32_t e = begin; e < end; ++e) {
            if (rows.at(e, c) > rows.at(best, c)) best = e;
          }
          const size_t column = f % fields * width + c;
          ASSERT_EQ(largest.at(f / fields, column), begin == end ? 0 : rows.at(best, c));
          for (uint32_t e = begin; e < end; ++e) {
            ASSERT_EQ(rows_gradient.at(e, c), e == best ? gradient.at(f / fields, column) : 0.0f);
          }
        }
      }
      EXPECT_TRUE(largest.PaddingIsUntouched());
      EXPECT_TRUE(rows_gradient.PaddingIsUntouched());
    }
  }
}

TEST_P(StreamContractTest, WeightsMultiplyTheLossesOfTheirSamples) {
  constexpr size_t kSamples = 300;
  const std::vector<float> outputs = RandomVector(random_, kSamples);
  std::vector<float> labels(kSamples), weights(kSamples), whole(kSamples), weighted(kSamples);
  for (size_t s = 0; s < kSamples; ++s) {
    labels[s] = s % 2 == 0 ? 1 : 0;
    weights[s] = static_cast<float>(s % 5) / 2;
  }
  for (const int loss : {0, 1, 2}) {
    const auto run = [&](size_t first, size_t samples, const float* by, float* gradients) {
      double sum = kNan;
      const float* const x = outputs.data() + first;
      const float* const y = labels.data() + first;
      if (loss == 0) stream_->LogisticLoss(samples, x, y, by, 0.5f, gradients, &sum);
      if (loss == 1) stream_->SquaredLoss(samples, x, y, by, 0.5f, gradients, &sum);
      if (loss == 2) {
        stream_->SoftmaxLoss({x, samples / 2, 2, 2}, y, by, 0.5f, {gradients, samples / 2, 2, 2},
                             &sum);
      }
      return sum;
    };
    // Two outputs are one sample of SoftmaxLoss.
    const size_t step = loss == 2 ? 2 : 1;
    const double sum = run(0, kSamples, weights.data(), weighted.data());
    double expected = 0;
    run(0, kSamples, nullptr, whole.data());
    for (size_t s = 0; s < kSamples; ++s)
      ASSERT_NEAR(weighted[s], whole[s] * weights[s / step], 1e-6) << loss;
    if (loss == 2) continue;
    for (size_t s = 0; s < kSamples; ++s) {
      float gradient = 0;
      expected += weights[s] * run(s, 1, nullptr, &gradient);
    }
    EXPECT_NEAR(sum, expected, 1e-6) << loss;
  }
}

TEST_P(StreamContractTest, SumOfDotsMatchesThePairs) {
  const size_t shapes[][3] = {{0, 3, 4},   {1, 1, 1},   {20, 8, 16}, {9, 5, 7},  {3, 40, 1},
                              {5, 26, 64}, {2, 3, 128}, {2, 2, 260}, {700, 4, 4}};
  for (const auto& shape : shapes) {
    const size_t rows = shape[0], count = shape[1], dim = shape[2];
    Buffer vectors = RandomBuffer(random_, rows, count * dim, 3), sums(rows, dim, 1),
           gradient = RandomBuffer(random_, rows, count * dim, 5);
    Buffer gradient_before = gradient;
    std::vector<float> outputs = RandomVector(random_, rows);
    const std::vector<float> outputs_before = outputs,
                             output_gradients = RandomVector(random_, rows);
    stream_->SumOfDots(vectors.matrix(), dim, sums.matrix(), outputs.data());
    const auto check = [&](float begin_factor) {
      for (size_t r = 0; r < rows; ++r) {
        double dots = 0;
        for (size_t i = 0; i < count; ++i) {
          for (size_t d = 0; d < dim; ++d) {
            double others = 0;
            for (size_t j = 0; j < count; ++j) {
              if (j != i) others += vectors.at(r, j * dim + d);
              if (j < i)
                dots +=
                    static_cast<double>(vectors.at(r, i * dim + d)) * vectors.at(r, j * dim + d);
            }
            ASSERT_NEAR(
                gradient.at(r, i * dim + d),
                begin_factor * gradient_before.at(r, i * dim + d) + output_gradients[r] * others,
                1e-6 * count);
          }
        }
        ASSERT_NEAR(outputs[r], outputs_before[r] + dots, 1e-6 * count * dim);
      }
    };
    stream_->SumOfDotsBackward(vectors.matrix(), dim, sums.matrix(), output_gradients.data(),
                               Write::kAdd, gradient.matrix());
    check(1);
    EXPECT_TRUE(gradient.PaddingIsUntouched());
    std::fill(gradient.data.begin(), gradient.data.end(), kNan);
    stream_->SumOfDotsBackward(vectors.matrix(), dim, sums.matrix(), output_gradients.data(),
                               Write::kReplace, gradient.matrix());
    check(0);
  }
}

TEST_P(StreamContractTest, PairwiseDotsMatchReference) {
  // In the last ones, a vector, or all of them, exceed what a group of a GPU's threads keeps.
  const size_t shapes[][3] = {{0, 3, 4},   {1, 1, 5},    {20, 9, 16}, {9, 5, 7},   {3, 12, 1},
                              {4, 2, 19},  {9, 27, 16},  {2, 28, 40}, {3, 29, 33}, {2, 70, 20},
                              {2, 95, 64}, {1, 130, 32}, {1, 380, 2}};
  for (const auto& [rows, count, dim] : shapes) {
    const size_t pairs = count * (count - 1) / 2;
    Buffer vectors = RandomBuffer(random_, rows, count * dim, 3), dots(rows, pairs, 2);
    Buffer dot_gradients = RandomBuffer(random_, rows, pairs, 1),
           gradient = RandomBuffer(random_, rows, count * dim, 4);
    Buffer gradient_before = gradient;
    stream_->PairwiseDots(vectors.matrix(), dim, dots.matrix());
    EXPECT_TRUE(dots.PaddingIsUntouched());
    for (const Write write : {Write::kAdd, Write::kReplace}) {
      if (write == Write::kReplace) std::fill(gradient.data.begin(), gradient.data.end(), kNan);
      stream_->PairwiseDotsBackward(vectors.matrix(), dim, dot_gradients.matrix(), write,
                                    gradient.matrix());
      for (size_t r = 0; r < rows; ++r) {
        std::vector<double> expected(count * dim);
        for (size_t c = 0; c < expected.size() && write == Write::kAdd; ++c)
          expected[c] = gradient_before.at(r, c);
        size_t pair = 0;
        for (size_t i = 1; i < count; ++i) {
          for (size_t j = 0; j < i; ++j, ++pair) {
            double dot = 0;
            for (size_t d = 0; d < dim; ++d) {
              dot += static_cast<double>(vectors.at(r, i * dim + d)) * vectors.at(r, j * dim + d);
              expected[i * dim + d] +=
                  static_cast<double>(dot_gradients.at(r, pair)) * vectors.at(r, j * dim + d);
              expected[j * dim + d] +=
                  static_cast<double>(dot_gradients.at(r, pair)) * vectors.at(r, i * dim + d);
            }
            ASSERT_NEAR(dots.at(r, pair), dot, 1e-6 * dim) << count << " vectors";
          }
        }
        for (size_t c = 0; c < expected.size(); ++c) {
          ASSERT_NEAR(gradient.at(r, c), expected[c], 1e-6 * (count + 1)) << count << " vectors";
        }
      }
    }
  }
}

TEST_P(StreamContractTest, LogisticLossMatchesTheFormula) {
  for (const size_t samples : {0, 1, 777, 5000}) {
    std::vector<float> logits = RandomVector(random_, samples), labels(samples),
                       gradients(samples, kNan);
    double expected = 0, loss = kNan;
    for (size_t s = 0; s < samples; ++s) {
      logits[s] *= 10;
      labels[s] = s % 3 == 0 ? 1 : (s % 3 == 1 ? 0 : -1);
      const double probability = 1 / (1 + std::exp(-static_cast<double>(logits[s])));
      expected -= std::log(labels[s] > 0 ? probability : 1 - probability);
    }
    stream_->LogisticLoss(samples, logits.data(), labels.data(), nullptr, 0.5f, gradients.data(),
                          &loss);
    EXPECT_NEAR(loss, expected, 1e-9 * (samples + 1));
    for (size_t s = 0; s < samples; ++s) {
      const double probability = 1 / (1 + std::exp(-static_cast<double>(logits[s])));
      ASSERT_NEAR(gradients[s], 0.5 * (probability - (labels[s] > 0)), 1e-7);
    }
  }
}

TEST_P(StreamContractTest, LogisticLossOfExtremeLogitsIsFinite) {
  const float logits[] = {1000, -1000, 1000, -1000}, labels[] = {1, 0, 0, 1};
  float gradients[4];
  double loss;
  stream_->LogisticLoss(4, logits, labels, nullptr, 1, gradients, &loss);
  EXPECT_EQ(loss, 2000);
  EXPECT_EQ(gradients[0], 0);
  EXPECT_EQ(gradients[1], 0);
  EXPECT_EQ(gradients[2], 1);
  EXPECT_EQ(gradients[3], -1);
}

TEST_P(StreamContractTest, NanLogitsShowInTheLoss) {
  const float logits[] = {0, kNan}, label[] = {0, 0};
  float gradients[2];
  double loss;
  stream_->LogisticLoss(2, logits, label, nullptr, 1, gradients, &loss);
  EXPECT_TRUE(std::isnan(loss));
  EXPECT_TRUE(std::isnan(gradients[1]));
  stream_->SoftmaxLoss({logits, 1, 2, 2}, label, nullptr, 1, {gradients, 1, 2, 2}, &loss);
  EXPECT_TRUE(std::isnan(loss));
}

TEST_P(StreamContractTest, SquaredLossIsHalfTheSquare) {
  for (const size_t samples : {0, 1, 100}) {
    const std::vector<float> predictions = RandomVector(random_, samples),
                             labels = RandomVector(random_, samples);
    std::vector<float> gradients(samples, kNan);
    double expected = 0, loss = kNan;
    stream_->SquaredLoss(samples, predictions.data(), labels.data(), nullptr, 4, gradients.data(),
                         &loss);
    for (size_t s = 0; s < samples; ++s) {
      const double error = static_cast<double>(predictions[s]) - labels[s];
      expected += 0.5 * error * error;
      ASSERT_NEAR(gradients[s], 4 * error, 1e-6);
    }
    EXPECT_NEAR(loss, expected, 1e-9);
  }
}

TEST_P(StreamContractTest, SoftmaxLossMatchesTheFormula) {
  for (const size_t samples : {0, 1, 50, 300}) {
    for (const size_t classes : {1, 2, 10, 33, 100}) {
      Buffer logits = RandomBuffer(random_, samples, classes, 2), gradients(samples, classes, 3);
      std::vector<float> labels(samples);
      for (float& label : labels) label = RandomBelow(classes);
      // Far from 0, where a naive exp would overflow.
      for (size_t s = 0; s < samples; ++s) {
        for (size_t c = 0; c < classes; ++c)
          logits.at(s, c) = logits.at(s, c) * 4 + (s % 2 == 0 ? 1000 : -1000);
      }
      double loss = kNan, expected = 0;
      stream_->SoftmaxLoss(logits.matrix(), labels.data(), nullptr, 2, gradients.matrix(), &loss);
      for (size_t s = 0; s < samples; ++s) {
        const double shift = s % 2 == 0 ? 1000 : -1000;
        double sum = 0;
        for (size_t c = 0; c < classes; ++c) sum += std::exp(logits.at(s, c) - shift);
        for (size_t c = 0; c < classes; ++c) {
          const double probability = std::exp(logits.at(s, c) - shift) / sum;
          if (c == labels[s]) expected -= std::log(probability);
          ASSERT_NEAR(gradients.at(s, c), 2 * (probability - (c == labels[s])), 1e-6);
        }
      }
      EXPECT_NEAR(loss, expected, 1e-9 * (samples + 1));
      EXPECT_TRUE(gradients.PaddingIsUntouched());
    }
  }
}

// Unaligned operands, and those that start in the middle of a row, use other code paths of a
// device.
TEST_P(StreamContractTest, OperandsMayBeginAnywhere) {
  constexpr size_t kRows = 21, kColumns = 24, kStride = 40;
  for (const size_t x_shift : {0, 1, 4, 7}) {
    for (const size_t y_shift : {0, 2, 8}) {
      Buffer x = RandomBuffer(random_, kRows, kStride), y = RandomBuffer(random_, kRows, kStride);
      const Buffer x_before = x, y_before = y;
      const auto part = [&](Buffer& buffer, size_t shift) {
        return buffer.matrix().Columns(shift, kColumns);
      };
      stream_->Copy(part(x, x_shift), Write::kAdd, part(y, y_shift));
      stream_->AddBias(x.data.data() + x_shift, part(y, y_shift));
      stream_->Relu(part(y, y_shift));
      stream_->ReluBackward(part(y, y_shift), part(x, x_shift));
      std::vector<float> sums(kStride, kPadding);
      stream_->SumColumns(part(y, y_shift), sums.data() + x_shift);
      for (size_t c = 0; c < kColumns; ++c) {
        double sum = 0;
        for (size_t r = 0; r < kRows; ++r) {
          const float old = x_before.data[r * kStride + x_shift + c];
          const float value =
              y_before.data[r * kStride + y_shift + c] + old + x_before.data[x_shift + c];
          ASSERT_EQ(y.at(r, y_shift + c), std::max(value, 0.0f));
          ASSERT_EQ(x.at(r, x_shift + c), value > 0 ? old : 0);
          sum += std::max(value, 0.0f);
        }
        ASSERT_NEAR(sums[x_shift + c], sum, 1e-5);
      }
      for (size_t c = 0; c < kStride; ++c) {
        const bool is_in_x = c >= x_shift && c < x_shift + kColumns,
                   is_in_y = c >= y_shift && c < y_shift + kColumns;
        for (size_t r = 0; r < kRows; ++r) {
          ASSERT_TRUE(is_in_x || x.at(r, c) == x_before.data[r * kStride + c]);
          ASSERT_TRUE(is_in_y || y.at(r, c) == y_before.data[r * kStride + c]);
        }
        ASSERT_TRUE(is_in_x || sums[c] == kPadding);
      }
    }
  }
}

TEST_P(StreamContractTest, SameInputsGiveTheSameBits) {
  OwnedEntries owned;
  owned.samples = 500;
  owned.fields = 3;
  owned.keys = 17;
  for (size_t f = 0; f < owned.samples * owned.fields; ++f) {
    owned.entry_key.push_back(RandomBelow(RandomBelow(2) == 0 ? 2 : owned.keys));
    owned.entry_value.push_back(Random());
    owned.field_begin.push_back(owned.entry_key.size());
  }
  Buffer x = RandomBuffer(random_, 500, 48), gradient(500, 48);
  const std::vector<float> labels = RandomVector(random_, 500 * 48);
  std::vector<float> first;
  for (int run = 0; run < 3; ++run) {
    std::vector<float> result(17 * 16 + 48 + 500 + 48 * 48 + 1);
    float* to = result.data();
    stream_->PoolRowsBackward(owned.view(), PoolOver::kField, x.matrix(), {to, 17, 16, 16});
    stream_->SumColumns(x.matrix(), to += 17 * 16);
    Buffer sums(500, 16);
    stream_->SumOfDots(x.matrix(), 16, sums.matrix(), to += 48);
    stream_->Gemm(Factors::kFloat32, Transpose::kYes, Transpose::kNo, 1, x.matrix(), x.matrix(), 0,
                  {to += 500, 48, 48, 48});
    double loss = 0;
    stream_->SquaredLoss(labels.size(), x.data.data(), labels.data(), nullptr, 1,
                         gradient.data.data(), &loss);
    to[48 * 48] = static_cast<float>(loss);
    if (run == 0) first = result;
    ASSERT_EQ(std::memcmp(first.data(), result.data(), result.size() * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace pawl
