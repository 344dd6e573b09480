// Turns a formula for one element into an UpdateRule: the loops over a row and the choice of vector
// instructions, shared by all optimizers.
#ifndef PAWL_SERVER_OPTIMIZER_KERNEL_RULE_H_
#define PAWL_SERVER_OPTIMIZER_KERNEL_RULE_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "proto/types.pb.h"
#include "server/optimizer/gradient_pass.h"
#include "server/optimizer/learning_rate.h"
#include "server/optimizer/math/isa.h"
#include "server/optimizer/rules.h"
#include "server/optimizer/update_formula.h"
#include "server/optimizer/update_rule.h"

namespace pawl {

// The settings that are applied to a gradient before every optimizer.
struct GradientSettings {
  explicit GradientSettings(const Optimizer& spec)
      : bound(spec.clip_value() > 0.0f ? spec.clip_value()
                                       : std::numeric_limits<float>::infinity()),
        clip_norm(spec.clip_norm()),
        l1(spec.l1()),
        l2(spec.l2()) {}

  // clip_value; infinity if unset.
  float bound;
  // 0 if unset.
  float clip_norm;
  float l1;
  float l2;
};

// An UpdateRule made from a Kernel, which has
//   Formula                      the formula for one element (update_formula.h)
//   InitialSlot()                the initial value of the first slot array; the second starts at 0
//   Begin(rate, prior_updates)   the Formula for one row
// A formula with one slot for the whole row makes the rule not elementwise.
template <typename Kernel>
class KernelRule final : public UpdateRule {
  using Formula = typename Kernel::Formula;

 public:
  KernelRule(Kernel kernel, LearningRate rate, const GradientSettings& settings, Isa isa)
      : kernel_(std::move(kernel)),
        rate_(rate),
        settings_(settings),
        mode_(ModeOf(settings)),
        apply_(ChooseMode(mode_, isa)) {}

  size_t SlotCount(size_t width) const override {
    return Formula::kSlotArrays * width + Formula::kRowSlots;
  }

  void InitializeSlots(size_t width, float* slots) const override {
    const size_t first = Formula::kRowSlots + (Formula::kSlotArrays > 0 ? width : 0);
    const size_t all = SlotCount(width);
    for (size_t i = 0; i < first; ++i) slots[i] = kernel_.InitialSlot();
    for (size_t i = first; i < all; ++i) slots[i] = 0.0f;
  }

  bool IsElementwise() const override {
    return Formula::kRowSlots == 0 && settings_.clip_norm == 0.0f;
  }

  void Apply(const UpdatePosition& position, float scale, const void* gradient, size_t width,
             size_t begin, size_t count, float* weights, float* slots) const override {
    apply_(*this, position, scale, static_cast<const char*>(gradient), width, begin, count, weights,
           slots);
  }

  UpdateFormula FormulaAt(const UpdatePosition& position, float scale) const override {
    return {.element = kernel_.Begin(rate_.At(position.step), position.prior_updates),
            .mode = mode_,
            .pass = PassOf(scale),
            .clip_norm = settings_.clip_norm};
  }

 private:
  using ApplyFunction = void (*)(const KernelRule& rule, const UpdatePosition& position,
                                 float scale, const char* gradient, size_t width, size_t begin,
                                 size_t count, float* weights, float* slots);

  PAWL_ALWAYS_INLINE GradientPass PassOf(float scale) const {
    return {scale, settings_.bound, 1.0f, settings_.l1, settings_.l2};
  }

