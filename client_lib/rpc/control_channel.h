// Carries control messages (proto/scheduler.proto) to one process.
#ifndef PAWL_CLIENT_LIB_RPC_CONTROL_CHANNEL_H_
#define PAWL_CLIENT_LIB_RPC_CONTROL_CHANNEL_H_

#include <string>

#include "client_lib/base/clock.h"
#include "client_lib/rpc/message.h"
#include "client_lib/rpc/transport.h"

namespace pawl {

// The key of the metadata that has a node's ticket (client_lib/security/ticket.h). The suffix
// permits any bytes.
inline constexpr char kNodeTicketMetadata[] = "pawl-node-ticket-bin";

// Separate from the data plane's connections and threads, so that no heartbeat waits behind a bulk
// transfer. Thread-safe. Implementations: GrpcControlChannel, and fakes in tests.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  // Like Transport::Call. `method` is the full name of the rpc, such as "/pawl.Scheduler/Register".
  // `done` always runs, also after Shutdown: destroying it instead would throw in a thread that
  // waits for a future (client_lib/rpc/futures.h).
  virtual void Call(const std::string& method, OutgoingMessage request, MonotonicDuration timeout,
                    Transport::Done done) = 0;

  // Sends RegisterResponse.node_ticket with every later call. Without TLS it is empty.
  virtual void SetNodeTicket(const std::string&) {}

  // Like Transport::After and Transport::Shutdown.
  virtual void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) = 0;
  virtual void Shutdown() = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_CONTROL_CHANNEL_H_
