// Unary gRPC calls with borrowed memory, and timers.
#ifndef PAWL_CLIENT_LIB_RPC_GRPC_GRPC_CALLS_H_
#define PAWL_CLIENT_LIB_RPC_GRPC_GRPC_CALLS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/message.h"
#include "client_lib/rpc/transport.h"
#include "grpcpp/alarm.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"

namespace pawl {

inline constexpr std::chrono::seconds kMaxBorrowAfterRpc{2};

// The engine of GrpcTransport: tracks all calls and timers in flight, so that they can be ended and
// waited for. Timers run on a thread of their own. gRPC's executor, which runs grpc::Alarm
// callbacks, also serves busy connections, so a long action there would delay heartbeats.
// Thread-safe.
class GrpcCalls {
 public:
  GrpcCalls();
  // Shuts down and waits for all calls and timers. Must not run inside one of them.
  ~GrpcCalls();
  GrpcCalls(const GrpcCalls&) = delete;
  GrpcCalls& operator=(const GrpcCalls&) = delete;

  // `done` runs once the rpc has ended and gRPC has released every fragment of `request`. After an
  // rpc that ended early (at its deadline, for example), the connection keeps half-written
  // fragments until the socket accepts them. If it never does, keepalive does not help, because its
  // ping waits behind them. So `stuck` is called once kMaxBorrowAfterRpc has passed since the end
  // of the rpc; the caller then drops the channel, and gRPC closes the connection with the
  // channel's last reference.
  //
  // The last reference to a channel must not be dropped on the gRPC thread that runs `done`,
  // because gRPC would join that thread from itself. Hence the caller keeps `stub` until
  // WaitForRpcs.
  //
  // `address` identifies the call for Cancel.
  void Start(std::shared_ptr<grpc::GenericStub> stub, const std::string& address,
             const std::string& method, OutgoingMessage request, MonotonicDuration timeout,
             Transport::Done done, absl::AnyInvocable<void()> stuck);
  // Cancels the calls in flight to `address`.
  void Cancel(const std::string& address);
  // Cancels the calls in flight to `address` and then runs `then`; both soon, on another thread.
  void CancelAndThen(const std::string& address, absl::AnyInvocable<void()> then);
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action);
  void Shutdown();
  // Waits until no call refers to a stub. REQUIRES: Shutdown was called.
  void WaitForRpcs();

 private:
  class OneCall;
  struct Timer {
    grpc::Alarm alarm;
    absl::AnyInvocable<void()> action;
  };

  struct Rpc {
    std::string address;
    std::shared_ptr<grpc::ClientContext> context;
  };

  std::vector<std::shared_ptr<grpc::ClientContext>> ContextsTo(const std::string& address);
  void RunTimers();
  void Forget();
  void WaitFor(const char* what, const uint64_t& count) PAWL_REQUIRES(mu_);

  Mutex mu_;
  CondVar idle_;
  bool shut_down_ PAWL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<OneCall*, Rpc> calls_ PAWL_GUARDED_BY(mu_);
  absl::flat_hash_set<Timer*> timers_ PAWL_GUARDED_BY(mu_);
  // Calls that still refer to a stub.
  uint64_t rpcs_ PAWL_GUARDED_BY(mu_) = 0;
  // Calls whose `done` and timers whose `action` have not returned yet.
  uint64_t pending_ PAWL_GUARDED_BY(mu_) = 0;
  grpc::CompletionQueue timer_queue_;
  // Last: its thread uses the members above.
  std::thread timer_thread_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_GRPC_GRPC_CALLS_H_
