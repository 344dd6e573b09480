// Messages as lists of memory fragments: what the codec writes and reads, and
// what a transport carries. Knows nothing of gRPC, so that everything above the
// transport can be tested, under ThreadSanitizer too, without it.
#ifndef PAWL_CLIENT_LIB_RPC_MESSAGE_H_
#define PAWL_CLIENT_LIB_RPC_MESSAGE_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "client_lib/base/bytes.h"

namespace pawl {

// A message on its way out. Its fragments refer to memory that is owned by
// `owner` or borrowed from the caller; borrowed memory must stay as it is until
// the transport has let go of the message (see Transport::Call).
struct OutgoingMessage {
  ByteView bytes;
  // Keeps what was allocated for the message alive; may be null.
  std::shared_ptr<const void> owner;
};

// A message that has arrived. Whoever keeps a view into `bytes` keeps a copy of `owner`.
struct IncomingMessage {
  ByteView bytes;
  std::shared_ptr<const void> owner;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_MESSAGE_H_
