// Table specs for tests.
#ifndef PAWL_CLIENT_LIB_BASE_TESTING_TABLE_SPECS_H_
#define PAWL_CLIENT_LIB_BASE_TESTING_TABLE_SPECS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/types.pb.h"

namespace pawl {

// The specs below have no optimizer. `id` 0: a spec as a client sends it. Otherwise a spec as
// servers receive it, with an element type.
inline TableSpec SparseTableSpec(const std::string& name, uint32_t row_width, uint32_t id = 0) {
  TableSpec spec;
  spec.set_name(name);
  spec.set_kind(SPARSE);
  spec.set_row_width(row_width);
  spec.set_id(id);
  if (id != 0) spec.set_element_type(FLOAT32);
  return spec;
}

inline TableSpec DenseTableSpec(const std::string& name, const std::vector<uint64_t>& shape,
                                uint32_t id = 0) {
  TableSpec spec;
  spec.set_name(name);
  spec.set_kind(DENSE);
  for (const uint64_t extent : shape) spec.add_shape(extent);
  spec.set_id(id);
  if (id != 0) spec.set_element_type(FLOAT32);
  return spec;
}

inline TableSpec WithSgd(TableSpec spec, float learning_rate = 1) {
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(learning_rate);
  return spec;
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_TESTING_TABLE_SPECS_H_
