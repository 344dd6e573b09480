// The loss of every model in double precision, as the papers define it: for tests, independent of
// the networks and kernels.
#ifndef PAWL_WORKER_MODEL_TESTING_REFERENCE_LOSS_H_
#define PAWL_WORKER_MODEL_TESTING_REFERENCE_LOSS_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client_lib/job/field_layout.h"
#include "proto/job.pb.h"
#include "worker/data/batch.h"

namespace pawl {

// By the table's name, in TrainingModel's layout.
using ReferenceParameters = absl::flat_hash_map<std::string, std::vector<double>>;

// The outputs for sample s: logits, or the prediction.
std::vector<double> ReferenceOutputs(const Model& model, const FieldLayout& layout,
                                     const Batch& batch, const ReferenceParameters& parameters,
                                     uint32_t s);

// The weighted sum of the losses of all samples and labels.
double ReferenceLossSum(const Model& model, Loss loss, const FieldLayout& layout,
                        const Batch& batch, const ReferenceParameters& parameters);

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_TESTING_REFERENCE_LOSS_H_
