// Checks of model specs, shared by the networks: for callers that have not called ValidateJob
// (client_lib/job/job_validation.h, which has the limits), and for conditions that depend on the
// data. All return INVALID_ARGUMENT naming the field of the job file.
#ifndef PAWL_WORKER_MODEL_SPEC_CHECKS_H_
#define PAWL_WORKER_MODEL_SPEC_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/repeated_field.h"

namespace pawl {

absl::Status CheckEmbeddingDim(absl::string_view field, uint32_t dim);
absl::Status CheckInitStddev(absl::string_view field, float stddev);
absl::Status CheckLayerWidths(absl::string_view field,
                              const google::protobuf::RepeatedField<uint32_t>& widths);
// A number of parts, at least 1.
absl::Status CheckCount(absl::string_view field, uint32_t count, uint32_t limit);
absl::Status CheckHasFields(absl::string_view model, uint32_t field_count);
// `inputs`: of the first layer of an MLP.
absl::Status CheckInputWidth(absl::string_view model, uint64_t inputs);

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_SPEC_CHECKS_H_
