// The server's side of a transport: answers one request.
#ifndef PAWL_CLIENT_LIB_RPC_REQUEST_HANDLER_H_
#define PAWL_CLIENT_LIB_RPC_REQUEST_HANDLER_H_

#include <atomic>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/rpc/message.h"
#include "client_lib/rpc/transport.h"

namespace pawl {

// What a handler knows about a request besides its bytes.
struct CallContext {
  // When the caller stops waiting. Always set: the service gives a call without a deadline a
  // default one.
  MonotonicTime deadline;
  // Becomes true when the caller no longer waits (it cancelled, or the connection is lost). A hint
  // that saves work: the handler checks it when it sweeps pending calls for their deadlines, and
  // then answers with any status. Null if the transport cannot tell.
  std::shared_ptr<const std::atomic<bool>> cancelled;

  bool IsCancelled() const {
    return cancelled != nullptr && cancelled->load(std::memory_order_relaxed);
  }
};

// Thread-safe. Implemented by the server; called by its gRPC service and by InProcessTransport.
class RequestHandler {
 public:
  // Takes the answer. The message is ignored unless the status is OK. Does not block. Must be
  // called exactly once, on any thread, possibly before Handle has returned. `owner` must own the
  // message's memory: nothing of it may be borrowed.
  using Reply = absl::AnyInvocable<void(absl::Status, OutgoingMessage)>;

  virtual ~RequestHandler() = default;

  // Never blocks. The handler keeps a request that must wait (a pending pull) with its `reply`, and
  // answers it with DEADLINE_EXCEEDED once `context.deadline` has passed. A handler that keeps
  // views into the request keeps `request.owner`.
  virtual void Handle(Method method, IncomingMessage request, CallContext context, Reply reply) = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_REQUEST_HANDLER_H_
