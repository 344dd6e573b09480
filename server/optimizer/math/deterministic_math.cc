#include "server/optimizer/math/deterministic_math.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace pawl {

// x - x is 0, or NaN.
double DeterministicLog(double x) { return internal::BranchlessLog(x) + (x - x); }

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
  if (r <= 5.0) return internal::InverseNormalTail(q, r);
  r -= 5.0;
  const double numerator = ((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r +
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
  const double denominator = ((((((2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r +
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
  const double z = numerator / denominator;
  return q < 0.0 ? -z : z;
}

}  // namespace pawl
