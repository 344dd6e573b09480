// Unary gRPC calls of borrowed memory, and timers.
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

inline constexpr std::chrono::seconds kMaxLoanAfterRpc{2};

// What GrpcTransport is made of: it keeps account of all calls and timers under way, so that they
// can be ended and waited for. Thread-safe. Timers run on a thread of its own: gRPC's executor,
// which runs those of grpc::Alarm that have a callback, also carries what is due on busy
// connections, and a long action would hold up heartbeats.
class GrpcCalls {
 public:
  GrpcCalls();
  // Shuts down and waits for all calls and timers. Not to be run by one of them.
  ~GrpcCalls();
  GrpcCalls(const GrpcCalls&) = delete;
  GrpcCalls& operator=(const GrpcCalls&) = delete;

  // `done` runs once the rpc is over and gRPC has let go of every fragment of
  // `request`. After an rpc that ended early (its deadline, say) the connection holds on to
  // fragments that are half written until the socket takes them. Keepalive does not help if it
  // never does: its ping waits behind them. So if kMaxLoanAfterRpc has passed since the rpc was
  // over, `stuck` is called, for the caller to give up the channel: gRPC closes the connection with
  // its last reference.
  //
  // The last reference to a channel must not go on a thread of gRPC's that runs `done` (gRPC would
  // join that thread from itself). Hence the caller keeps `stub` until WaitForRpcs.
  //
  // `address` is the name of the call for Cancel.
  void Start(std::shared_ptr<grpc::GenericStub> stub, const std::string& address,
             const std::string& method, OutgoingMessage request, MonotonicDuration timeout,
             Transport::Done done, absl::AnyInvocable<void()> stuck);
  // Cancels what is under way to that address.
  void Cancel(const std::string& address);
  // Cancels what is under way to that address now, and then runs `then`; both on another thread,
  // soon.
  void CancelAndThen(const std::string& address, absl::AnyInvocable<void()> then);
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action);
  void Shutdown();
  // Waits until no call refers to a stub any more. REQUIRES: Shutdown was called.
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
  // Last: it uses the rest.
  std::thread timer_thread_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_GRPC_GRPC_CALLS_H_
