// Carries one request to a server and its answer back.
#ifndef PAWL_CLIENT_LIB_RPC_TRANSPORT_H_
#define PAWL_CLIENT_LIB_RPC_TRANSPORT_H_

#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/rpc/message.h"

namespace pawl {

// The rpcs of the data plane (proto/parameter.proto) and of replication (proto/replication.proto).
enum class Method { kPush, kPull, kEndStep, kTakeOver, kReplicate, kInstallSnapshot, kGoBack };

// The payload of a FAILED_PRECONDITION status that holds a serialized pawl.RoutingTable.
inline constexpr char kRoutingPayloadUrl[] = "type.pawl/pawl.RoutingTable";
// The payload of a RESOURCE_EXHAUSTED status that says after how many milliseconds to try again
// (decimal digits).
inline constexpr char kPushbackPayloadUrl[] = "type.pawl/retry-pushback-ms";
// As a pushback: not at all.
inline constexpr char kNeverAgain[] = "-1";

// Thread-safe. Implementations: GrpcTransport (sockets), InProcessTransport (tests,
// calls a handler directly), FaultyTransport (tests, loses and repeats messages).
class Transport {
 public:
  // Runs once, on any thread, after the transport has let go of the request's
  // memory. The message is empty unless the status is OK.
  using Done = absl::AnyInvocable<void(absl::Status, IncomingMessage)>;

  virtual ~Transport() = default;

  // Sends `request` to the server at `address` (host:port), once: no retries here.
  // `done` gets DEADLINE_EXCEEDED when `timeout` has passed without an answer. It may run before
  // Call returns.
  virtual void Call(const std::string& address, Method method, OutgoingMessage request,
                    MonotonicDuration timeout, Done done) = 0;

  // Ends the calls under way to `address` with CANCELLED, soon: the server is not expected to
  // answer. Later calls are not touched. A hint, which a transport may ignore.
  virtual void CancelCalls(const std::string& address) {}

  // Nobody is expected at `address` any more: ends the calls under way to it as CancelCalls does,
  // and gives up what is kept for calls to it. A later call begins anew. Runs nothing of the
  // caller's before it returns.
  virtual void Forget(const std::string& address) { CancelCalls(address); }

  // Runs `action` once, after `delay` or at Shutdown, on another thread (retries with backoff wait
  // here).
  virtual void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) = 0;

  // Ends every call under way with CANCELLED, soon, and every later one at once.
  // The destructor does the same and then waits until all `done` and `action` have run.
  virtual void Shutdown() = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_TRANSPORT_H_
