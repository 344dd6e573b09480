#include "server/shard/initializer.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "client_lib/base/random.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/table_validation.h"
#include "server/optimizer/math/deterministic_math.h"

namespace pawl {
namespace {

// The normal CDF at -2.
constexpr double kTailBelowMinusTwo = 0.022750131948179209;
constexpr double kTruncation = 2.0;
// The words that a call of Philox4x32 gives, the calls side by side, and their words.
constexpr size_t kWords = 4;
constexpr size_t kLanes = 16;
constexpr size_t kChunk = kWords * kLanes;

class ConstantInitializer final : public TableInitializer {
 public:
  explicit ConstantInitializer(float value) : value_(value) {}
  void Fill(uint64_t /*key*/, size_t /*begin*/, size_t count, float* out) const override {
    std::fill(out, out + count, value_);
  }

 private:
  const float value_;
};

// Distribution has Map(const uint32_t* words, float* out), which maps kChunk words.
template <typename Distribution>
class RandomInitializer final : public TableInitializer {
 public:
  RandomInitializer(uint64_t stream, Distribution distribution, Isa isa)
      : stream_(stream), distribution_(distribution), fill_(FillFor(isa)) {}

  void Fill(uint64_t key, size_t begin, size_t count, float* out) const override {
    Chunk chunk;
    chunk.keys.fill(key);
    while (count > 0) {
      const size_t skip = begin % kWords;
      const size_t here = std::min(count, kChunk - skip);
      for (size_t i = 0; i < kLanes; ++i) chunk.counters[i] = begin / kWords + i;
      fill_(*this, chunk);
      std::copy_n(chunk.values.begin() + skip, here, out);
      begin += here;
      count -= here;
      out += here;
    }
  }

  void FillRows(absl::Span<const uint64_t> keys, size_t width, float* const* rows) const override {
    if (width > kChunk / 2) return TableInitializer::FillRows(keys, width, rows);
    const size_t lanes_of_row = (width + kWords - 1) / kWords;
    const size_t together = lanes_of_row == 0 ? 0 : kLanes / lanes_of_row;
    Chunk chunk = {};
    for (size_t first = 0; first < keys.size() && together > 0; first += together) {
      const size_t here = std::min(together, keys.size() - first);
      for (size_t lane = 0; lane < here * lanes_of_row; ++lane) {
        chunk.keys[lane] = keys[first + lane / lanes_of_row];
        chunk.counters[lane] = lane % lanes_of_row;
      }
      fill_(*this, chunk);
      for (size_t i = 0; i < here; ++i)
        std::copy_n(chunk.values.begin() + i * lanes_of_row * kWords, width, rows[first + i]);
    }
  }

 private:
  // The values of the words that kLanes calls of Philox4x32 give. Many at once keep the processor
  // busy: the arithmetic of one value is a long chain.
  struct Chunk {
    std::array<uint64_t, kLanes> keys;
    std::array<uint64_t, kLanes> counters;
    std::array<float, kChunk> values;
  };
  using Function = void (*)(const RandomInitializer&, Chunk&);

