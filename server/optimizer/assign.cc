// Assignment: the pushed values replace the weights. For state that is trained elsewhere and stored
// here.
//
//   w <- g
#include <cstring>
#include <memory>

#include "server/optimizer/rules.h"

namespace pawl {
namespace {

class AssignRule final : public UpdateRule {
 public:
  size_t SlotCount(size_t /*width*/) const override { return 0; }
  void InitializeSlots(size_t /*width*/, float* /*slots*/) const override {}
  SlotRange SquareSlots(size_t /*width*/) const override { return {}; }
  bool CountsUpdates() const override { return false; }
  bool IsElementwise() const override { return true; }
  // `scale` divides by the number of ranks, but only one rank has pushed.
  void Apply(const UpdatePosition& /*position*/, float /*scale*/, const void* gradient,
             size_t /*width*/, size_t begin, size_t count, float* weights,
             float* /*slots*/) const override {
    if (count > 0) std::memcpy(weights + begin, gradient, count * sizeof(float));
  }
  void ApplyRows(const UpdatePosition& /*position*/, float /*scale*/, size_t width, size_t count,
                 const char* const* gradients, float* const* rows) const override {
    for (size_t i = 0; i < count; ++i) std::memcpy(rows[i], gradients[i], width * sizeof(float));
  }
  UpdateFormula FormulaAt(const UpdatePosition& /*position*/, float /*scale*/) const override {
    return {.element = AssignFormula()};
  }
};

}  // namespace

std::unique_ptr<const UpdateRule> MakeAssign(const Optimizer& /*spec*/, Isa /*isa*/) {
  return std::make_unique<const AssignRule>();
}

}  // namespace pawl
