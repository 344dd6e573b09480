// Tests the bits of the CPU's operations, which are specified beyond the contract of every device
// (worker/device/testing/stream_contract.h).
#include "worker/device/cpu/stream.h"

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "worker/device/cpu/device.h"
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
  stream_.PoolRows(entries, PoolOver::kField, rows.data(), kWidth,
                   {pooled.data(), kSamples, kWidth, kWidth});
  stream_.PoolRowsBackward(entries, PoolOver::kField, {gradient.data(), kSamples, kWidth, kWidth},
                           kWidth, rows_gradient.data());
  for (size_t e = 0; e < entry_key.size(); ++e) {
    for (size_t d = 0; d < kWidth; ++d) {
      expected[e / 4 * kWidth + d] += value[e] * rows[entry_key[e] * kWidth + d];
      expected_gradient[entry_key[e] * kWidth + d] += value[e] * gradient[e / 4 * kWidth + d];
    }
  }
  EXPECT_EQ(pooled, expected);
  EXPECT_EQ(rows_gradient, expected_gradient);
}

}  // namespace
}  // namespace pawl
