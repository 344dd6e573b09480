// The loss and the fully connected layers of a model.
#ifndef PAWL_CLIENT_LIB_JOB_MODEL_LAYERS_H_
#define PAWL_CLIENT_LIB_JOB_MODEL_LAYERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace pawl {

// The model's loss, or its default if it names none.
Loss LossOf(const Model& model);

// In the order of the forward pass: "mlp/0", or for DLRM "bottom/0" and "top/0". Their tables are
// "<name>/weight" and "<name>/bias". `labels`: of a sample of the data. Empty for a model without
// such layers. REQUIRES: the model is valid (ValidateJob).
std::vector<std::string> LayersOf(const Model& model, uint32_t labels = 1);

// INVALID_ARGUMENT, listing the model's layers, if model.recompute contains a name that is neither
// one of them nor "all".
absl::Status ValidateRecompute(const Model& model, uint32_t labels = 1);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_MODEL_LAYERS_H_
