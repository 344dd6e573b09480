// Turns a formula for one element into an UpdateRule: the loops over a row and the choice of vector
// instructions, shared by all optimizers.
#ifndef PAWL_SERVER_OPTIMIZER_KERNEL_RULE_H_
#define PAWL_SERVER_OPTIMIZER_KERNEL_RULE_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
        l2(spec.l2()),
        weight_decay(spec.weight_decay()) {}

  // clip_value; infinity if unset.
  float bound;
  // 0 if unset.
  float clip_norm;
  float l1;
  float l2;
  float weight_decay;
};

// An UpdateRule made from a Kernel, which has
//   Formula                      the formula for one element (update_formula.h)
//   InitialSlot()                the initial value of the row's slot and of the first slot array;
//                                the second array starts at 0
//   Begin(rate, prior_updates)   the Formula for one row
//   kCountsUpdates               declared only by kernels whose Begin needs prior_updates
// A rule is not elementwise if its formula has a slot for the whole row or clip_norm is set.
template <typename Kernel>
class KernelRule final : public UpdateRule {
  using Formula = typename Kernel::Formula;
  static constexpr bool kCountsUpdates = requires { Kernel::kCountsUpdates; };

 public:
  KernelRule(Kernel kernel, LearningRate rate, const GradientSettings& settings, Isa isa)
      : kernel_(std::move(kernel)),
        rate_(rate),
        settings_(settings),
        mode_(ModeOf(settings)),
        functions_(ChooseMode(mode_, isa)) {}

  size_t SlotCount(size_t width) const override {
    return Formula::kSlotArrays * width + Formula::kRowSlots;
  }

  void InitializeSlots(size_t width, float* slots) const override {
    const size_t first = Formula::kRowSlots + (Formula::kSlotArrays > 0 ? width : 0);
    const size_t all = SlotCount(width);
    for (size_t i = 0; i < first; ++i) slots[i] = kernel_.InitialSlot();
    for (size_t i = first; i < all; ++i) slots[i] = 0.0f;
  }

  SlotRange SquareSlots(size_t width) const override {
    if constexpr (Formula::kRowSlots == 1) return {0, 1};
    if constexpr (Formula::kSquaresArray >= 0) return {Formula::kSquaresArray * width, width};
    return {};
  }

  bool CountsUpdates() const override { return kCountsUpdates; }

  bool IsElementwise() const override {
    return Formula::kRowSlots == 0 && settings_.clip_norm == 0.0f;
  }

  void Apply(const UpdatePosition& position, float scale, const void* gradient, size_t width,
             size_t begin, size_t count, float* weights, float* slots) const override {
    functions_.apply(*this, position, scale, static_cast<const char*>(gradient), width, begin,
                     count, weights, slots);
  }

  void ApplyRows(const UpdatePosition& position, float scale, size_t width, size_t count,
                 const char* const* gradients, float* const* rows) const override {
    functions_.apply_rows(*this, position, scale, width, count, gradients, rows);
  }

  UpdateFormula FormulaAt(const UpdatePosition& position, float scale) const override {
    const float rate = rate_.At(position.step, position.base_rate);
    return {.element = kernel_.Begin(rate, position.prior_updates),
            .mode = mode_,
            .pass = PassOf(scale, rate),
            .clip_norm = settings_.clip_norm};
  }

 private:
  struct Functions {
    void (*apply)(const KernelRule& rule, const UpdatePosition& position, float scale,
                  const char* gradient, size_t width, size_t begin, size_t count, float* weights,
                  float* slots);
    void (*apply_rows)(const KernelRule& rule, const UpdatePosition& position, float scale,
                       size_t width, size_t count, const char* const* gradients,
                       float* const* rows);
  };

  PAWL_ALWAYS_INLINE GradientPass PassOf(float scale, float rate) const {
    const double decay = static_cast<double>(rate) * static_cast<double>(settings_.weight_decay);
    return {scale,        settings_.bound, 1.0f,
            settings_.l1, settings_.l2,    static_cast<float>(1.0 - decay)};
  }

  template <GradientMode kMode>
  PAWL_ALWAYS_INLINE static void Update(const KernelRule& rule, float rate, uint64_t prior_updates,
                                        GradientPass pass, const char* gradient, size_t width,
                                        size_t begin, size_t count, float* weights, float* slots) {
    if constexpr (kMode != GradientMode::kPlain) {
      if (rule.settings_.clip_norm > 0.0f) {
        const double norm = std::sqrt(SumOfSquares<kMode, false>(pass, gradient, count, nullptr));
        const double limit = rule.settings_.clip_norm;
        if (norm > limit) pass.factor = static_cast<float>(limit / norm);
      }
    }
    // A row in memory is its weights followed by its slots, so they do not overlap.
    float* __restrict w = weights + begin;
    Formula formula = rule.kernel_.Begin(rate, prior_updates);
    if constexpr (Formula::kRowSlots == 1) {
      const double sum = SumOfSquares<kMode, true>(pass, gradient, count, w);
      formula.BeginRow(static_cast<float>(sum / static_cast<double>(width)), slots);
    }
    const Formula k = formula;
    // Also frees the loops below from the condition in Element: they would not all be vectorised.
    if constexpr (requires { k.KeepsRow(); }) {
      if (k.KeepsRow()) return;
    }
    if constexpr (Formula::kSlotArrays == 0) {
      PAWL_INDEPENDENT_ITERATIONS
      for (size_t i = 0; i < count; ++i) {
        const float g = PreparedAt<kMode, float>(pass, gradient, i, w);
        w[i] = Decayed<kMode>(pass, w[i]);
        k.Element(g, w[i]);
      }
    } else if constexpr (Formula::kSlotArrays == 1) {
      float* __restrict s = slots + begin;
      PAWL_INDEPENDENT_ITERATIONS
      for (size_t i = 0; i < count; ++i) {
        const float g = PreparedAt<kMode, float>(pass, gradient, i, w);
        w[i] = Decayed<kMode>(pass, w[i]);
        k.Element(g, w[i], s[i]);
      }
    } else {
      float* __restrict s = slots + begin;
      float* __restrict t = slots + width + begin;
      PAWL_INDEPENDENT_ITERATIONS
      for (size_t i = 0; i < count; ++i) {
        const float g = PreparedAt<kMode, float>(pass, gradient, i, w);
        w[i] = Decayed<kMode>(pass, w[i]);
        k.Element(g, w[i], s[i], t[i]);
      }
    }
  }

