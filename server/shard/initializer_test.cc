#include "server/shard/initializer.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/base/random.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "server/optimizer/math/deterministic_math.h"

namespace pawl {
namespace {

TableSpec Parse(const std::string& text) {
  TableSpec table;
  if (!google::protobuf::TextFormat::ParseFromString(text, &table))
    ADD_FAILURE() << "not a TableSpec: " << text;
  return table;
}

std::unique_ptr<const TableInitializer> Make(const std::string& initializer, uint64_t job_seed = 7,
                                             const std::string& name = "embedding") {
  auto made = TableInitializer::Create(
      Parse("name: '" + name + "' kind: SPARSE row_width: 16 initializer { " + initializer + " }"),
      job_seed);
  if (!made.ok()) ADD_FAILURE() << made.status();
  return *std::move(made);
}

std::vector<float> Fill(const TableInitializer& initializer, uint64_t key, size_t begin,
                        size_t count) {
  std::vector<float> values(count);
  initializer.Fill(key, begin, count, values.data());
  return values;
}

const char* const kRandom[] = {
    "uniform { low: -2 high: 3 }",
    "normal { mean: 1 stddev: 2 }",
    "truncated_normal { mean: 1 stddev: 2 }",
    "xavier {}",
};

struct Moments {
  double mean = 0.0;
  double variance = 0.0;
  double skewness = 0.0;
  double kurtosis = 0.0;
  double least = 0.0;
  double most = 0.0;
};

// The moments of 2^20 values in 65,536 rows.
Moments MomentsOf(const std::string& initializer) {
  const auto made = Make(initializer);
  std::vector<double> values;
  for (uint64_t key = 0; key < 65536; ++key) {
    for (const float x : Fill(*made, key, 0, 16)) values.push_back(x);
  }
  Moments moments;
  const double count = static_cast<double>(values.size());
  for (const double x : values) moments.mean += x / count;
  for (const double x : values) moments.variance += (x - moments.mean) * (x - moments.mean) / count;
  const double deviation = std::sqrt(moments.variance);
  for (const double x : values) {
    moments.skewness += std::pow((x - moments.mean) / deviation, 3) / count;
    moments.kurtosis += std::pow((x - moments.mean) / deviation, 4) / count;
  }
  moments.least = *std::min_element(values.begin(), values.end());
  moments.most = *std::max_element(values.begin(), values.end());
  return moments;
}

// The bounds below are about 5 standard errors of 2^20 independent values.

TEST(InitializerTest, UniformHasExpectedMomentsAndRange) {
  const Moments moments = MomentsOf("uniform { low: -2 high: 3 }");
  EXPECT_NEAR(moments.mean, 0.5, 0.007);
  EXPECT_NEAR(moments.variance, 25.0 / 12.0, 0.01);
  EXPECT_NEAR(moments.skewness, 0.0, 0.01);
  EXPECT_NEAR(moments.kurtosis, 1.8, 0.01);
  EXPECT_GE(moments.least, -2.0);
  EXPECT_LT(moments.least, -1.9999);
  EXPECT_LT(moments.most, 3.0);
  EXPECT_GT(moments.most, 2.9999);
}

TEST(InitializerTest, NormalHasExpectedMoments) {
  const Moments moments = MomentsOf("normal { mean: 1 stddev: 2 }");
  EXPECT_NEAR(moments.mean, 1.0, 0.01);
  EXPECT_NEAR(moments.variance, 4.0, 0.028);
  EXPECT_NEAR(moments.skewness, 0.0, 0.012);
  EXPECT_NEAR(moments.kurtosis, 3.0, 0.024);
  EXPECT_LT(moments.most, 15.0);
  EXPECT_GT(moments.most, 9.0);
}

TEST(InitializerTest, TruncatedNormalStaysWithinTwoDeviations) {
  const Moments moments = MomentsOf("truncated_normal { mean: 1 stddev: 2 }");
  EXPECT_NEAR(moments.mean, 1.0, 0.009);
  // 1 - 4 phi(2) / (2 Phi(2) - 1) of the untruncated variance.
  EXPECT_NEAR(moments.variance, 4.0 * 0.7737412, 0.02);
  EXPECT_NEAR(moments.skewness, 0.0, 0.012);
  EXPECT_GE(moments.least, -3.0);
  EXPECT_LT(moments.least, -2.99);
  EXPECT_LE(moments.most, 5.0);
  EXPECT_GT(moments.most, 4.99);
}

TEST(InitializerTest, XavierTakesItsFansFromTheTable) {
  const struct {
    const char* table;
    double limit;
  } kCases[] = {
      {"kind: DENSE shape: [30, 20] initializer { xavier {} }", std::sqrt(6.0 / 50)},
      {"kind: SPARSE row_width: 16 initializer { xavier {} }", std::sqrt(6.0 / 17)},
      {"kind: SPARSE row_width: 16 initializer { xavier { gain: 0.5 } }",
       0.5 * std::sqrt(6.0 / 17)},
      {"kind: SPARSE row_width: 16 initializer { xavier { fan_in: 8 } }", std::sqrt(6.0 / 24)},
      {"kind: DENSE shape: [5, 3, 3] initializer { xavier { fan_in: 4 fan_out: 20 } }", 0.5},
  };
  for (const auto& test : kCases) {
    const auto made = *TableInitializer::Create(Parse(test.table), 1);
    const std::vector<float> values = Fill(*made, 0, 0, 65536);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    EXPECT_GE(*least, static_cast<float>(-test.limit)) << test.table;
    EXPECT_LT(*least, -test.limit * 0.999) << test.table;
    EXPECT_LT(*most, static_cast<float>(test.limit)) << test.table;
    EXPECT_GT(*most, test.limit * 0.999) << test.table;
  }
}

TEST(InitializerTest, ConstantIsConstantAndUnsetIsZero) {
  EXPECT_EQ(Fill(*Make("constant { value: 0.25 }"), 3, 5, 9), std::vector<float>(9, 0.25f));
  EXPECT_EQ(Fill(*Make(""), 3, 5, 9), std::vector<float>(9, 0.0f));
}

TEST(InitializerTest, ManyRowsEqualSingleRows) {
  for (const char* spec : kRandom) {
    const auto made = Make(std::string(spec) + " zero_from: 13");
    for (const size_t width : {1, 4, 5, 13, 16, 17, 31, 32, 33, 64, 70}) {
      for (const size_t count : {0, 1, 2, 3, 5, 16, 17, 40}) {
        std::vector<uint64_t> keys(count);
        std::vector<std::vector<float>> rows(count, std::vector<float>(width + 1, 99.0f));
        std::vector<float*> places(count);
        for (size_t i = 0; i < count; ++i) {
          keys[i] = (i + 1) * 0x9e3779b97f4a7c15u;
          places[i] = rows[i].data();
        }
        made->FillRows(keys, width, places.data());
        for (size_t i = 0; i < count; ++i) {
          std::vector<float> expected = Fill(*made, keys[i], 0, width);
          expected.push_back(99.0f);
          ASSERT_EQ(rows[i], expected) << spec << ", width " << width << ", row " << i;
        }
      }
    }
  }
}

TEST(InitializerTest, EveryInstructionSetGivesTheSameBits) {
  for (const char* spec : kRandom) {
    const TableSpec table =
        Parse(std::string("name: 'x' kind: SPARSE row_width: 200 initializer { ") + spec + " }");
    const auto reference = *TableInitializer::Create(table, 3, Isa::kPortable);
    for (const Isa isa : SupportedIsas()) {
      const auto made = *TableInitializer::Create(table, 3, isa);
      for (uint64_t key = 0; key < 2000; ++key) {
        ASSERT_EQ(Fill(*made, key << 27, 0, 200), Fill(*reference, key << 27, 0, 200))
            << spec << " with " << IsaName(isa) << ", key " << (key << 27);
      }
    }
  }
}

// Computes single elements as the comment of initializer.h says.
TEST(InitializerTest, ValuesAreThoseOfTheSpecification) {
  const auto normal = Make("normal { mean: 1 stddev: 2 }", 7, "embedding");
  const std::string name = "embedding";
  const uint64_t stream = XXH64(name.data(), name.size(), 7);
  for (uint64_t key = 0; key < 3000; ++key) {
    const uint64_t far_key = key * 0x9e3779b97f4a7c15u;
    const std::vector<float> row = Fill(*normal, far_key, 0, 70);
    for (size_t i = 0; i < row.size(); ++i) {
      const uint32_t x = Philox4x32(far_key, i / 4, stream)[i % 4];
      const double z = InverseNormal((static_cast<double>(x) + 0.5) * 0x1p-32);
      ASSERT_EQ(row[i], static_cast<float>(1.0 + 2.0 * z)) << far_key << ", " << i;
    }
  }
}

TEST(InitializerTest, PartialFillEqualsThatPartOfTheRow) {
  for (const char* spec : kRandom) {
    const auto made = Make(spec);
    const std::vector<float> row = Fill(*made, 42, 0, 200);
    for (size_t begin = 0; begin < 140; begin += begin < 9 ? 1 : 13) {
      for (const size_t count : {0, 1, 2, 3, 4, 5, 16, 60, 61, 64, 65}) {
        if (begin + count > row.size()) continue;
        EXPECT_EQ(Fill(*made, 42, begin, count),
                  std::vector<float>(row.begin() + begin, row.begin() + begin + count))
            << spec << " from " << begin << ", " << count;
      }
    }
  }
}

TEST(InitializerTest, ElementsFromZeroFromOnAreZero) {
  for (const std::string spec : kRandom) {
    const std::vector<float> all = Fill(*Make(spec), 42, 0, 16);
    for (const size_t zero_from : {1, 4, 7, 15}) {
      const auto made = Make(spec + " zero_from: " + std::to_string(zero_from));
      std::vector<float> expected = all;
      std::fill(expected.begin() + zero_from, expected.end(), 0.0f);
      for (size_t begin = 0; begin < 16; ++begin) {
        for (size_t end = begin; end <= 16; ++end) {
          EXPECT_EQ(Fill(*made, 42, begin, end - begin),
                    std::vector<float>(expected.begin() + begin, expected.begin() + end))
              << spec << " " << zero_from;
        }
      }
    }
  }
}

TEST(InitializerTest, FillWritesNothingBeyondTheCount) {
  for (const char* spec : kRandom) {
    std::vector<float> values(20, 99.0f);
    Make(spec)->Fill(1, 2, 17, values.data() + 1);
    EXPECT_EQ(values.front(), 99.0f) << spec;
    EXPECT_EQ(values[18], 99.0f) << spec;
    EXPECT_EQ(values.back(), 99.0f) << spec;
  }
}

TEST(InitializerTest, ValuesDependOnSeedNameAndKey) {
  for (const char* spec : kRandom) {
    const std::vector<float> row = Fill(*Make(spec, 7, "a"), 1, 0, 16);
    EXPECT_EQ(Fill(*Make(spec, 7, "a"), 1, 0, 16), row);
    // The rows have no equal element at the same place: the chance is at most 16 in 2^24.
    for (const std::vector<float>& other :
         {Fill(*Make(spec, 8, "a"), 1, 0, 16), Fill(*Make(spec, 7, "b"), 1, 0, 16),
          Fill(*Make(spec, 7, "a"), 2, 0, 16),
          Fill(*Make(spec, 7, "a"), uint64_t{1} << 32 | 1, 0, 16),
          Fill(*Make(spec, 7, "a"), 1, 16, 16)}) {
      for (size_t i = 0; i < row.size(); ++i) EXPECT_NE(row[i], other[i]) << spec << " " << i;
    }
  }
}

TEST(InitializerTest, NeighbouringRowsAreUncorrelated) {
  const auto made = Make("normal { stddev: 1 }");
  constexpr uint64_t kRows = 65536;
  double along = 0.0;
  double across = 0.0;
  std::vector<float> before = Fill(*made, kRows, 0, 16);
  for (uint64_t key = 0; key < kRows; ++key) {
    const std::vector<float> row = Fill(*made, key, 0, 16);
    for (size_t i = 0; i < 16; ++i) {
      across += row[i] * before[i];
      along += row[i] * row[(i + 1) % 16];
    }
    before = row;
  }
  // 5 standard errors of 2^20 products.
  EXPECT_NEAR(across / (16.0 * kRows), 0.0, 0.005);
  EXPECT_NEAR(along / (16.0 * kRows), 0.0, 0.005);
}

// Computed by an independent program from the header's specification (Python's own Philox, XXH64
// and statistics.NormalDist). They must never change: checkpoints and replicas rely on rows that
// were never written.
TEST(InitializerTest, ValuesArePinned) {
  const struct {
    const char* initializer;
    uint64_t key;
    std::vector<float> values;  // elements 0 to 5
  } kCases[] = {
      {"uniform { low: -2 high: 3 }",
       0x0u,
       {1.35871816f, 0.0955535769f, 2.21320868f, 2.78184795f, 0.35514164f, 0.659232318f}},
      {"uniform { low: -2 high: 3 }",
       0x123456789ABCDEF0u,
       {2.18896556f, 1.18879104f, 2.25029516f, -0.276897371f, -1.50518608f, 1.09762859f}},
      {"normal { mean: 1 stddev: 2 }",
       0x0u,
       {1.88946605f, 0.591662228f, 3.01074886f, 4.42005491f, 0.854629815f, 1.15982461f}},
      {"normal { mean: 1 stddev: 2 }",
       0x123456789ABCDEF0u,
       {2.9708569f, 1.70494604f, 3.07337332f, 0.200229853f, -1.57496834f, 1.60847092f}},
      {"truncated_normal { mean: 1 stddev: 2 }",
       0x0u,
       {1.8464216f, 0.610484183f, 2.88515472f, 4.03777599f, 0.86125505f, 1.15253818f}},
      {"truncated_normal { mean: 1 stddev: 2 }",
       0x123456789ABCDEF0u,
       {2.8492806f, 1.67160559f, 2.94124031f, 0.238478482f, -1.37809908f, 1.57997596f}},
      {"xavier {}",
       0x0u,
       {0.204061851f, -0.0961107984f, 0.407119036f, 0.542247891f, -0.0344234779f, 0.0378392376f}},
      {"xavier {}",
       0x123456789ABCDEF0u,
       {0.401358038f, 0.163681135f, 0.415932119f, -0.184618339f, -0.476503253f, 0.142017737f}},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(Fill(*Make(test.initializer), test.key, 0, 6), test.values) << test.initializer;
  }
}

TEST(InitializerTest, UniformNeverRoundsUpToHigh) {
  // There is no float between these two, so every value is the lower one.
  const float low = 1.0f;
  const float high = std::nextafter(low, 2.0f);
  TableSpec table = Parse("kind: SPARSE row_width: 16");
  table.mutable_initializer()->mutable_uniform()->set_low(low);
  table.mutable_initializer()->mutable_uniform()->set_high(high);
  EXPECT_EQ(Fill(**TableInitializer::Create(table, 1), 1, 0, 1000), std::vector<float>(1000, low));
}

TEST(InitializerTest, InvalidSpecsAreRefusedNamingTheField) {
  const struct {
    const char* table;
    const char* field;
  } kCases[] = {
      {"initializer { constant { value: inf } }", "initializer.constant.value"},
      {"initializer { uniform { low: nan high: 1 } }", "initializer.uniform.low"},
      {"initializer { uniform { low: 0 high: inf } }", "initializer.uniform.high"},
      {"initializer { uniform { low: 1 high: 1 } }", "initializer.uniform.high"},
      {"initializer { normal { mean: nan } }", "initializer.normal.mean"},
      {"initializer { normal { stddev: -1 } }", "initializer.normal.stddev"},
      {"initializer { normal { stddev: 1e38 } }", "initializer.normal.stddev"},
      {"initializer { truncated_normal { mean: inf } }", "initializer.truncated_normal.mean"},
      {"initializer { truncated_normal { stddev: nan } }", "initializer.truncated_normal.stddev"},
      {"initializer { xavier { gain: -1 } } kind: SPARSE row_width: 1", "initializer.xavier.gain"},
      {"initializer { xavier {} } kind: DENSE shape: 10", "initializer.xavier.fan_in"},
      {"initializer { xavier { fan_in: 3 } } kind: DENSE shape: [2, 2, 2]",
       "initializer.xavier.fan_out"},
  };
  for (const auto& test : kCases) {
    const auto made = TableInitializer::Create(Parse(test.table), 1);
    ASSERT_FALSE(made.ok()) << test.table;
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << test.table;
    EXPECT_NE(std::string(made.status().message()).find(test.field), std::string::npos)
        << made.status();
  }
}

}  // namespace
}  // namespace pawl
