// `pawlctl run`: one job on a cluster of processes on this machine, from start to end.
#ifndef PAWL_DEPLOY_PAWLCTL_CLUSTER_RUN_COMMAND_H_
#define PAWL_DEPLOY_PAWLCTL_CLUSTER_RUN_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

namespace pawl {

struct RunOptions {
  std::string job;
  uint32_t servers = 1;
  // -1: 1, or 0 for a job that only serves tables.
  int32_t workers = -1;
  // Each "cpu" or "cuda:N": what the workers compute on, given out in turn. Empty: the CPU.
  std::vector<std::string> devices = {};
  // pawl-worker's --collectives; empty: its default.
  std::string collectives;
  // Likewise --cuda_graphs.
  bool cuda_graphs = false;
  // 0: what the job says, or 1.
  uint32_t replicas = 0;
  // A pawl.Durability; empty: what the job says, or LOG.
  std::string durability;
  // How often processes that die are started again, all together.
  uint32_t max_restarts = 10;
  // "path=value", applied to the job in this order; relative file names count from the current
  // folder.
  std::vector<std::string> set;
  // Empty: out/NAME in the current folder, after the job.
  std::string out;
  // If set: a checkpoint's folder, or one of checkpoints, to begin with.
  std::string restore;
  // This program's own path, and the environment's PAWL_BIN_DIR: where to look for the daemons.
  std::string own_program;
  std::string bin_folder;
};

// Runs the job and reports on stdout and stderr. Returns the exit code. To be
// called on the main thread, before any other thread has started.
int RunCommand(const RunOptions& options);

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_CLUSTER_RUN_COMMAND_H_
