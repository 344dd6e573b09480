// Refusals of impossible models, shared by the networks. All give
// INVALID_ARGUMENT that names the field of the job file.
#ifndef PAWL_WORKER_MODEL_SPEC_CHECKS_H_
#define PAWL_WORKER_MODEL_SPEC_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/repeated_field.h"

namespace pawl {

// What a row of a sparse table may be wide (proto/types.proto).
inline constexpr uint32_t kMaxEmbeddingDim = 4096;
// A weight matrix of two such layers is 1 GiB, which no step could move.
inline constexpr uint32_t kMaxLayerWidth = 16384;
inline constexpr int kMaxLayers = 64;

absl::Status CheckEmbeddingDim(absl::string_view field, uint32_t dim);
absl::Status CheckInitStddev(absl::string_view field, float stddev);
absl::Status CheckLayerWidths(absl::string_view field, const google::protobuf::RepeatedField<uint32_t>& widths);
absl::Status CheckHasFields(absl::string_view model, uint32_t field_count);
// The inputs of the first layer of an MLP.
absl::Status CheckInputWidth(absl::string_view model, uint64_t inputs);

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_SPEC_CHECKS_H_
