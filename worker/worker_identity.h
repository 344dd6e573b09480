// Who a worker is, kept from one of its lives to the next.
#ifndef PAWL_WORKER_WORKER_IDENTITY_H_
#define PAWL_WORKER_WORKER_IDENTITY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/env.h"

namespace pawl {

// The file <data dir>/node: one line with the worker's name, its job in hexadecimal digits, and how many processes have
// had the folder,
//
//   worker-1 00c0ffee00c0ffee 3
//
// Without it, or if it is damaged, the worker is a new one: its ranks are then given to it when the scheduler has
// noticed that the old one died, so nothing is lost but time. For one thread; no other process uses the folder
// meanwhile.
class WorkerIdentity {
 public:
  // Begins the next life of the worker. Makes the folder if it is missing; its parents must be there. UNAVAILABLE if another
  // process uses it. `env` outlives this.
  static absl::StatusOr<std::unique_ptr<WorkerIdentity>> Open(Env& env, const std::string& data_dir);

  // Empty and 0, all three: a new worker.
  const std::string& node() const { return node_; }
  uint64_t job_id() const { return job_id_; }
  uint32_t life() const { return life_; }

  // From now on, and in the next life. Nothing changes if it is that already.
  absl::Status Become(const std::string& node, uint64_t job_id);

 private:
  WorkerIdentity(Env& env, std::string path, std::unique_ptr<FolderLock> lock);
  absl::Status Write(const std::string& node, uint64_t job_id, uint32_t life);

  Env& env_;
  const std::string path_;
  const std::unique_ptr<FolderLock> lock_;
  std::string node_;
  uint64_t job_id_ = 0;
  uint32_t life_ = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_WORKER_IDENTITY_H_
