// Adam's correction for moving averages that start at 0.
#ifndef PAWL_SERVER_OPTIMIZER_MATH_BIAS_CORRECTION_H_
#define PAWL_SERVER_OPTIMIZER_MATH_BIAS_CORRECTION_H_

#include <array>
#include <cstdint>
#include <vector>

namespace pawl {

// For t = prior_updates + 1, in doubles: 1 / (1 - beta1^t) and 1 / sqrt(1 - beta2^t), with the
// powers of DeterministicPower. Immutable, hence thread-safe.
//
// Rows of a sparse table differ in t, so this runs once per row: a table lookup for the first
// kTableSize updates, then one multiplication for each bit of t.
class BiasCorrection {
 public:
  struct Factors {
    double first;
    double second;
  };

  // REQUIRES: 0 <= beta < 1 for both.
  BiasCorrection(double beta1, double beta2);

  Factors At(uint64_t prior_updates) const {
    return prior_updates < kTableSize ? table_[prior_updates] : Compute(prior_updates);
  }

 private:
  // Most rows of a sparse table stay below it, and its 16 KiB fit in a core's first-level cache.
  static constexpr uint64_t kTableSize = 1024;
  // beta, beta^2, beta^4, ...
  using Squares = std::array<double, 64>;

  static Squares MakeSquares(double beta);
  static double OneMinusPower(const Squares& squares, uint64_t t);
  Factors Compute(uint64_t prior_updates) const;

  Squares squares1_;
  Squares squares2_;
  std::vector<Factors> table_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_MATH_BIAS_CORRECTION_H_
