#include "tests/harness/reference/reference_initializer.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "client_lib/base/random.h"
#include "server/optimizer/math/deterministic_math.h"

namespace pawl {
namespace {

// Coefficients of AS 241 (Wichura 1988, PPND16) as listed in the paper, from the constant term up.
using Coefficients = std::array<double, 8>;
constexpr Coefficients kA = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                             1.9715909503065514427e+3, 1.3731693765509461125e+4,
                             4.5921953931549871457e+4, 6.7265770927008700853e+4,
                             3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr Coefficients kB = {1.0,
                             4.2313330701600911252e+1,
                             6.8718700749205790830e+2,
                             5.3941960214247511077e+3,
                             2.1213794301586595867e+4,
                             3.9307895800092710610e+4,
                             2.8729085735721942674e+4,
                             5.2264952788528545610e+3};
constexpr Coefficients kC = {1.42343711074968357734e0,  4.63033784615654529590e0,
                             5.76949722146069140550e0,  3.64784832476320460504e0,
                             1.27045825245236838258e0,  2.41780725177450611770e-1,
                             2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr Coefficients kD = {1.0,
                             2.05319162663775882187e0,
                             1.67638483018380384940e0,
                             6.89767334985100004550e-1,
                             1.48103976427480074590e-1,
                             1.51986665636164571966e-2,
                             5.47593808499534494600e-4,
                             1.05075007164441684324e-9};
constexpr Coefficients kE = {6.65790464350110377720e0,  5.46378491116411436990e0,
                             1.78482653991729133580e0,  2.96560571828504891230e-1,
                             2.65321895265761230930e-2, 1.24266094738807843860e-3,
                             2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr Coefficients kF = {1.0,
                             5.99832206555887937690e-1,
                             1.36929880922735805310e-1,
                             1.48753612908506148525e-2,
                             7.86869131145613259100e-4,
                             1.84631831751005468180e-5,
                             1.42151175831644588870e-7,
                             2.04426310338993978564e-15};

double Horner(const Coefficients& coefficients, double x) {
  double value = coefficients[7];
  for (int i = 6; i >= 0; --i) value = value * x + coefficients[i];
  return value;
}

double Ppnd16(double p) {
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Horner(kA, r) / Horner(kB, r);
  }
  // The specification prescribes this logarithm, because the last bit differs between C libraries.
  const double r = std::sqrt(-DeterministicLog(q < 0.0 ? p : 1.0 - p));
  const double z = r <= 5.0 ? Horner(kC, r - 1.6) / Horner(kD, r - 1.6)
                            : Horner(kE, r - 5.0) / Horner(kF, r - 5.0);
  return q < 0.0 ? -z : z;
}

float Uniform(uint32_t x, float low, float high) {
  const double u = static_cast<double>(x >> 8) * 0x1p-24;
  const auto v = static_cast<float>(double{low} + (double{high} - double{low}) * u);
  return v >= high ? std::nextafter(high, low) : v;
}

float XavierLimit(const TableSpec& table) {
  const Initializer::Xavier& xavier = table.initializer().xavier();
  const bool sparse = table.kind() == SPARSE;
  const double default_in = sparse ? 1.0 : static_cast<double>(table.shape(0));
  const double default_out =
      sparse ? table.row_width()
             : (table.shape_size() > 1 ? static_cast<double>(table.shape(1)) : 0);
  const double in = xavier.fan_in() == 0 ? default_in : xavier.fan_in();
  const double out = xavier.fan_out() == 0 ? default_out : xavier.fan_out();
  const double gain = xavier.gain() == 0.0f ? 1.0 : xavier.gain();
  return static_cast<float>(gain * std::sqrt(6.0 / (in + out)));
}

float Value(const TableSpec& table, uint32_t x) {
  const Initializer& spec = table.initializer();
  switch (spec.kind_case()) {
    case Initializer::kUniform:
      return Uniform(x, spec.uniform().low(), spec.uniform().high());
    case Initializer::kNormal:
      return static_cast<float>(spec.normal().mean() +
                                spec.normal().stddev() * Ppnd16((x + 0.5) * 0x1p-32));
    case Initializer::kTruncatedNormal: {
      constexpr double kTail = 0.022750131948179209;
      const double p = kTail + (1.0 - 2.0 * kTail) * ((x + 0.5) * 0x1p-32);
      const double z = std::min(std::max(Ppnd16(p), -2.0), 2.0);
      return static_cast<float>(spec.truncated_normal().mean() +
                                spec.truncated_normal().stddev() * z);
    }
    case Initializer::kXavier: {
      const float limit = XavierLimit(table);
      return Uniform(x, -limit, limit);
    }
    default:
      return spec.constant().value();
  }
}

}  // namespace

std::vector<float> ReferenceInitialValues(const TableSpec& table, uint64_t job_seed, uint64_t key,
                                          size_t width) {
  const uint64_t stream = XXH64(table.name().data(), table.name().size(), job_seed);
  std::vector<float> values(width);
  const size_t zero_from = table.initializer().zero_from();
  for (size_t i = 0; i < width; ++i) {
    if (zero_from == 0 || i < zero_from)
      values[i] = Value(table, Philox4x32(key, i / 4, stream)[i % 4]);
  }
  return values;
}

}  // namespace pawl
