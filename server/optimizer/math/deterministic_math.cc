#include "server/optimizer/math/deterministic_math.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace pawl {

double DeterministicLog(double x) {
  // x = 2^exponent * m with m in [sqrt(1/2), sqrt(2)).
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0x000FFFFFFFFFFFFFull) | 0x3FF0000000000000ull;
  double m;
  std::memcpy(&m, &bits, sizeof m);
  if (m >= 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // log(m) = 2 atanh(s) = 2 (s + s^3 / 3 + s^5 / 5 + ...), |s| <= 0.1716. The first omitted term is
  // below 2^-60 of the sum.
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  static constexpr double kInverseOdd[] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17,
                                           1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,
                                           1.0 / 7,  1.0 / 5,  1.0 / 3};
  double series = 0.0;
  for (const double coefficient : kInverseOdd) series = series * z + coefficient;
  const double log_m = 2.0 * s + 2.0 * s * (z * series);
  // log(2) in two parts. The first has 20 trailing zero bits, so its product with the exponent is
  // exact.
  const double e = static_cast<double>(exponent);
  // x - x is 0, or NaN.
  return e * 0x1.62e42fefp-1 + (log_m + e * 0x1.473de6af278edp-34) + (x - x);
}

double DeterministicExp(double x) {
  // x = k log(2) + r with |r| <= log(2) / 2. Adding 1.5 * 2^52 rounds to an integer and leaves it
  // in the low bits.
  constexpr double kRound = 0x1.8p52;
  constexpr double kSmallest = -708.0, kLargest = 709.0;
  const double clamped = x < kSmallest ? kSmallest : x > kLargest ? kLargest : x;
  const double shifted = clamped * 0x1.71547652b82fep+0 + kRound;
  const double k = shifted - kRound;
  // log(2) in two parts, as in DeterministicLog.
  const double r = (clamped - k * 0x1.62e42fefp-1) - k * 0x1.473de6af278edp-34;
  // The sum of r^n / n!, n = 0 to 13: the first term left out is below 2^-57.
  static constexpr double kInverseFactorial[] = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
      1.0 / 5040,       1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      1.0 / 2};
  double series = 0.0;
  for (const double coefficient : kInverseFactorial) series = series * r + coefficient;
  const double power = 1.0 + (r + r * r * series);
  uint64_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = ((bits + 1023) & 0x7FF) << 52;
  double scale;
  std::memcpy(&scale, &bits, sizeof scale);
  const double result = power * scale;
  if (x < kSmallest) return 0.0;
  if (x > kLargest) return std::numeric_limits<double>::infinity();
  return x == x ? result : x;
}

double DeterministicLog1p(double x) {
  // 1 + x loses low bits of x; the quotient makes up for them (Kahan; Goldberg 1991, theorem 4).
  const double u = 1.0 + x;
  return u == 1.0 ? x : DeterministicLog(u) * x / (u - 1.0);
}

double DeterministicCosPi(double x) {
  constexpr double kPi = 3.141592653589793;
  // Reduce to |angle| <= pi / 4, where few terms of the Taylor series suffice. The subtractions are
  // exact.
  const bool negative = x > 0.5;
  if (negative) x = 1.0 - x;
  double result;
  if (x <= 0.25) {
    const double angle = kPi * x;
    const double z = angle * angle;
    // The sum of (-z)^k / (2k)!, k = 0 to 9.
    static constexpr double kCosine[] = {-1.0 / 6402373705728000,
                                         1.0 / 20922789888000,
                                         -1.0 / 87178291200,
                                         1.0 / 479001600,
                                         -1.0 / 3628800,
                                         1.0 / 40320,
                                         -1.0 / 720,
                                         1.0 / 24,
                                         -1.0 / 2,
                                         1.0};
    result = 0.0;
    for (const double coefficient : kCosine) result = result * z + coefficient;
  } else {
    const double angle = kPi * (0.5 - x);
    const double z = angle * angle;
    // angle times the sum of (-z)^k / (2k+1)!, k = 0 to 8.
    static constexpr double kSine[] = {1.0 / 355687428096000,
                                       -1.0 / 1307674368000,
                                       1.0 / 6227020800,
                                       -1.0 / 39916800,
                                       1.0 / 362880,
                                       -1.0 / 5040,
                                       1.0 / 120,
                                       -1.0 / 6,
                                       1.0};
    result = 0.0;
    for (const double coefficient : kSine) result = result * z + coefficient;
    result *= angle;
  }
  return negative ? -result : result;
}

double DeterministicPower(double base, uint64_t n) {
  double result = 1.0;
  for (; n != 0; n >>= 1) {
    if (n & 1) result *= base;
    base *= base;
  }
  return result;
}

double InverseNormal(double p) {
  const double q = p - 0.5;
  if (q >= -0.425 && q <= 0.425) return InverseNormalCentral(q);
  double r = std::sqrt(-DeterministicLog(q < 0.0 ? p : 1.0 - p));
  double numerator, denominator;
  if (r <= 5.0) {
    r -= 1.6;
    numerator = ((((((7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r +
                     2.41780725177450611770e-1) *
                        r +
                    1.27045825245236838258e0) *
                       r +
                   3.64784832476320460504e0) *
                      r +
                  5.76949722146069140550e0) *
                     r +
                 4.63033784615654529590e0) *
                    r +
                1.42343711074968357734e0;
    denominator = ((((((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r +
                       1.51986665636164571966e-2) *
                          r +
                      1.48103976427480074590e-1) *
                         r +
                     6.89767334985100004550e-1) *
                        r +
                    1.67638483018380384940e0) *
                       r +
                   2.05319162663775882187e0) *
                      r +
                  1.0;
  } else {
    r -= 5.0;
    numerator = ((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r +
                     1.24266094738807843860e-3) *
                        r +
                    2.65321895265761230930e-2) *
                       r +
                   2.96560571828504891230e-1) *
                      r +
                  1.78482653991729133580e0) *
                     r +
                 5.46378491116411436990e0) *
                    r +
                6.65790464350110377720e0;
    denominator = ((((((2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r +
                       1.84631831751005468180e-5) *
                          r +
                      7.86869131145613259100e-4) *
                         r +
                     1.48753612908506148525e-2) *
                        r +
                    1.36929880922735805310e-1) *
                       r +
                   5.99832206555887937690e-1) *
                      r +
                  1.0;
  }
  const double z = numerator / denominator;
  return q < 0.0 ? -z : z;
}

}  // namespace pawl
