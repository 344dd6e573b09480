// A worker's identity, kept across its restarts.
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

// The identity in the file <data dir>/node (client_lib/daemon/node_file.h). If the file is missing
// or damaged, the worker joins as a new one and gets its ranks when the scheduler has noticed the
// old one's death; only time is lost. Used by one thread. No other process may use the folder
// meanwhile.
class WorkerIdentity {
 public:
  // Starts the worker's next incarnation. Creates the folder if it is missing; its parents must
  // exist. UNAVAILABLE if another process uses the folder, FAILED_PRECONDITION if it belongs to a
  // server. `env` outlives this.
  static absl::StatusOr<std::unique_ptr<WorkerIdentity>> Open(Env& env,
                                                              const std::string& data_dir);

  // All three are empty or 0 for a new worker.
  const std::string& node() const { return known_.node(); }
  uint64_t job_id() const { return known_.job_id(); }
  uint32_t start_count() const { return known_.life(); }

  // Stores the identity for this and later incarnations. Does nothing if it is unchanged.
  absl::Status Update(const std::string& node, uint64_t job_id);

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
