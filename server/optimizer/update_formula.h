// The update of one element, in arithmetic that every processor supports. kernel_rule.h makes
// vector code from it, and worker/device/cuda, compiled by nvcc, makes GPU kernels.
#ifndef PAWL_SERVER_OPTIMIZER_UPDATE_FORMULA_H_
#define PAWL_SERVER_OPTIMIZER_UPDATE_FORMULA_H_

#include <cmath>
#include <cstddef>
#include <variant>

#if defined(__CUDACC__)
#define PAWL_FORMULA __host__ __device__ inline
#else
#include "client_lib/base/compiler.h"
#define PAWL_FORMULA PAWL_ALWAYS_INLINE
#endif

namespace pawl {

// The change of a gradient in addition to scaling.
enum class GradientMode {
  kPlain,
  kClipped,      // clip_value or clip_norm
  kRegularized,  // l1, l2 or weight_decay, and perhaps clips
};

// The settings for the gradient of a row, and what its weights are multiplied by before the update.
// A value that switches an operation off leaves the gradient and the weights exact: a bound of
// infinity, a norm factor of 1, or weights that are kept by 1.
struct GradientPass {
  float scale;
  float bound;
  float factor;
  float l1;
  float l2;
  float keep;
};

// These functions take one element (T = float), or several as a vector type of the compiler.

// A raw gradient, scaled and clipped by value.
template <GradientMode kMode, typename T>
PAWL_FORMULA T Clipped(const GradientPass& pass, T g) {
  g = g * pass.scale;
  if constexpr (kMode != GradientMode::kPlain) {
    const T bound = T{} + pass.bound;
    g = g < -bound ? -bound : g;
    g = g > bound ? bound : g;
  }
  return g;
}

// A raw gradient as the optimizer sees it. `weight` is used only with kRegularized.
template <GradientMode kMode, typename T>
PAWL_FORMULA T Prepared(const GradientPass& pass, T g, T weight) {
  g = Clipped<kMode, T>(pass, g);
  if constexpr (kMode != GradientMode::kPlain) g = g * pass.factor;
  if constexpr (kMode == GradientMode::kRegularized) {
    const T zero = {};
    const T one = zero + 1.0f;
    const T sign = weight > zero ? one : (weight < zero ? -one : zero);
    g = g + (pass.l2 * weight + pass.l1 * sign);
  }
  return g;
}

// A weight after decoupled weight decay. Its gradient has been prepared before.
template <GradientMode kMode>
PAWL_FORMULA float Decayed(const GradientPass& pass, float weight) {
  if constexpr (kMode == GradientMode::kRegularized) return weight * pass.keep;
  return weight;
}

// The formulas; the file named after an optimizer cites the source. Each has
//   kSlotArrays            the number of slot arrays as long as the weights: 0, 1 or 2
//   kRowSlots              1 if one slot serves the whole row instead
//   kSquaresArray          the slot array that holds sums or means of squares; -1: none
//   Element(g, w, ...)     the update of a weight and its slots by a prepared gradient
// and, with kRowSlots, BeginRow(mean_square, slot), called once before a row's elements with the
// mean square of its prepared gradients: it updates the slot and what Element needs of it.
// KeepsRow, if there is one, tells that Element changes nothing, so that a loop can be skipped.

struct SgdFormula {
  static constexpr size_t kSlotArrays = 0;
  static constexpr size_t kRowSlots = 0;
  static constexpr int kSquaresArray = -1;
  float rate;

  PAWL_FORMULA void Element(float g, float& w) const { w = w - rate * g; }
};

template <bool kNesterov>
struct MomentumFormula {
  static constexpr size_t kSlotArrays = 1;
  static constexpr size_t kRowSlots = 0;
  static constexpr int kSquaresArray = -1;
  float rate;
  float momentum;

  PAWL_FORMULA void Element(float g, float& w, float& v) const {
    v = momentum * v + g;
    w = w - rate * (kNesterov ? g + momentum * v : v);
  }
};

struct AdagradFormula {
  static constexpr size_t kSlotArrays = 1;
  static constexpr size_t kRowSlots = 0;
  static constexpr int kSquaresArray = 0;
  float rate;
  float epsilon;