  PAWL_ALWAYS_INLINE void FillBody(Chunk& chunk) const {
    uint32_t x0[kLanes], x1[kLanes], x2[kLanes], x3[kLanes];
    for (size_t i = 0; i < kLanes; ++i) {
      x0[i] = static_cast<uint32_t>(chunk.keys[i]);
      x1[i] = static_cast<uint32_t>(chunk.keys[i] >> 32);
      x2[i] = static_cast<uint32_t>(chunk.counters[i]);
      x3[i] = static_cast<uint32_t>(chunk.counters[i] >> 32);
    }
    auto key0 = static_cast<uint32_t>(stream_), key1 = static_cast<uint32_t>(stream_ >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      for (size_t i = 0; i < kLanes; ++i) {
        const uint64_t product0 = uint64_t{kPhiloxMultipliers[0]} * x0[i];
        const uint64_t product1 = uint64_t{kPhiloxMultipliers[1]} * x2[i];
        x0[i] = static_cast<uint32_t>(product1 >> 32) ^ x1[i] ^ key0;
        x1[i] = static_cast<uint32_t>(product1);
        x2[i] = static_cast<uint32_t>(product0 >> 32) ^ x3[i] ^ key1;
        x3[i] = static_cast<uint32_t>(product0);
      }
      key0 += kPhiloxKeySteps[0];
      key1 += kPhiloxKeySteps[1];
    }
    uint32_t words[kChunk];
    for (size_t i = 0; i < kLanes; ++i) {
      words[i * kWords] = x0[i];
      words[i * kWords + 1] = x1[i];
      words[i * kWords + 2] = x2[i];
      words[i * kWords + 3] = x3[i];
    }
    distribution_.Map(words, chunk.values.data());
  }

  static void FillPortable(const RandomInitializer& self, Chunk& chunk) { self.FillBody(chunk); }
  PAWL_TARGET_AVX2 static void FillAvx2(const RandomInitializer& self, Chunk& chunk) {
    self.FillBody(chunk);
  }
  PAWL_TARGET_AVX512 static void FillAvx512(const RandomInitializer& self, Chunk& chunk) {
    self.FillBody(chunk);
  }
  static Function FillFor(Isa isa) {
    switch (isa) {
      case Isa::kPortable:
        break;
      case Isa::kAvx2:
        return FillAvx2;
      case Isa::kAvx512:
        return FillAvx512;
    }
    return FillPortable;
  }

  const uint64_t stream_;
  const Distribution distribution_;
  const Function fill_;
};

class UniformDistribution {
 public:
  UniformDistribution(float low, float high)
      : low_(low),
        range_(static_cast<double>(high) - static_cast<double>(low)),
        high_(high),
        below_high_(std::nextafter(high, low)) {}

  PAWL_ALWAYS_INLINE void Map(const uint32_t* words, float* out) const {
    for (size_t i = 0; i < kChunk; ++i) {
      const double u = static_cast<double>(static_cast<int32_t>(words[i] >> 8)) * 0x1p-24;
      const float v = static_cast<float>(low_ + range_ * u);
      out[i] = v >= high_ ? below_high_ : v;
    }
  }

 private:
  double low_;
  double range_;
  float high_;
  float below_high_;
};

class NormalDistribution {
 public:
  // Covers the middle of the distribution, without `tail` at either end.
  NormalDistribution(float mean, float stddev, double tail, double most_deviations)
      : mean_(mean),
        stddev_(stddev),
        tail_(tail),
        body_(1.0 - 2.0 * tail),
        most_(most_deviations) {}

  PAWL_ALWAYS_INLINE void Map(const uint32_t* words, float* out) const {
    double p[kChunk];
    double z[kChunk];
    for (size_t i = 0; i < kChunk; ++i) {
      p[i] = tail_ + body_ * ((static_cast<double>(words[i]) + 0.5) * 0x1p-32);
    }
    InverseNormals(p, z);
    for (size_t i = 0; i < kChunk; ++i) {
      const double within = z[i] < -most_ ? -most_ : z[i] > most_ ? most_ : z[i];
      out[i] = static_cast<float>(mean_ + stddev_ * within);
    }
  }

 private:
  double mean_;
  double stddev_;
  double tail_;
  double body_;
  double most_;
};

template <typename Distribution>
std::unique_ptr<const TableInitializer> MakeRandom(const TableSpec& table, uint64_t job_seed,
                                                   Distribution distribution, Isa isa) {
  const uint64_t stream = XXH64(table.name().data(), table.name().size(), job_seed);
  return std::make_unique<RandomInitializer<Distribution>>(stream, distribution, isa);
}

class ZeroTailInitializer final : public TableInitializer {
 public:
  ZeroTailInitializer(std::unique_ptr<const TableInitializer> head, size_t zero_from)
      : head_(std::move(head)), zero_from_(zero_from) {}

