#include "worker/process/worker_identity.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "client_lib/base/status_macros.h"
#include "client_lib/daemon/node_file.h"
#include "spdlog/spdlog.h"

namespace pawl {

WorkerIdentity::WorkerIdentity(Env& env, std::string data_dir, std::unique_ptr<FolderLock> lock)
    : env_(env), data_dir_(std::move(data_dir)), lock_(std::move(lock)) {}

absl::StatusOr<std::unique_ptr<WorkerIdentity>> WorkerIdentity::Open(Env& env,
                                                                     const std::string& data_dir) {
  PAWL_RETURN_IF_ERROR(env.MakeFolder(data_dir));
  PAWL_RETURN_IF_ERROR(CheckIsNotSchedulerFolder(env, data_dir));
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<FolderLock> lock, env.LockFolder(data_dir));
  // Check again now that a scheduler would see the lock file.
  PAWL_RETURN_IF_ERROR(CheckIsNotSchedulerFolder(env, data_dir));
  std::unique_ptr<WorkerIdentity> identity(new WorkerIdentity(env, data_dir, std::move(lock)));
  absl::StatusOr<NodeIdentity> known = ReadNodeFile(env, data_dir, kWorkerDaemon);
  if (absl::IsNotFound(known.status())) return identity;
  if (absl::IsFailedPrecondition(known.status())) return known.status();
  if (known.ok() && known->life() == std::numeric_limits<uint32_t>::max()) {
    known = absl::OutOfRangeError("its start_count has reached its maximum");
  }
  if (!known.ok()) {
    spdlog::warn("this worker joins as a new one: {}", known.status().ToString());
    return identity;
  }
  // An incarnation that is not recorded would be taken for the one before.
  known->set_life(known->life() + 1);
  if (const absl::Status written = identity->Write(*std::move(known)); !written.ok()) {
    spdlog::warn("this worker joins as a new one, because --data_dir cannot be written: {}",
                 written.ToString());
  }
  return identity;
}

absl::Status WorkerIdentity::Update(const std::string& node, uint64_t job_id) {
  if (node == known_.node() && job_id == known_.job_id()) return absl::OkStatus();
  NodeIdentity identity;
  identity.set_node(node);
  identity.set_job_id(job_id);
  identity.set_life(std::max(known_.life(), 1u));
  return Write(std::move(identity));
}

absl::Status WorkerIdentity::Write(NodeIdentity identity) {
  PAWL_RETURN_IF_ERROR(WriteNodeFile(env_, data_dir_, identity, kWorkerDaemon));
  known_ = std::move(identity);
  return absl::OkStatus();
}

}  // namespace pawl
