// Calls from the scheduler to servers, independent of the transport.
#ifndef PAWL_SCHEDULER_RPC_SERVER_CALLER_H_
#define PAWL_SCHEDULER_RPC_SERVER_CALLER_H_

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "proto/server_control.pb.h"

namespace pawl {

// Calls the ServerControl service of the server at `address` (host:port). `done` runs once, on any
// thread, possibly before the call returns; after `timeout` at the latest, with DEADLINE_EXCEEDED.
// Thread-safe.
class ServerCaller {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;
  using CheckpointDone = absl::AnyInvocable<void(absl::StatusOr<CheckpointOnServerResponse>)>;
  using InspectDone = absl::AnyInvocable<void(absl::StatusOr<InspectResponse>)>;

  virtual ~ServerCaller() = default;

  // Only the servers at `addresses` will be called soon: resources of others may be freed after
  // their calls. Call periodically, not on a thread that runs a `done`.
  virtual void KeepOnly(const absl::flat_hash_set<std::string>& addresses) {}

  virtual void CreateTable(const std::string& address, const CreateTableOnServerRequest& request,
                           MonotonicDuration timeout, Done done) = 0;
  virtual void Inspect(const std::string& address, const InspectRequest& request,
                       MonotonicDuration timeout, InspectDone done) = 0;
  virtual void KeepBest(const std::string& address, const KeepBestRequest& request,
                        MonotonicDuration timeout, Done done) = 0;
  virtual void RestoreBest(const std::string& address, const RestoreBestRequest& request,
                           MonotonicDuration timeout, Done done) = 0;
  virtual void ReleaseLogicalWorker(const std::string& address,
                                    const ReleaseLogicalWorkerRequest& request,
                                    MonotonicDuration timeout, Done done) = 0;
  // By default servers make no checkpoints.
  virtual void Checkpoint(const std::string& address, const CheckpointOnServerRequest& request,
                          MonotonicDuration timeout, CheckpointDone done) {
    done(absl::UnimplementedError("no checkpoints here"));
  }
  virtual void LoadCheckpoint(const std::string& address, const LoadCheckpointRequest& request,
                              MonotonicDuration timeout, Done done) {
    done(absl::UnimplementedError("no checkpoints here"));
  }
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_RPC_SERVER_CALLER_H_
