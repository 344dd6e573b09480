// Messages to and from gRPC's buffers, without copying.
#ifndef PAWL_CLIENT_LIB_RPC_BYTE_BUFFER_H_
#define PAWL_CLIENT_LIB_RPC_BYTE_BUFFER_H_

#include "absl/functional/any_invocable.h"
#include "client_lib/rpc/message.h"
#include "grpcpp/support/byte_buffer.h"

namespace pawl {

// The message's fragments, referred to by the slices of the result. `released`, if
// any, runs once, when gRPC has let go of all of them (and of the message's
// owner): on any thread, maybe deep inside gRPC, so it must neither block nor call gRPC.
grpc::ByteBuffer ToByteBuffer(OutgoingMessage message,
                              absl::AnyInvocable<void()> released = nullptr);

// A message that keeps the buffer's slices alive by its owner.
IncomingMessage FromByteBuffer(const grpc::ByteBuffer& buffer);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_BYTE_BUFFER_H_
