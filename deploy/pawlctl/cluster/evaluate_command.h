// `pawlctl evaluate`: evaluates a checkpoint.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_EVALUATE_COMMAND_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_EVALUATE_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client_lib/base/env.h"
#include "deploy/pawlctl/command_line.h"
#include "proto/job.pb.h"

namespace pawl {

void AddEvaluateCommand(CommandLine& line);

struct EvaluateOptions {
  std::string checkpoint;
  // Empty: the checkpoint's own job.
  std::string job;
  // Files; empty: the job's data.eval.
  std::vector<std::string> data;
  // "path=value", as in RunOptions.
  std::vector<std::string> set;
};

struct EvaluatedCheckpoint {
  // The checkpoint's own folder.
  std::string folder;
  // Evaluates it, and trains nothing.
  Job job;
};

// Finds the checkpoint and makes the job that evaluates it. An error names the flag or the field.
absl::StatusOr<EvaluatedCheckpoint> PrepareEvaluation(Env& env, const EvaluateOptions& options);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_EVALUATE_COMMAND_H_
