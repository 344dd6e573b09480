// Small data files for tests, a function of their seed.
#ifndef PAWL_TESTS_HARNESS_GENERATED_DATA_H_
#define PAWL_TESTS_HARNESS_GENERATED_DATA_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace pawl {

struct ClicksOptions {
  uint64_t samples = 1000;
  uint32_t fields = 6;
  // In each field; small numbers come more often.
  uint32_t categories = 100;
  uint64_t seed = 1;
};

// LIBSVM, one category in each field, labels 0 and 1 drawn by the logistic of a sum
// over the categories, so that there is something to learn. The files of two seeds are of the same
// truth.
absl::Status WriteClicks(const ClicksOptions& options, const std::string& path);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_GENERATED_DATA_H_
