// The routing table that an error may bring along.
#ifndef PAWL_CLIENT_LIB_RPC_ATTACHED_ROUTING_H_
#define PAWL_CLIENT_LIB_RPC_ATTACHED_ROUTING_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/types/optional.h"
#include "client_lib/rpc/transport.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// From anybody: nullopt also for bytes that are none, and whether the table is possible is not
// looked at.
inline std::optional<RoutingTable> AttachedRouting(const absl::Status& error) {
  const absl::optional<absl::Cord> payload = error.GetPayload(kRoutingPayloadUrl);
  RoutingTable table;
  if (!payload || !table.ParseFromString(std::string(*payload))) return std::nullopt;
  return table;
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_ATTACHED_ROUTING_H_