  template <GradientMode kMode>
  PAWL_ALWAYS_INLINE static void Apply(const KernelRule& rule, const UpdatePosition& position,
                                       float scale, const char* gradient, size_t width,
                                       size_t begin, size_t count, float* weights, float* slots) {
    const float rate = rule.rate_.At(position.step, position.base_rate);
    Update<kMode>(rule, rate, position.prior_updates, rule.PassOf(scale, rate), gradient, width,
                  begin, count, weights, slots);
  }

  // Inlined with constant widths where that is worth its code.
  template <GradientMode kMode>
  PAWL_ALWAYS_INLINE static void UpdateRows(const KernelRule& rule, const UpdatePosition& position,
                                            float scale, size_t width, size_t count,
                                            const char* const* gradients, float* const* rows) {
    const float rate = rule.rate_.At(position.step, position.base_rate);
    const GradientPass pass = rule.PassOf(scale, rate);
    for (size_t i = 0; i < count; ++i) {
      float* const slots = rows[i] + width;
      uint32_t updates = 0;
      if constexpr (kCountsUpdates) {
        float* const place = slots + Formula::kSlotArrays * width + Formula::kRowSlots;
        std::memcpy(&updates, place, sizeof(updates));
        // Adam's corrections reach 1 long before the counter saturates.
        const uint32_t next = updates + (updates < UINT32_MAX);
        std::memcpy(place, &next, sizeof(next));
      }
      Update<kMode>(rule, rate, updates, pass, gradients[i], width, 0, width, rows[i], slots);
    }
  }
  template <GradientMode kMode>
  PAWL_ALWAYS_INLINE static void ApplyRows(const KernelRule& rule, const UpdatePosition& position,
                                           float scale, size_t width, size_t count,
                                           const char* const* gradients, float* const* rows) {
    if constexpr (kMode == GradientMode::kPlain) {
      if (width == 1) return UpdateRows<kMode>(rule, position, scale, 1, count, gradients, rows);
      if (width == 16) return UpdateRows<kMode>(rule, position, scale, 16, count, gradients, rows);
      // A category's vector and its weight.
      if (width == 17) return UpdateRows<kMode>(rule, position, scale, 17, count, gradients, rows);
    }
    UpdateRows<kMode>(rule, position, scale, width, count, gradients, rows);
  }

// Functions that are compiled with the instructions of `target`.
#define PAWL_KERNEL_FUNCTIONS(name, target)                                                     \
  template <GradientMode kMode>                                                                 \
  target static void Apply##name(const KernelRule& rule, const UpdatePosition& position,        \
                                 float scale, const char* gradient, size_t width, size_t begin, \
                                 size_t count, float* weights, float* slots) {                  \
    Apply<kMode>(rule, position, scale, gradient, width, begin, count, weights, slots);         \
  }                                                                                             \
  template <GradientMode kMode>                                                                 \
  target static void ApplyRows##name(const KernelRule& rule, const UpdatePosition& position,    \
                                     float scale, size_t width, size_t count,                   \
                                     const char* const* gradients, float* const* rows) {        \
    ApplyRows<kMode>(rule, position, scale, width, count, gradients, rows);                     \
  }
  PAWL_KERNEL_FUNCTIONS(Portable, )
  PAWL_KERNEL_FUNCTIONS(Avx2, PAWL_TARGET_AVX2)
  PAWL_KERNEL_FUNCTIONS(Avx512, PAWL_TARGET_AVX512)
#undef PAWL_KERNEL_FUNCTIONS

  template <GradientMode kMode>
  static Functions ChooseIsa(Isa isa) {
    switch (isa) {
      case Isa::kPortable:
        break;
      case Isa::kAvx2:
        return {&ApplyAvx2<kMode>, &ApplyRowsAvx2<kMode>};
      case Isa::kAvx512:
        return {&ApplyAvx512<kMode>, &ApplyRowsAvx512<kMode>};
    }
    return {&ApplyPortable<kMode>, &ApplyRowsPortable<kMode>};
  }

  static GradientMode ModeOf(const GradientSettings& settings) {
    if (settings.l1 != 0.0f || settings.l2 != 0.0f || settings.weight_decay != 0.0f)
      return GradientMode::kRegularized;
    const bool clips =
        settings.clip_norm != 0.0f || settings.bound != std::numeric_limits<float>::infinity();
    return clips ? GradientMode::kClipped : GradientMode::kPlain;
  }

  static Functions ChooseMode(GradientMode mode, Isa isa) {
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
  const Functions functions_;
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
