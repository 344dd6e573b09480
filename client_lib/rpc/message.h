// Messages as lists of memory fragments: what the codec writes and reads, and a transport carries.
// Independent of gRPC, so that everything above the transport can be tested without it, also under
// ThreadSanitizer.
#ifndef PAWL_CLIENT_LIB_RPC_MESSAGE_H_
#define PAWL_CLIENT_LIB_RPC_MESSAGE_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "client_lib/base/bytes.h"

namespace pawl {

// A message to send. `owner` owns the memory of its fragments, or they are borrowed from the
// caller. Borrowed memory must stay unchanged until the transport has released the message (see
// Transport::Call).
struct OutgoingMessage {
  ByteView bytes;
  // Keeps memory allocated for the message alive; may be null.
  std::shared_ptr<const void> owner;
};

// A received message. Code that keeps a view into `bytes` must keep a copy of `owner`.
struct IncomingMessage {
  ByteView bytes;
  std::shared_ptr<const void> owner;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_MESSAGE_H_