  void Fill(uint64_t key, size_t begin, size_t count, float* out) const override {
    const size_t head = begin < zero_from_ ? std::min(count, zero_from_ - begin) : 0;
    head_->Fill(key, begin, head, out);
    std::fill(out + head, out + count, 0.0f);
  }
  void FillRows(absl::Span<const uint64_t> keys, size_t width, float* const* rows) const override {
    const size_t head = std::min(width, zero_from_);
    head_->FillRows(keys, head, rows);
    for (size_t i = 0; i < keys.size(); ++i) std::fill(rows[i] + head, rows[i] + width, 0.0f);
  }

 private:
  const std::unique_ptr<const TableInitializer> head_;
  const size_t zero_from_;
};

float XavierLimit(const TableSpec& table) {
  const Initializer::Xavier& xavier = table.initializer().xavier();
  double fan_in = xavier.fan_in();
  double fan_out = xavier.fan_out();
  if (table.kind() == SPARSE) {
    if (fan_in == 0.0) fan_in = 1.0;
    if (fan_out == 0.0) fan_out = table.row_width();
  } else if (table.shape_size() == 2) {
    if (fan_in == 0.0) fan_in = static_cast<double>(table.shape(0));
    if (fan_out == 0.0) fan_out = static_cast<double>(table.shape(1));
  }
  const double gain = xavier.gain() == 0.0f ? 1.0 : xavier.gain();
  return static_cast<float>(gain * std::sqrt(6.0 / (fan_in + fan_out)));
}

// For all elements, whatever zero_from says. REQUIRES: the initializer is valid.
absl::StatusOr<std::unique_ptr<const TableInitializer>> CreateHead(const TableSpec& table,
                                                                   uint64_t job_seed, Isa isa) {
  const Initializer& spec = table.initializer();
  switch (spec.kind_case()) {
    case Initializer::KIND_NOT_SET:
      return std::make_unique<ConstantInitializer>(0.0f);
    case Initializer::kConstant:
      return std::make_unique<ConstantInitializer>(spec.constant().value());
    case Initializer::kUniform:
      return MakeRandom(table, job_seed,
                        UniformDistribution(spec.uniform().low(), spec.uniform().high()), isa);
    case Initializer::kNormal:
      return MakeRandom(table, job_seed,
                        NormalDistribution(spec.normal().mean(), spec.normal().stddev(), 0.0,
                                           kMaxNormalDeviations),
                        isa);
    case Initializer::kTruncatedNormal:
      return MakeRandom(
          table, job_seed,
          NormalDistribution(spec.truncated_normal().mean(), spec.truncated_normal().stddev(),
                             kTailBelowMinusTwo, kTruncation),
          isa);
    case Initializer::kXavier: {
      const float limit = XavierLimit(table);
      return MakeRandom(table, job_seed, UniformDistribution(-limit, limit), isa);
    }
  }
  return absl::InvalidArgumentError("the initializer has an unknown kind");
}

}  // namespace

void TableInitializer::FillRows(absl::Span<const uint64_t> keys, size_t width,
                                float* const* rows) const {
  for (size_t i = 0; i < keys.size(); ++i) Fill(keys[i], 0, width, rows[i]);
}

absl::StatusOr<std::unique_ptr<const TableInitializer>> TableInitializer::Create(
    const TableSpec& table, uint64_t job_seed, Isa isa) {
  PAWL_RETURN_IF_ERROR(ValidateInitializer(table, "initializer"));
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<const TableInitializer> head,
                        CreateHead(table, job_seed, isa));
  const size_t zero_from = table.initializer().zero_from();
  if (zero_from == 0) return head;
  return std::make_unique<ZeroTailInitializer>(std::move(head), zero_from);
}

}  // namespace pawl