  template <GradientMode kMode>
  PAWL_ALWAYS_INLINE static void Body(const KernelRule& rule, const UpdatePosition& position,
                                      float scale, const char* gradient, size_t width, size_t begin,
                                      size_t count, float* weights, float* slots) {
    const float rate = rule.rate_.At(position.step);
    GradientPass pass = rule.PassOf(scale);
    if constexpr (kMode != GradientMode::kPlain) {
      if (rule.settings_.clip_norm > 0.0f) {
        const double norm = std::sqrt(SumOfSquares<kMode, false>(pass, gradient, count, nullptr));
        const double limit = rule.settings_.clip_norm;
        if (norm > limit) pass.factor = static_cast<float>(limit / norm);
      }
    }
    // A row in memory is its weights followed by its slots, so they do not overlap.
    float* __restrict w = weights + begin;
    Formula formula = rule.kernel_.Begin(rate, position.prior_updates);
    if constexpr (Formula::kRowSlots == 1) {
      const double sum = SumOfSquares<kMode, true>(pass, gradient, count, w);
      formula.BeginRow(static_cast<float>(sum / static_cast<double>(width)), slots);
    }
    const Formula k = formula;
    if constexpr (Formula::kSlotArrays == 0) {
      PAWL_INDEPENDENT_ITERATIONS
      for (size_t i = 0; i < count; ++i)
        k.Element(PreparedAt<kMode, float>(pass, gradient, i, w), w[i]);
    } else if constexpr (Formula::kSlotArrays == 1) {
      float* __restrict s = slots + begin;
      PAWL_INDEPENDENT_ITERATIONS
      for (size_t i = 0; i < count; ++i)
        k.Element(PreparedAt<kMode, float>(pass, gradient, i, w), w[i], s[i]);
    } else {
      float* __restrict s = slots + begin;
      float* __restrict t = slots + width + begin;
      PAWL_INDEPENDENT_ITERATIONS
      for (size_t i = 0; i < count; ++i)
        k.Element(PreparedAt<kMode, float>(pass, gradient, i, w), w[i], s[i], t[i]);
    }
  }

  template <GradientMode kMode>
  static void ApplyPortable(const KernelRule& rule, const UpdatePosition& position, float scale,
                            const char* gradient, size_t width, size_t begin, size_t count,
                            float* weights, float* slots) {
    Body<kMode>(rule, position, scale, gradient, width, begin, count, weights, slots);
  }
  template <GradientMode kMode>
  PAWL_TARGET_AVX2 static void ApplyAvx2(const KernelRule& rule, const UpdatePosition& position,
                                         float scale, const char* gradient, size_t width,
                                         size_t begin, size_t count, float* weights, float* slots) {
    Body<kMode>(rule, position, scale, gradient, width, begin, count, weights, slots);
  }
  template <GradientMode kMode>
  PAWL_TARGET_AVX512 static void ApplyAvx512(const KernelRule& rule, const UpdatePosition& position,
                                             float scale, const char* gradient, size_t width,
                                             size_t begin, size_t count, float* weights,
                                             float* slots) {
    Body<kMode>(rule, position, scale, gradient, width, begin, count, weights, slots);
  }

  template <GradientMode kMode>
  static ApplyFunction ChooseIsa(Isa isa) {
    switch (isa) {
      case Isa::kPortable:
        break;
      case Isa::kAvx2:
        return &ApplyAvx2<kMode>;
      case Isa::kAvx512:
        return &ApplyAvx512<kMode>;
    }
    return &ApplyPortable<kMode>;
  }

  static GradientMode ModeOf(const GradientSettings& settings) {
    if (settings.l1 != 0.0f || settings.l2 != 0.0f) return GradientMode::kRegularized;
    const bool clips =
        settings.clip_norm != 0.0f || settings.bound != std::numeric_limits<float>::infinity();
    return clips ? GradientMode::kClipped : GradientMode::kPlain;
  }

  static ApplyFunction ChooseMode(GradientMode mode, Isa isa) {
    switch (mode) {
      case GradientMode::kPlain:
        break;
      case GradientMode::kClipped:
        return ChooseIsa<GradientMode::kClipped>(isa);
      case GradientMode::kRegularized:
        return ChooseIsa<GradientMode::kRegularized>(isa);
    }
    return ChooseIsa<GradientMode::kPlain>(isa);
  }

  const Kernel kernel_;
  const LearningRate rate_;
  const GradientSettings settings_;
  const GradientMode mode_;
  const ApplyFunction apply_;
};

// Creates the rule for a kernel; used by the factories of rules.h. REQUIRES: their conditions.
template <typename Kernel>
std::unique_ptr<const UpdateRule> MakeRule(Kernel kernel, float learning_rate,
                                           const Optimizer& spec, Isa isa) {
  return std::make_unique<const KernelRule<Kernel>>(
      std::move(kernel), LearningRate(learning_rate, spec.schedule()), GradientSettings(spec), isa);
}

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_KERNEL_RULE_H_
