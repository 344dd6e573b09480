// Converts messages to and from gRPC's buffers without copying.
#ifndef PAWL_CLIENT_LIB_RPC_BYTE_BUFFER_H_
#define PAWL_CLIENT_LIB_RPC_BYTE_BUFFER_H_

#include "absl/functional/any_invocable.h"
#include "client_lib/rpc/message.h"
#include "grpcpp/support/byte_buffer.h"

namespace pawl {

// Returns a buffer whose slices refer to the message's fragments. `released`, unless null, runs
// once gRPC has released all of them and the message's owner: on any thread, possibly deep inside
// gRPC, so it must neither block nor call gRPC.
grpc::ByteBuffer ToByteBuffer(OutgoingMessage message,
                              absl::AnyInvocable<void()> released = nullptr);

// Returns a message whose owner keeps the buffer's slices alive.
IncomingMessage FromByteBuffer(const grpc::ByteBuffer& buffer);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_BYTE_BUFFER_H_
