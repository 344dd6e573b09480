// Validation of the data section of a job; for job_validation.cc.
#ifndef PAWL_CLIENT_LIB_JOB_DATA_VALIDATION_H_
#define PAWL_CLIENT_LIB_JOB_DATA_VALIDATION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/job.pb.h"

namespace pawl {

// INVALID_ARGUMENT with the concatenated parts.
template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// The numbers of numeric and categorical inputs, and of labels, that a model gets.
struct DataFeatures {
  uint64_t numerics = 0;
  uint64_t fields = 0;
  // Labels of each sample.
  uint64_t labels = 1;
};

// Validates everything except the files, and returns the inputs. INVALID_ARGUMENT names the field.
absl::StatusOr<DataFeatures> ValidateData(const Data& data);

// Checks that the files can be opened. NOT_FOUND names a missing file.
absl::Status ValidateDataFiles(const Data& data);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_DATA_VALIDATION_H_
