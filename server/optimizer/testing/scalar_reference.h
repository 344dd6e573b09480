// The optimizers as plain loops over single elements, which the vectorised rules must equal to the
// bit. Written from README.md; it shares only the learning rate with the rules.
#ifndef PAWL_SERVER_OPTIMIZER_TESTING_SCALAR_REFERENCE_H_
#define PAWL_SERVER_OPTIMIZER_TESTING_SCALAR_REFERENCE_H_

#include <cstddef>

#include "proto/types.pb.h"
#include "server/optimizer/update_rule.h"

namespace pawl {

// UpdateRule::Apply. REQUIRES: UpdateRule::Create accepts the spec.
void ScalarApply(const Optimizer& spec, const UpdatePosition& position, float scale,
                 const void* gradient, size_t width, size_t begin, size_t count, float* weights,
                 float* slots);

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_TESTING_SCALAR_REFERENCE_H_
