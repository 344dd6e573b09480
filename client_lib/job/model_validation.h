// The part of job_validation.h that concerns the model.
#ifndef PAWL_CLIENT_LIB_JOB_MODEL_VALIDATION_H_
#define PAWL_CLIENT_LIB_JOB_MODEL_VALIDATION_H_

#include "absl/status/status.h"
#include "client_lib/job/data_validation.h"
#include "proto/job.pb.h"

namespace pawl {

// INVALID_ARGUMENT, naming the field, for a model that is impossible or does not fit the data.
absl::Status ValidateModel(const Data& data, const Model& model, const DataFeatures& features);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_MODEL_VALIDATION_H_
