// Optimizers for the reference trainer. They update one element at a time by the formulas in
// proto/types.proto and the headers of server/optimizer, without their code.
#ifndef PAWL_TESTS_HARNESS_REFERENCE_REFERENCE_OPTIMIZER_H_
#define PAWL_TESTS_HARNESS_REFERENCE_REFERENCE_OPTIMIZER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/types.pb.h"

namespace pawl {

// The state of one row or block.
struct ReferenceRow {
  std::vector<float> weights;
  // Optimizer slots, as long as the weights.
  std::vector<float> first;
  std::vector<float> second;
  uint64_t updates = 0;
};

// SGD, Adagrad and Adam with l1, l2, weight_decay, clip_value, warm-up and the step schedule.
class ReferenceOptimizer {
 public:
  // UNIMPLEMENTED for other optimizers and settings.
  static absl::StatusOr<ReferenceOptimizer> Create(const Optimizer& spec);

  // Initializes the slots of a row. Its weights are already set.
  void Begin(ReferenceRow& row) const;
  // Applies one update with scale * gradient at `step`.
  void Apply(uint64_t step, float scale, const std::vector<float>& gradient,
             ReferenceRow& row) const;

 private:
  explicit ReferenceOptimizer(const Optimizer& spec) : spec_(spec) {}

  float Rate(uint64_t step) const;

  Optimizer spec_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_REFERENCE_REFERENCE_OPTIMIZER_H_
