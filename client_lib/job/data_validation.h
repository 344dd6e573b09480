// The part of job_validation.h that concerns the data.
#ifndef PAWL_CLIENT_LIB_JOB_DATA_VALIDATION_H_
#define PAWL_CLIENT_LIB_JOB_DATA_VALIDATION_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/job/format_validation.h"
#include "proto/job.pb.h"

namespace pawl {

// Validates everything except the files, and returns the inputs. INVALID_ARGUMENT names the field.
absl::StatusOr<DataFeatures> ValidateData(const Data& data);

// Checks that the files can be opened, with `evaluation_only` those of data.eval. NOT_FOUND names a
// missing file.
absl::Status ValidateDataFiles(const Data& data, bool evaluation_only);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_DATA_VALIDATION_H_
