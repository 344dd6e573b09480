// How Pawl sets up gRPC's channels and servers: one place, because a default that
// is wrong in one process alone (no keepalive, reconnecting after two minutes) is
// found only when a machine goes silent.
#ifndef PAWL_CLIENT_LIB_RPC_GRPC_GRPC_SETTINGS_H_
#define PAWL_CLIENT_LIB_RPC_GRPC_GRPC_SETTINGS_H_

#include <chrono>
#include <string>

#include "grpcpp/server_builder.h"
#include "grpcpp/support/channel_arguments.h"

namespace pawl {

// What a channel carries. The two never share a connection: a heartbeat that waits
// behind 64 MiB looks like death.
enum class ChannelKind {
  // The Parameter service: the methods of client_lib/rpc/transport.h.
  kBulk,
  // The Scheduler and ServerControl services: registration, heartbeats, routing, tables, barriers,
  // reports.
  kControl,
};

// The largest message that a bulk endpoint takes; codec.h's limit is the same.
inline constexpr int kMaxBulkMessageBytes = 64 << 20;
// The same for control messages; the largest is a server's digests
// (scheduler/job/table_catalogue.h, kMaxDigestBytes).
inline constexpr int kMaxControlMessageBytes = 16 << 20;
// Bytes of metadata a call may carry: room for a status payload with a routing table, which travels
// as metadata (server/replication/replica_map.cc, kMaxAttachedRoutingBytes).
inline constexpr int kMaxMetadataBytes = 1 << 20;
// Calls in flight on one connection; more wait in the client's gRPC, where no order helps them. A
// bound on what one client can suspend here. Above what a client has under way:
// kMaxMessagesPerServer (client_lib/session/messenger.h) for each of two or three steps, and an end
// of the step for each of a worker's ranks (kMaxHostedRanks, client_lib/base/limits.h).
inline constexpr int kMaxStreamsPerConnection = 768;
// A silent peer is noticed after keepalive time plus timeout.
inline constexpr std::chrono::milliseconds kKeepaliveTime{2000};
inline constexpr std::chrono::milliseconds kKeepaliveTimeout{2000};
// Pings more frequent than this are answered by closing the connection.
inline constexpr std::chrono::milliseconds kMinimumPingInterval{1000};
inline constexpr std::chrono::milliseconds kInitialReconnectBackoff{100};
inline constexpr std::chrono::milliseconds kMaxReconnectBackoff{1000};
// A connection that has not finished its handshake by then is closed.
inline constexpr std::chrono::milliseconds kHandshakeTimeout{5000};

// What to give to CreateCustomChannel for an address, host:port, or for several of which one
// answers, "10.0.0.1:7000, 10.0.0.2:7000" without the space (a scheduler and its standby): they are
// tried in turn whenever the connection is lost. Several must be IP addresses, all of one family.
std::string ChannelTarget(const std::string& addresses);

// For grpc::CreateCustomChannel. The library's own retries are off: a push that is
// sent again keeps its push id, which only the client knows. Proxies named by the
// environment are not used. Every channel has a connection of its own.
grpc::ChannelArguments ChannelSettings(ChannelKind kind);

// To be called once before BuildAndStart. `kind` bounds the messages received: kBulk for a server
// that takes pushes, kControl for the scheduler. Compressed messages are refused with
// UNIMPLEMENTED: their size is known only after they have been unpacked. Two processes cannot
// listen on one port.
void ApplyServerSettings(grpc::ServerBuilder& builder, ChannelKind kind = ChannelKind::kBulk);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_GRPC_GRPC_SETTINGS_H_
