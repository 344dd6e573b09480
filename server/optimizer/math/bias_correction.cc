#include "server/optimizer/math/bias_correction.h"

#include <cmath>

namespace pawl {

BiasCorrection::BiasCorrection(double beta1, double beta2)
    : squares1_(MakeSquares(beta1)), squares2_(MakeSquares(beta2)) {
  table_.reserve(kTableSize);
  for (uint64_t i = 0; i < kTableSize; ++i) table_.push_back(Compute(i));
}

BiasCorrection::Squares BiasCorrection::MakeSquares(double beta) {
  Squares squares;
  for (double& square : squares) {
    square = beta;
    beta *= beta;
  }
  return squares;
}

double BiasCorrection::OneMinusPower(const Squares& squares, uint64_t t) {
  double power = 1.0;
  for (size_t bit = 0; t != 0; ++bit, t >>= 1) {
    if (!(t & 1)) continue;
    power *= squares[bit];
    // Further factors only make it smaller, and 1 minus it already rounds to 1.
    if (power < 0x1p-54) return 1.0;
  }
  return 1.0 - power;
}

BiasCorrection::Factors BiasCorrection::Compute(uint64_t prior_updates) const {
  // Saturate the count instead of wrapping to 0, which would divide by zero.
  const uint64_t t = prior_updates == UINT64_MAX ? prior_updates : prior_updates + 1;
  return {1.0 / OneMinusPower(squares1_, t), 1.0 / std::sqrt(OneMinusPower(squares2_, t))};
}

}  // namespace pawl
