// Who a worker is, kept from one of its lives to the next.
#ifndef PAWL_WORKER_PROCESS_WORKER_IDENTITY_H_
#define PAWL_WORKER_PROCESS_WORKER_IDENTITY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/env.h"
#include "client_lib/daemon/node_identity.pb.h"

namespace pawl {

// What the file <data dir>/node (client_lib/daemon/node_file.h) says of it. Without the file, or if
// it is damaged, the worker is a new one: its ranks are then given to it when the scheduler has
// noticed that the old one died, so nothing is lost but time. For one thread; no other process uses
// the folder meanwhile.
class WorkerIdentity {
 public:
  // Begins the next incarnation of the worker. Makes the folder if it is missing; its parents must
  // be there. UNAVAILABLE if another process uses it, FAILED_PRECONDITION if it is a server's.
  // `env` outlives this.
  static absl::StatusOr<std::unique_ptr<WorkerIdentity>> Open(Env& env,
                                                              const std::string& data_dir);

  // Empty and 0, all three: a new worker.
  const std::string& node() const { return known_.node(); }
  uint64_t job_id() const { return known_.job_id(); }
  uint32_t start_count() const { return known_.start_count(); }

  // From now on, and in the next incarnation. Nothing changes if it is that already.
  absl::Status Become(const std::string& node, uint64_t job_id);

 private:
  WorkerIdentity(Env& env, std::string data_dir, std::unique_ptr<FolderLock> lock);
  absl::Status Write(NodeIdentity identity);

  Env& env_;
  const std::string data_dir_;
  const std::unique_ptr<FolderLock> lock_;
  NodeIdentity known_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_PROCESS_WORKER_IDENTITY_H_
