// Functions that C libraries round differently on different machines, computed here with only + - *
// / and sqrt on doubles. IEEE 754 defines each of these to the bit, so the results are the same
// everywhere. Errors are at most a few units in the last place (deterministic_math_test).
#ifndef PAWL_SERVER_OPTIMIZER_MATH_DETERMINISTIC_MATH_H_
#define PAWL_SERVER_OPTIMIZER_MATH_DETERMINISTIC_MATH_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "client_lib/base/compiler.h"

namespace pawl {

// The natural logarithm; NaN for NaN. REQUIRES: otherwise x is finite, positive and not subnormal.
double DeterministicLog(double x);

// e to the power of x: 0 below the smallest normal number, infinity above the largest, NaN for NaN.
double DeterministicExp(double x);

// log(1 + x), also for small x. REQUIRES: 0 <= x <= 1.
double DeterministicLog1p(double x);

// cos(pi * x). REQUIRES: 0 <= x <= 1.
double DeterministicCosPi(double x);

// base to the power of n by repeated squaring from the lowest bit of n up:
//   result = 1; for each bit of n: { if set: result *= base; base *= base; }
// 0 to the power of 0 is 1.
double DeterministicPower(double base, uint64_t n);

// The quantile function of the standard normal distribution: Wichura 1988,
// "The percentage points of the normal distribution", algorithm AS 241, PPND16;
// polynomials by Horner's rule, logarithm by DeterministicLog.
// REQUIRES: 2^-1000 < p < 1.
double InverseNormal(double p);

// The number of values that InverseNormals takes.
inline constexpr size_t kInverseNormals = 64;

// z[i] = InverseNormal(p[i]) for all i, with the same bits. To be compiled into a function with
// vector instructions (compiler.h). REQUIRES: p and z do not overlap.
PAWL_ALWAYS_INLINE void InverseNormals(const double* p, double* z);

// The part of InverseNormal for |q| <= 0.425, where q = p - 0.5; it has no branch.
PAWL_ALWAYS_INLINE double InverseNormalCentral(double q) {
  const double r = 0.180625 - q * q;
  const double numerator =
      ((((((2.5090809287301226727e3 * r + 3.3430575583588128105e4) * r + 6.7265770927008700853e4) *
              r +
          4.5921953931549871457e4) *
             r +
         1.3731693765509461125e4) *
            r +
        1.9715909503065514427e3) *
           r +
       1.3314166789178437745e2) *
          r +
      3.3871328727963666080e0;
  const double denominator =
      ((((((5.2264952788528545610e3 * r + 2.8729085735721942674e4) * r + 3.9307895800092710610e4) *
              r +
          2.1213794301586595867e4) *
             r +
         5.3941960214247511077e3) *
            r +
        6.8718700749205790830e2) *
           r +
       4.2313330701600911252e1) *
          r +
      1.0;
  return q * numerator / denominator;
}

namespace internal {

// The part of InverseNormal for |q| > 0.425 and r <= 5; q = p - 0.5.
PAWL_ALWAYS_INLINE double InverseNormalTail(double q, double r) {
  r -= 1.6;
  const double numerator = ((((((7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r +
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
  const double denominator = ((((((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r +
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
  const double z = numerator / denominator;
  return q < 0.0 ? -z : z;
}

// DeterministicLog, but undefined for NaN. Has no branch, and no conversion of an integer, which
// AVX2 lacks.
PAWL_ALWAYS_INLINE double BranchlessLog(double x) {
  // x = 2^e * m with m in [sqrt(1/2), sqrt(2)). The exponent becomes a double in the low bits of
  // 1.5 * 2^52.
  const auto bits = std::bit_cast<int64_t>(x);
  const double exponent =
      std::bit_cast<double>((bits >> 52) - 1023 + 0x4338000000000000) - 0x1.8p52;
  const double mantissa = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000);
  const bool is_above = mantissa >= 1.4142135623730951;
  const double m = is_above ? mantissa * 0.5 : mantissa;
  const double e = is_above ? exponent + 1.0 : exponent;
  // log(m) = 2 atanh(s) = 2 (s + s^3 / 3 + s^5 / 5 + ...), |s| <= 0.1716. The first omitted term is
  // below 2^-60 of the sum.
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double series = 1.0 / 23;
  series = series * z + 1.0 / 21;
  series = series * z + 1.0 / 19;
  series = series * z + 1.0 / 17;
  series = series * z + 1.0 / 15;
  series = series * z + 1.0 / 13;
  series = series * z + 1.0 / 11;
  series = series * z + 1.0 / 9;
  series = series * z + 1.0 / 7;
  series = series * z + 1.0 / 5;
  series = series * z + 1.0 / 3;
  const double log_m = 2.0 * s + 2.0 * s * (z * series);
  // log(2) in two parts. The first has 20 trailing zero bits, so its product with the exponent is
  // exact.
  return e * 0x1.62e42fefp-1 + (log_m + e * 0x1.473de6af278edp-34);
}

}  // namespace internal

PAWL_ALWAYS_INLINE void InverseNormals(const double* p, double* z) {
  constexpr size_t kTogether = 16;
  // One in seven values is in a tail. They are collected, because a tail costs three times as much.
  uint8_t tails[kInverseNormals];
  size_t tail_count = 0;
  for (size_t i = 0; i < kInverseNormals; ++i) z[i] = InverseNormalCentral(p[i] - 0.5);
  for (size_t i = 0; i < kInverseNormals; ++i) {
    const double q = p[i] - 0.5;
    tails[tail_count] = static_cast<uint8_t>(i);
    tail_count += (q < -0.425) | (q > 0.425);
  }
  for (size_t first = 0; first < tail_count; first += kTogether) {
    const size_t together = tail_count - first < kTogether ? tail_count - first : kTogether;
    double of[kTogether], r[kTogether], of_tail[kTogether];
    for (size_t i = 0; i < kTogether; ++i) of[i] = p[tails[first + (i < together ? i : 0)]];
    for (size_t i = 0; i < kTogether; ++i) {
      r[i] = __builtin_sqrt(-internal::BranchlessLog(of[i] < 0.5 ? of[i] : 1.0 - of[i]));
      of_tail[i] = internal::InverseNormalTail(of[i] - 0.5, r[i]);
    }
    for (size_t i = 0; i < together; ++i) {
      const size_t at = tails[first + i];
      z[at] = r[i] <= 5.0 ? of_tail[i] : InverseNormal(p[at]);
    }
  }
}

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_MATH_DETERMINISTIC_MATH_H_
