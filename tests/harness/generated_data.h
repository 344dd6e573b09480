// Small data files for tests. The content is a function of the seed.
#ifndef PAWL_TESTS_HARNESS_GENERATED_DATA_H_
#define PAWL_TESTS_HARNESS_GENERATED_DATA_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace pawl {

struct ClicksOptions {
  uint64_t samples = 1000;
  uint32_t fields = 6;
  // Per field. Small category numbers are more frequent.
  uint32_t categories = 100;
  uint64_t seed = 1;
};

// Writes a LIBSVM file with one category per field. The label, 0 or 1, is drawn from the logistic
// function of a sum over the categories, so a model can learn it. Files of different seeds follow
// the same model.
absl::Status WriteClicks(const ClicksOptions& options, const std::string& path);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_GENERATED_DATA_H_
