// What stands behind a transport on the server's side: answers one request.
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

// What a handler knows of a request besides its bytes.
struct CallContext {
  // When the caller stops waiting. Always set: the service gives a call without a deadline one of
  // its own.
  MonotonicTime deadline;
  // Becomes true when nobody waits for the answer any more (the connection is
  // gone, the caller cancelled). A hint that saves work: a pending call is looked at
  // when pending calls are swept for their deadlines, and then answered with any
  // status. Null where the transport cannot tell.
  std::shared_ptr<const std::atomic<bool>> cancelled;

  bool IsCancelled() const {
    return cancelled != nullptr && cancelled->load(std::memory_order_relaxed);
  }
};

// Thread-safe. Implemented by the server; called by its gRPC service and by InProcessTransport.
class RequestHandler {
 public:
  // Takes the answer; the message is ignored unless the status is OK. Does not
  // block. Must be called exactly once, on any thread, maybe before Handle has
  // returned. The message's memory is `owner`'s: nothing of it may be borrowed.
  using Reply = absl::AnyInvocable<void(absl::Status, OutgoingMessage)>;

  virtual ~RequestHandler() = default;

  // Never blocks. A request that has to wait (a pending pull) is kept with its
  // `reply`; the handler itself answers it with DEADLINE_EXCEEDED once
  // `context.deadline` has passed. Whoever keeps views into the request keeps `request.owner`.
  virtual void Handle(Method method, IncomingMessage request, CallContext context, Reply reply) = 0;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_REQUEST_HANDLER_H_
