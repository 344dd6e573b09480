// Functions that C libraries round differently on different machines, computed here with only + - *
// / and sqrt on doubles. IEEE 754 defines each of these to the bit, so the results are the same
// everywhere. Errors are at most a few units in the last place (deterministic_math_test).
#ifndef PAWL_SERVER_OPTIMIZER_MATH_DETERMINISTIC_MATH_H_
#define PAWL_SERVER_OPTIMIZER_MATH_DETERMINISTIC_MATH_H_

#include <cstdint>

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

// The part of InverseNormal for |q| <= 0.425, where q = p - 0.5; it has no branch.
inline double InverseNormalCentral(double q) {
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

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_MATH_DETERMINISTIC_MATH_H_
