// The settings of all gRPC channels and servers. They are in one place because a wrong default in
// one process (no keepalive, a reconnect after two minutes) shows only when a machine goes silent.
#ifndef PAWL_CLIENT_LIB_RPC_GRPC_GRPC_SETTINGS_H_
#define PAWL_CLIENT_LIB_RPC_GRPC_GRPC_SETTINGS_H_

#include <chrono>
#include <string>

#include "grpcpp/server_builder.h"
#include "grpcpp/support/channel_arguments.h"

namespace pawl {

// What a channel carries. The two kinds never share a connection: a heartbeat that waits behind 64
// MiB looks like death.
enum class ChannelKind {
  // The Parameter service: the methods of client_lib/rpc/transport.h.
  kBulk,
  // The Scheduler and ServerControl services: registration, heartbeats, routing, tables, barriers,
  // reports.
  kControl,
};

// The largest message of a bulk channel; equals the codec's limit.
inline constexpr int kMaxBulkMessageBytes = 64 << 20;
// The largest message of a control channel. The largest in use is a server's digests
// (scheduler/job/table_catalogue.h, kMaxDigestBytes).
inline constexpr int kMaxControlMessageBytes = 16 << 20;
// The metadata of a call. A status carries its routing table as metadata
// (server/replication/replica_map.cc, kMaxAttachedRoutingBytes).
inline constexpr int kMaxMetadataBytes = 1 << 20;
// Calls in flight on one connection: bounds what one client can suspend on a server. Further calls
// would wait in the client's gRPC, where their order is lost, so the limit exceeds what a client
// sends: kMaxMessagesPerServer (client_lib/session/messenger.h) for each of two or three steps, and
// one EndStep for each of kMaxHostedRanks ranks.
inline constexpr int kMaxStreamsPerConnection = 768;
// A silent peer is detected after the keepalive time plus the timeout.
inline constexpr std::chrono::milliseconds kKeepaliveTime{2000};
inline constexpr std::chrono::milliseconds kKeepaliveTimeout{2000};
// A server closes the connection of a client that pings more frequently.
inline constexpr std::chrono::milliseconds kMinimumPingInterval{1000};
inline constexpr std::chrono::milliseconds kInitialReconnectBackoff{100};
inline constexpr std::chrono::milliseconds kMaxReconnectBackoff{1000};
// A server closes a connection whose handshake takes longer.
inline constexpr std::chrono::milliseconds kHandshakeTimeout{5000};
// After about this time a server asks for a new connection, in whose handshake the client proves
// its identity again. Calls in flight continue on the old one for the grace; then the server closes
// it, because a call that never ends, such as a watch of the health, would keep it for ever.
inline constexpr std::chrono::hours kMaxConnectionAge{1};
// Calls to the scheduler that wait longer, at barriers, are repeated by their clients.
inline constexpr std::chrono::minutes kControlConnectionGrace{15};
// The scheduler's call that loads a checkpoint takes up to six hours, and would restart from its
// beginning.
inline constexpr std::chrono::hours kBulkConnectionGrace{6};

// The target for CreateCustomChannel: one address, host:port, or several separated by commas, such
// as a scheduler and its standby. gRPC tries several in turn whenever the connection is lost.
// Several must be IP addresses of one family.
std::string ChannelTarget(const std::string& addresses);

// The arguments for grpc::CreateCustomChannel. gRPC's retries are off: a retried push keeps its
// push id, which only the client knows. Proxies of the environment are not used. Every channel has
// its own connection.
grpc::ChannelArguments ChannelSettings(ChannelKind kind);

// How long a connection to a server lasts.
struct ConnectionAge {
  std::chrono::milliseconds max = kMaxConnectionAge;
  std::chrono::milliseconds grace;
};
inline constexpr ConnectionAge AgeOf(ChannelKind kind) {
  return kind == ChannelKind::kBulk ? ConnectionAge{.grace = kBulkConnectionGrace}
                                    : ConnectionAge{.grace = kControlConnectionGrace};
}

// Call once before BuildAndStart. `kind` bounds the messages received: kBulk for a server that
// accepts pushes, kControl for the scheduler. Compressed messages are refused with UNIMPLEMENTED,
// because their size is known only after decompression. Two processes cannot listen on one port.
void ApplyServerSettings(grpc::ServerBuilder& builder, ChannelKind kind, ConnectionAge age);
inline void ApplyServerSettings(grpc::ServerBuilder& builder,
                                ChannelKind kind = ChannelKind::kBulk) {
  ApplyServerSettings(builder, kind, AgeOf(kind));
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_GRPC_GRPC_SETTINGS_H_
