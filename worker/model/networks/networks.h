// Creates the networks that a job file can name.
#ifndef PAWL_WORKER_MODEL_NETWORKS_NETWORKS_H_
#define PAWL_WORKER_MODEL_NETWORKS_NETWORKS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "worker/model/model_step.h"
#include "worker/model/networks/network.h"
#include "worker/model/table_list.h"

namespace pawl {

// Creates the model's network and adds its tables to `tables`. INVALID_ARGUMENT, naming the field,
// for a model that is impossible or does not fit the data.
absl::StatusOr<std::unique_ptr<Network>> CreateNetwork(const Model& spec, const ModelInputs& inputs,
                                                       TableList& tables);

}  // namespace pawl

#endif  // PAWL_WORKER_MODEL_NETWORKS_NETWORKS_H_
