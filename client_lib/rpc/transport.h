// The data plane's transport: carries one request to a server and its answer back.
#ifndef PAWL_CLIENT_LIB_RPC_TRANSPORT_H_
#define PAWL_CLIENT_LIB_RPC_TRANSPORT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/rpc/message.h"

namespace pawl {

// The rpcs of the data plane (proto/parameter.proto) and of replication (proto/replication.proto).
enum class Method {
  kPush,
  kPull,
  kScan,
  kEndStep,
  kTakeOver,
  kReplicate,
  kInstallSnapshot,
  kGoBack
};

// The rpc's name on the wire, such as "/pawl.Parameter/Push".
const std::string& FullName(Method method);

// Payload of a FAILED_PRECONDITION status: a serialized pawl.RoutingTable.
inline constexpr char kRoutingPayloadUrl[] = "type.pawl/pawl.RoutingTable";
// Payload of a RESOURCE_EXHAUSTED status: the milliseconds to wait before a repetition, in decimal
// digits.
inline constexpr char kPushbackPayloadUrl[] = "type.pawl/retry-pushback-ms";
// The pushback that forbids repetitions.
inline constexpr char kNeverAgain[] = "-1";
// Payload of an UNAVAILABLE status that answers a server's registration: the value for its next
// RegisterRequest.rebuild_challenge, in decimal digits.
inline constexpr char kRebuildChallengePayloadUrl[] = "type.pawl/rebuild-challenge";

// The slowest network that deadlines are made for.
inline constexpr uint64_t kMinBytesPerSecond = 20'000'000;

// How long a message of `bytes` takes on that network. A message's deadline adds this to the time
// that the call itself needs.
inline MonotonicDuration TransferTime(size_t bytes) {
  return std::chrono::milliseconds(1000 * bytes / kMinBytesPerSecond);
}

// Thread-safe. Implementations: GrpcTransport (sockets); for tests InProcessTransport, which calls
// a handler directly, and FaultyTransport, which loses and repeats messages.
class Transport {
 public:
  // Runs once, on any thread, after the transport has released the request's memory. The message is
  // empty unless the status is OK.
  using Done = absl::AnyInvocable<void(absl::Status, IncomingMessage)>;

  virtual ~Transport() = default;

  // Sends `request` to the server at `address` (host:port), once: a transport never retries. `done`
  // gets DEADLINE_EXCEEDED if no answer arrives within `timeout`. It may run before Call returns.
  virtual void Call(const std::string& address, Method method, OutgoingMessage request,
                    MonotonicDuration timeout, Done done) = 0;

  // Ends the calls in flight to `address` with CANCELLED, soon, because the server is not expected
  // to answer. Does not affect later calls. A hint, which a transport may ignore.
  virtual void CancelCalls(const std::string& address) {}

  // Cancels like CancelCalls and releases what is kept for `address`, where no server is expected
  // any more. A later call starts afresh. Runs no callback before it returns.
  virtual void Forget(const std::string& address) { CancelCalls(address); }

  // Runs `action` once, after `delay` or at Shutdown, on another thread. Retries wait here for
  // their backoff.
  virtual void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) = 0;

  // Ends every call in flight with CANCELLED, soon, and every later one at once. The destructor
  // does the same and then waits until all `done` and `action` have run.
  virtual void Shutdown() = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_TRANSPORT_H_
