#include "client_lib/rpc/grpc/grpc_settings.h"

#include "client_lib/rpc/codec.h"

namespace pawl {
namespace {

static_assert(kMaxBulkMessageBytes == kMaxMessageBytes, "both limits apply to the same messages");

// The metadata of a call that a server receives: a ticket or a token. Answers may carry more.
constexpr int kMaxRequestMetadataBytes = 128 << 10;
// What a server reads of a connection before it looks at others. With gRPC's 4
// MiB, metadata that is expensive to parse would hold a thread for longer.
constexpr int kMaxReadChunkBytes = 1 << 20;

int Milliseconds(std::chrono::milliseconds duration) { return static_cast<int>(duration.count()); }

int MaxMessageBytes(ChannelKind kind) {
  return kind == ChannelKind::kBulk ? kMaxBulkMessageBytes : kMaxControlMessageBytes;
}

}  // namespace

std::string ChannelTarget(const std::string& addresses) {
  if (addresses.find(',') == std::string::npos) return addresses;
  return (addresses.front() == '[' ? "ipv6:" : "ipv4:") + addresses;
}

grpc::ChannelArguments ChannelSettings(ChannelKind kind) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kKeepaliveTime));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(kKeepaliveTimeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Milliseconds(kInitialReconnectBackoff));
  // Despite its name: the timeout of one attempt to connect.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, Milliseconds(kMaxReconnectBackoff));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Milliseconds(kMaxReconnectBackoff));
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // The limit applies after decompression: an answer could take a thousand times its size.
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  arguments.SetMaxReceiveMessageSize(MaxMessageBytes(kind));
  arguments.SetMaxSendMessageSize(MaxMessageBytes(kind));
  return arguments;
}

void ApplyServerSettings(grpc::ServerBuilder& builder, ChannelKind kind, ConnectionAge age) {
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(kHandshakeTimeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(age.max));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, Milliseconds(age.grace));
  // Servers detect silent clients too, to free what those have pending.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kKeepaliveTime));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(kKeepaliveTimeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Milliseconds(kMinimumPingInterval));
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxRequestMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kMaxReadChunkBytes);
  builder.SetMaxReceiveMessageSize(MaxMessageBytes(kind));
  builder.SetMaxSendMessageSize(MaxMessageBytes(kind));
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
}

}  // namespace pawl
