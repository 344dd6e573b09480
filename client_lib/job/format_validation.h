// Validation of the format and the columns of a job's data. The scheduler and the readers of
// pawl-worker share it.
#ifndef PAWL_CLIENT_LIB_JOB_FORMAT_VALIDATION_H_
#define PAWL_CLIENT_LIB_JOB_FORMAT_VALIDATION_H_

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

// The features of a sample: numeric inputs, categorical fields and labels.
struct DataFeatures {
  uint64_t numerics = 0;
  uint64_t fields = 0;
  uint64_t labels = 1;
};

// Validates the columns, and returns what they become. INVALID_ARGUMENT names the field of the job
// file, its value and a remedy. The message is printable ASCII.
absl::StatusOr<DataFeatures> ValidateCsvSpec(const CsvSpec& csv);
absl::StatusOr<DataFeatures> ValidateRecordSpec(const RecordSpec& records);

// Does so for data.format and the fields that belong to it.
absl::StatusOr<DataFeatures> ValidateFormat(const Data& data);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_FORMAT_VALIDATION_H_