  PAWL_FORMULA void Element(float g, float& w, float& a) const {
    a = a + g * g;
    w = w - (rate * g) / (std::sqrt(a) + epsilon);
  }
};

struct RowWiseAdagradFormula {
  static constexpr size_t kSlotArrays = 0;
  static constexpr size_t kRowSlots = 1;
  static constexpr int kSquaresArray = -1;
  float rate;
  float epsilon;
  // For the whole row.
  float factor = 0;

  PAWL_FORMULA void BeginRow(float mean_square, float* slot) {
    const float a = *slot + mean_square;
    *slot = a;
    factor = rate / (std::sqrt(a) + epsilon);
  }
  PAWL_FORMULA void Element(float g, float& w) const { w = w - factor * g; }
};

struct RmsPropFormula {
  static constexpr size_t kSlotArrays = 1;
  static constexpr size_t kRowSlots = 0;
  static constexpr int kSquaresArray = 0;
  float rate;
  float rho;
  float one_minus_rho;
  float epsilon;

  PAWL_FORMULA void Element(float g, float& w, float& a) const {
    a = rho * a + one_minus_rho * (g * g);
    w = w - (rate * g) / (std::sqrt(a) + epsilon);
  }
};

template <bool kDecoupledDecay>
struct AdamFormula {
  static constexpr size_t kSlotArrays = 2;
  static constexpr size_t kRowSlots = 0;
  static constexpr int kSquaresArray = 1;
  float corrected_rate;
  float inverse_root;
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float epsilon;
  float keep;

  PAWL_FORMULA void Element(float g, float& w, float& m, float& v) const {
    m = beta1 * m + one_minus_beta1 * g;
    v = beta2 * v + one_minus_beta2 * (g * g);
    if constexpr (kDecoupledDecay) w = w * keep;
    w = w - (corrected_rate * m) / (std::sqrt(v) * inverse_root + epsilon);
  }
};

// FTRL divides by its rate. A smaller one, such as the 0 at the end of a schedule, counts as 0 and
// leaves weights and slots as they are; the quotients would overflow, and 0 / 0 make NaN.
inline constexpr float kMinFtrlRate = 1e-30f;

struct FtrlFormula {
  static constexpr size_t kSlotArrays = 2;
  static constexpr size_t kRowSlots = 0;
  static constexpr int kSquaresArray = 0;
  float rate;
  float beta;
  float l1;
  float l2;

  PAWL_FORMULA bool KeepsRow() const { return rate < kMinFtrlRate; }
  PAWL_FORMULA void Element(float g, float& w, float& n, float& z) const {
    if (KeepsRow()) return;
    const float root = std::sqrt(n);
    const float new_n = n + g * g;
    const float new_root = std::sqrt(new_n);
    const float sigma = (new_root - root) / rate;
    const float new_z = z + (g - sigma * w);
    const float pull = (new_z < 0.0f ? -l1 : l1) - new_z;
    const float weight = pull / ((beta + new_root) / rate + l2);
    const float size = new_z < 0.0f ? -new_z : new_z;
    n = new_n;
    z = new_z;
    w = size <= l1 ? 0.0f : weight;
  }
};

// The raw gradient replaces the weight.
struct AssignFormula {};

// A complete update of rows; the README has the order of the operations.
struct UpdateFormula {
  std::variant<AssignFormula, SgdFormula, MomentumFormula<false>, MomentumFormula<true>,
               AdagradFormula, RowWiseAdagradFormula, RmsPropFormula, AdamFormula<false>,
               AdamFormula<true>, FtrlFormula>
      element;
  // The members below do not apply to assignment.
  GradientMode mode = GradientMode::kPlain;
  GradientPass pass = {1, 0, 1, 0, 0, 1};
  // 0 if unset; otherwise the factor in `pass` is computed for each row.
  float clip_norm = 0;
};

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_UPDATE_FORMULA_H_
