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
// Words generated at a time.
constexpr size_t kChunk = 64;
constexpr size_t kLanes = 4;

class ConstantInitializer final : public TableInitializer {
 public:
  explicit ConstantInitializer(float value) : value_(value) {}
  void Fill(uint64_t /*key*/, size_t /*begin*/, size_t count, float* out) const override {
    std::fill(out, out + count, value_);
  }

 private:
  const float value_;
};

// Distribution has Map(const uint32_t* words, size_t count, float* out).
template <typename Distribution>
class RandomInitializer final : public TableInitializer {
 public:
  RandomInitializer(uint64_t stream, Distribution distribution)
      : stream_(stream), distribution_(distribution) {}

  void Fill(uint64_t key, size_t begin, size_t count, float* out) const override {
    while (count > 0) {
      const size_t skip = begin % kLanes;
      const size_t here = std::min(count, kChunk - skip);
      const size_t groups = (skip + here + kLanes - 1) / kLanes;
      std::array<uint32_t, kChunk> words;
      for (size_t i = 0; i < groups; ++i) {
        const PhiloxCounter four = Philox4x32(key, begin / kLanes + i, stream_);
        std::copy(four.begin(), four.end(), words.begin() + i * kLanes);
      }
      distribution_.Map(words.data() + skip, here, out);
      begin += here;
      count -= here;
      out += here;
    }
  }

 private:
  const uint64_t stream_;
  const Distribution distribution_;
};

class UniformDistribution {
 public:
  UniformDistribution(float low, float high)
      : low_(low),
        range_(static_cast<double>(high) - static_cast<double>(low)),
        high_(high),
        below_high_(std::nextafter(high, low)) {}

  void Map(const uint32_t* words, size_t count, float* out) const {
    for (size_t i = 0; i < count; ++i) {
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

  // REQUIRES: count <= kChunk.
  void Map(const uint32_t* words, size_t count, float* out) const {
    double p[kChunk];
    double z[kChunk];
    for (size_t i = 0; i < count; ++i) {
      p[i] = tail_ + body_ * ((static_cast<double>(words[i]) + 0.5) * 0x1p-32);
    }
    // Most values take the branch without a logarithm. Computing it for all values lets the
    // compiler vectorise the loop.
    for (size_t i = 0; i < count; ++i) z[i] = InverseNormalCentral(p[i] - 0.5);
    for (size_t i = 0; i < count; ++i) {
      if (p[i] - 0.5 < -0.425 || p[i] - 0.5 > 0.425) z[i] = InverseNormal(p[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      out[i] = static_cast<float>(mean_ + stddev_ * std::clamp(z[i], -most_, most_));
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
                                                   Distribution distribution) {
  const uint64_t stream = XXH64(table.name().data(), table.name().size(), job_seed);
  return std::make_unique<RandomInitializer<Distribution>>(stream, distribution);
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
                                                                   uint64_t job_seed) {
  const Initializer& spec = table.initializer();
  switch (spec.kind_case()) {
    case Initializer::KIND_NOT_SET:
      return std::make_unique<ConstantInitializer>(0.0f);
    case Initializer::kConstant:
      return std::make_unique<ConstantInitializer>(spec.constant().value());
    case Initializer::kUniform:
      return MakeRandom(table, job_seed,
                        UniformDistribution(spec.uniform().low(), spec.uniform().high()));
    case Initializer::kNormal:
      return MakeRandom(table, job_seed,
                        NormalDistribution(spec.normal().mean(), spec.normal().stddev(), 0.0,
                                           kMaxNormalDeviations));
    case Initializer::kTruncatedNormal:
      return MakeRandom(
          table, job_seed,
          NormalDistribution(spec.truncated_normal().mean(), spec.truncated_normal().stddev(),
                             kTailBelowMinusTwo, kTruncation));
    case Initializer::kXavier: {
      const float limit = XavierLimit(table);
      return MakeRandom(table, job_seed, UniformDistribution(-limit, limit));
    }
  }
  return absl::InvalidArgumentError("the initializer has an unknown kind");
}

}  // namespace

absl::StatusOr<std::unique_ptr<const TableInitializer>> TableInitializer::Create(
    const TableSpec& table, uint64_t job_seed) {
  PAWL_RETURN_IF_ERROR(ValidateInitializer(table, "initializer"));
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<const TableInitializer> head, CreateHead(table, job_seed));
  const size_t zero_from = table.initializer().zero_from();
  if (zero_from == 0) return head;
  return std::make_unique<ZeroTailInitializer>(std::move(head), zero_from);
}

}  // namespace pawl
