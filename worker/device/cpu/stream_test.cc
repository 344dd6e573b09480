// Tests the bits of the CPU's operations, which are specified beyond the contract of every device
// (worker/device/testing/stream_contract.h).
#include "worker/device/cpu/stream.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "server/optimizer/math/deterministic_math.h"
#include "worker/device/cpu/device.h"
#include "worker/device/cpu/gemm/gemm.h"
#include "worker/device/testing/stream_contract.h"

namespace pawl {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, StreamContractTest, ::testing::Values(DeviceOpener([] {
                           return std::make_unique<CpuDevice>();
                         })));

class CpuStreamTest : public ::testing::Test {
 protected:
  float Random() { return std::uniform_real_distribution<float>(-1, 1)(random_); }
  size_t RandomBelow(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  std::vector<float> RandomVector(size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = Random();
    return values;
  }

  CpuDevice device_;
  CpuStream stream_;
  std::mt19937 random_{20240607};
};

// Heap addresses differ from run to run, but results must not.
TEST_F(CpuStreamTest, GemmGivesTheSameBitsAtAnyAlignment) {
  const size_t sizes[][3] = {
      {512, 128, 128}, {513, 1, 64}, {128, 64, 4096}, {10, 128, 600}, {31, 17, 9}};
  for (const auto& [m, n, k] : sizes) {
    const std::vector<float> a = RandomVector(m * k), b = RandomVector(k * n);
    std::vector<float> first;
    for (const size_t shift : {0, 1, 3, 8, 15}) {
      std::vector<float> a_shifted(shift), b_shifted(15 - shift), c(m * n + shift);
      a_shifted.insert(a_shifted.end(), a.begin(), a.end());
      b_shifted.insert(b_shifted.end(), b.begin(), b.end());
      for (const Transpose transpose_a : {Transpose::kNo, Transpose::kYes}) {
        const bool yes = transpose_a == Transpose::kYes;
        stream_.Gemm(Factors::kFloat32, transpose_a, Transpose::kNo, 1,
                     {a_shifted.data() + shift, yes ? k : m, yes ? m : k, yes ? m : k},
                     {b_shifted.data() + 15 - shift, k, n, n}, 0, {c.data() + shift, m, n, n});
      }
      std::vector<float> result(c.begin() + shift, c.end());
      if (first.empty()) first = result;
      ASSERT_EQ(std::memcmp(first.data(), result.data(), result.size() * sizeof(float)), 0)
          << m << " " << n << " " << k;
    }
  }
}

TEST_F(CpuStreamTest, ColumnsAreSummedFromFirstToLastRow) {
  constexpr size_t kRows = 4096, kColumns = 5;
  const std::vector<float> x = RandomVector(kRows * kColumns);
  std::vector<float> sums(kColumns), expected(kColumns);
  stream_.SumColumns({x.data(), kRows, kColumns, kColumns}, sums.data());
  for (size_t i = 0; i < x.size(); ++i) expected[i % kColumns] += x[i];
  EXPECT_EQ(sums, expected);
}

TEST_F(CpuStreamTest, EntriesAreSummedInTheirOrder) {
  constexpr size_t kSamples = 300, kKeys = 3, kWidth = 5;
  std::vector<uint32_t> field_begin = {0}, entry_key;
  for (size_t s = 0; s < kSamples; ++s) {
    for (int entry = 0; entry < 4; ++entry) entry_key.push_back(RandomBelow(kKeys));
    field_begin.push_back(entry_key.size());
  }
  const std::vector<float> value = RandomVector(entry_key.size()),
                           rows = RandomVector(kKeys * kWidth),
                           gradient = RandomVector(kSamples * kWidth);
  const Entries entries{kSamples,         1,           entry_key.size(), kKeys, field_begin.data(),
                        entry_key.data(), value.data()};
  std::vector<float> pooled(kSamples * kWidth), expected(kSamples * kWidth);
  std::vector<float> rows_gradient(rows.size()), expected_gradient(rows.size());
  stream_.PoolRows(entries, PoolOver::kField, {rows.data(), kKeys, kWidth, kWidth},
                   {pooled.data(), kSamples, kWidth, kWidth});
  stream_.PoolRowsBackward(entries, PoolOver::kField, {gradient.data(), kSamples, kWidth, kWidth},
                           {rows_gradient.data(), kKeys, kWidth, kWidth});
  for (size_t e = 0; e < entry_key.size(); ++e) {
    for (size_t d = 0; d < kWidth; ++d) {
      expected[e / 4 * kWidth + d] += value[e] * rows[entry_key[e] * kWidth + d];
      expected_gradient[entry_key[e] * kWidth + d] += value[e] * gradient[e / 4 * kWidth + d];
    }
  }
  EXPECT_EQ(pooled, expected);
  EXPECT_EQ(rows_gradient, expected_gradient);
}

// Sums across the elements of a vector, as loops.h specifies them.
class Lanes {
 public:
  void Add(size_t element, float x) { lanes_[element % 16] += x; }
  float Sum() {
    for (size_t half = 8; half > 0; half /= 2) {
      for (size_t l = 0; l < half; ++l) lanes_[l] += lanes_[l + half];
    }
    return lanes_[0];
  }

