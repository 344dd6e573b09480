// How a gradient changes the weights of one row or block.
#ifndef PAWL_SERVER_OPTIMIZER_UPDATE_RULE_H_
#define PAWL_SERVER_OPTIMIZER_UPDATE_RULE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/types.pb.h"
#include "server/optimizer/update_formula.h"

namespace pawl {

// The position of an update in the job.
struct UpdatePosition {
  // For the learning rate schedule.
  uint64_t step = 0;
  // The number of earlier updates of this row or block, for Adam's bias correction.
  uint64_t prior_updates = 0;
  // The learning rate that the schedule multiplies; 0: that of the spec.
  float base_rate = 0.0f;
};

// An optimizer with its hyper-parameters. Immutable, hence thread-safe; the caller owns the state
// (weights and slots). The arithmetic is IEEE float32 without contraction, in one order whatever
// the vector width: the same inputs give the same bits on every machine.
class UpdateRule {
 public:
  // INVALID_ARGUMENT, naming the field, for an invalid hyper-parameter.
  static absl::StatusOr<std::unique_ptr<const UpdateRule>> Create(const Optimizer& spec);

  virtual ~UpdateRule() = default;

  // The number of state floats of a row of `width` elements. Slot arrays with one float per weight
  // follow each other, each `width` long.
  virtual size_t SlotCount(size_t width) const = 0;
  virtual void InitializeSlots(size_t width, float* slots) const = 0;
  // The slots that hold sums or means of squares. Negative ones make weights NaN.
  struct SlotRange {
    size_t begin = 0;
    size_t count = 0;
  };
  virtual SlotRange SquareSlots(size_t width) const = 0;
  // Whether updates need the number of earlier updates of their row.
  virtual bool CountsUpdates() const = 0;

  // Whether element i of the result depends only on element i of the inputs, so that a row may be
  // updated in parts.
  virtual bool IsElementwise() const = 0;

  // Updates elements [begin, begin + count) of a row of `width` elements with scale * gradient.
  // `gradient` has `count` little-endian floats at any alignment; `weights` and `slots` point to
  // the whole row. REQUIRES: begin == 0 and count == width unless IsElementwise().
  virtual void Apply(const UpdatePosition& position, float scale, const void* gradient,
                     size_t width, size_t begin, size_t count, float* weights,
                     float* slots) const = 0;

  // Updates whole rows in order: row i with scale * gradients[i], as Apply does. A row is its
  // weights, then its slots and, if CountsUpdates(), the number of its updates as a uint32, which
  // grows by one up to its largest value and replaces position.prior_updates. A row may occur
  // repeatedly.
  virtual void ApplyRows(const UpdatePosition& position, float scale, size_t width, size_t count,
                         const char* const* gradients, float* const* rows) const = 0;

  // The formula that Apply uses for whole rows, for processors for which it has no code. Row-wise
  // rules begin each row themselves.
  virtual UpdateFormula FormulaAt(const UpdatePosition& position, float scale) const = 0;
};

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_UPDATE_RULE_H_
