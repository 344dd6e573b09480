// Calls from the scheduler to servers, independent of the transport.
#ifndef PAWL_SCHEDULER_RPC_SERVER_CALLER_H_
#define PAWL_SCHEDULER_RPC_SERVER_CALLER_H_

#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "google/protobuf/message.h"
#include "proto/server_control.pb.h"

namespace pawl {

// An rpc of the ServerControl service.
template <typename Request, typename Response>
struct ServerRpc {
  const char* name;
};

inline constexpr ServerRpc<CreateTableOnServerRequest, CreateTableOnServerResponse> kCreateTableRpc{
    "CreateTable"};
inline constexpr ServerRpc<InspectRequest, InspectResponse> kInspectRpc{"Inspect"};
inline constexpr ServerRpc<KeepBestRequest, KeepBestResponse> kKeepBestRpc{"KeepBest"};
inline constexpr ServerRpc<RestoreBestRequest, RestoreBestResponse> kRestoreBestRpc{"RestoreBest"};
inline constexpr ServerRpc<ReleaseLogicalWorkerRequest, ReleaseLogicalWorkerResponse>
    kReleaseLogicalWorkerRpc{"ReleaseLogicalWorker"};
inline constexpr ServerRpc<CheckpointOnServerRequest, CheckpointOnServerResponse> kCheckpointRpc{
    "Checkpoint"};
inline constexpr ServerRpc<LoadCheckpointRequest, LoadCheckpointResponse> kLoadCheckpointRpc{
    "LoadCheckpoint"};

// Calls the ServerControl service of the server at `address` (host:port). Thread-safe.
class ServerCaller {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  virtual ~ServerCaller() = default;

  // Only the servers at `addresses` will be called soon: resources of others may be freed after
  // their calls. Call periodically, not on a thread that runs a `done`.
  virtual void KeepOnly(const absl::flat_hash_set<std::string>& addresses) {}

  // Calls the ServerRpc named `rpc`. `done` runs once, on any thread, possibly before Call returns;
  // after `timeout` at the latest, with DEADLINE_EXCEEDED. If it gets OK, `response` is set.
  // REQUIRES: `request` and `response` have the types of the rpc.
  virtual void Call(const std::string& address, const std::string& rpc,
                    const google::protobuf::Message& request, MonotonicDuration timeout,
                    std::shared_ptr<google::protobuf::Message> response, Done done) = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_RPC_SERVER_CALLER_H_
