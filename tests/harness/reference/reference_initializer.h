// Initial values for the reference trainer, implemented from the specification in
// server/shard/initializer.h without its code.
#ifndef PAWL_TESTS_HARNESS_REFERENCE_REFERENCE_INITIALIZER_H_
#define PAWL_TESTS_HARNESS_REFERENCE_REFERENCE_INITIALIZER_H_

#include <cstdint>
#include <vector>

#include "proto/types.pb.h"

namespace pawl {

// The first `width` elements of row or block `key` before any update. REQUIRES: the spec is valid.
std::vector<float> ReferenceInitialValues(const TableSpec& table, uint64_t job_seed, uint64_t key,
                                          size_t width);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_REFERENCE_REFERENCE_INITIALIZER_H_