 private:
  float lanes_[16] = {};
};

constexpr size_t kDims[] = {1, 3, 4, 8, 13, 16, 17, 31, 32, 40, 64};

TEST_F(CpuStreamTest, DotsAreSummedInLanesByAllKernels) {
  constexpr size_t kRows = 5, kCount = 4;
  for (const size_t dim : kDims) {
    const size_t columns = kCount * dim;
    const std::vector<float> vectors = RandomVector(kRows * columns), outputs = RandomVector(kRows);
    std::vector<float> expected = outputs, expected_dots;
    for (size_t r = 0; r < kRows; ++r) {
      const float* const row = vectors.data() + r * columns;
      Lanes lanes;
      for (size_t d = 0; d < dim; ++d) {
        float sum = 0, squares = 0;
        for (size_t i = 0; i < kCount; ++i) {
          sum += row[i * dim + d];
          squares += row[i * dim + d] * row[i * dim + d];
        }
        lanes.Add(d, sum * sum - squares);
      }
      expected[r] += 0.5f * lanes.Sum();
      for (size_t i = 0; i < kCount; ++i) {
        for (size_t j = 0; j < i; ++j) {
          Lanes dot;
          for (size_t d = 0; d < dim; ++d) dot.Add(d, row[i * dim + d] * row[j * dim + d]);
          expected_dots.push_back(dot.Sum());
        }
      }
    }
    for (const GemmKernel kernel : SupportedGemmKernels()) {
      SCOPED_TRACE(testing::Message() << GemmKernelName(kernel) << ", dim " << dim);
      CpuStream stream(kernel);
      std::vector<float> sums(kRows * dim), result = outputs, dots(expected_dots.size());
      const ConstMatrix of(vectors.data(), kRows, columns, columns);
      stream.SumOfDots(of, dim, {sums.data(), kRows, dim, dim}, result.data());
      stream.PairwiseDots(of, dim, {dots.data(), kRows, dots.size() / kRows, dots.size() / kRows});
      EXPECT_EQ(result, expected);
      EXPECT_EQ(dots, expected_dots);
    }
  }
}

// All other loops compute element by element.
TEST_F(CpuStreamTest, AllKernelsGiveTheSameBits) {
  constexpr size_t kSamples = 70, kFields = 3, kKeys = 9;
  std::vector<uint32_t> field_begin = {0}, entry_key;
  for (size_t f = 0; f < kSamples * kFields; ++f) {
    for (size_t count = RandomBelow(4); count > 0; --count) entry_key.push_back(RandomBelow(kKeys));
    field_begin.push_back(entry_key.size());
  }
  const std::vector<float> value = RandomVector(entry_key.size());
  const Entries entries{kSamples,           kFields,          entry_key.size(), kKeys,
                        field_begin.data(), entry_key.data(), value.data()};
  for (const size_t dim : kDims) {
    const size_t columns = kFields * dim;
    const std::vector<float> x = RandomVector(kSamples * columns),
                             rows = RandomVector(kKeys * (dim + 1)),
                             y = RandomVector(kSamples * columns);
    const ConstMatrix vectors(x.data(), kSamples, columns, columns);
    std::vector<float> first;
    for (const GemmKernel kernel : SupportedGemmKernels()) {
      CpuStream stream(kernel);
      std::vector<float> all;
      const auto keep = [&](const std::vector<float>& part) {
        all.insert(all.end(), part.begin(), part.end());
      };
      for (const PoolOver over : {PoolOver::kField, PoolOver::kSample}) {
        const size_t width = over == PoolOver::kField ? columns : dim;
        std::vector<float> pooled(kSamples * width), gradient(rows.size());
        stream.PoolRows(entries, over, {rows.data(), kKeys, dim, dim + 1},
                        {pooled.data(), kSamples, width, width});
        stream.PoolRowsBackward(entries, over, {x.data(), kSamples, width, columns},
                                {gradient.data(), kKeys, dim, dim + 1});
        keep(pooled);
        keep(gradient);
      }
      for (const Write write : {Write::kReplace, Write::kAdd}) {
        std::vector<float> gradient = y;
        const Matrix to{gradient.data(), kSamples, columns, columns};
        stream.SumOfDotsBackward(vectors, dim, {y.data(), kSamples, dim, columns}, x.data(), write,
                                 to);
        stream.PairwiseDotsBackward(vectors, dim, {y.data(), kSamples, 3, 3}, Write::kAdd, to);
        keep(gradient);
      }
      std::vector<float> gradient = y, sums(columns), masked = y, masked_sums(columns);
      stream.ReluBackwardAndSum(vectors, {gradient.data(), kSamples, columns, columns},
                                sums.data());
      stream.ReluBackward(vectors, {masked.data(), kSamples, columns, columns});
      stream.SumColumns({masked.data(), kSamples, columns, columns}, masked_sums.data());
      EXPECT_EQ(gradient, masked);
      EXPECT_EQ(sums, masked_sums);
      keep(gradient);
      keep(sums);
      if (first.empty()) first = all;
      ASSERT_EQ(std::memcmp(first.data(), all.data(), all.size() * sizeof(float)), 0)
          << GemmKernelName(kernel) << ", dim " << dim;
    }
  }
}

TEST_F(CpuStreamTest, LayerRoundsAsItsParts) {
  for (const size_t inner : {1, 40, 300}) {
    for (const size_t columns : {1, 5, 8, 33, 64, 130}) {
      constexpr size_t kRows = 29;
      const std::vector<float> input = RandomVector(kRows * inner),
                               weight = RandomVector(inner * columns), bias = RandomVector(columns),
                               before = RandomVector(kRows * columns);
      for (const GemmKernel kernel : SupportedGemmKernels()) {
        CpuStream stream(kernel);
        for (const Activation activation : {Activation::kLinear, Activation::kRelu}) {
          for (const float beta : {0.0f, 1.0f}) {
            std::vector<float> result = before, expected = before;
            const ConstMatrix x(input.data(), kRows, inner, inner);
            const ConstMatrix w(weight.data(), inner, columns, columns);
            stream.Layer(Factors::kFloat32, x, w, bias.data(), activation, beta,
                         {result.data(), kRows, columns, columns});
            stream.Stream::Layer(Factors::kFloat32, x, w, bias.data(), activation, beta,
                                 {expected.data(), kRows, columns, columns});
            ASSERT_EQ(std::memcmp(result.data(), expected.data(), result.size() * sizeof(float)), 0)
                << GemmKernelName(kernel) << " " << inner << " " << columns;
          }
        }
      }
    }
  }
}

TEST_F(CpuStreamTest, LayerPropagatesNan) {
  const float input[] = {std::nanf(""), 1}, bias[9] = {};
  for (const GemmKernel kernel : SupportedGemmKernels()) {
    for (const size_t columns : {1, 9}) {
      const std::vector<float> weight(columns, 1);
      std::vector<float> result(2 * columns);
      CpuStream(kernel).Layer(Factors::kFloat32, {input, 2, 1, 1},
                              {weight.data(), 1, columns, columns}, bias, Activation::kRelu, 0,
                              {result.data(), 2, columns, columns});
      EXPECT_TRUE(std::isnan(result[columns - 1]));
      EXPECT_EQ(result[columns], 1);
    }
  }
}

TEST_F(CpuStreamTest, LogisticLossHasTheBitsOfTheScalarFunctions) {
  constexpr size_t kSamples = 20003;
  constexpr float kScale = 0.3f;
  std::vector<float> logits(kSamples), labels(kSamples), expected(kSamples);
  double expected_sum = 0;
  for (size_t s = 0; s < kSamples; ++s) {
    // From tiny to where the exponential is 0.
    logits[s] = Random() * std::exp2(std::floor(Random() * 11));
    if (s % 100 == 0) logits[s] = s % 200 == 0 ? 0.0f : -0.0f;
    labels[s] = static_cast<float>(RandomBelow(3)) - 1;
    const double z = logits[s];
    const bool positive = labels[s] > 0;
    const double e = DeterministicExp(-std::abs(z));
    const double probability = (z < 0 ? e : 1.0) / (1.0 + e);
    expected_sum += DeterministicLog1p(e) + std::max(positive ? -z : z, 0.0);
    expected[s] = static_cast<float>(kScale * (probability - (positive ? 1.0 : 0.0)));
  }
  for (const GemmKernel kernel : SupportedGemmKernels()) {
    std::vector<float> gradients(kSamples);
    double sum = 0;
    CpuStream(kernel).LogisticLoss(kSamples, logits.data(), labels.data(), /*weights=*/nullptr,
                                   kScale, gradients.data(), &sum);
    EXPECT_EQ(sum, expected_sum) << GemmKernelName(kernel);
    EXPECT_EQ(std::memcmp(gradients.data(), expected.data(), kSamples * sizeof(float)), 0)
        << GemmKernelName(kernel);
  }
}

}  // namespace
}  // namespace pawl
