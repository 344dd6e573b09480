// Routing changes as a node receives them from the scheduler. Accepted changes must give a complete
// table that clients can read and that its own changes reproduce. Others must be refused with
// INVALID_ARGUMENT.
#include <cstdint>

#include "client_lib/rpc/routing_changes.h"
#include "client_lib/session/routing.h"
#include "tests/fuzz/fuzz_check.h"

namespace pawl {
namespace {

RoutingTable Base() {
  RoutingTable table;
  table.set_job_id(7);
  table.set_epoch(5);
  for (uint64_t i = 0; i < 3; ++i) table.add_servers()->set_incarnation(i + 1);
  for (uint32_t p = 0; p < 16; ++p) {
    table.add_primary(p % 3);
    table.add_replicas()->add_backups((p + 1) % 3);
  }
  return table;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  RoutingTable changes;
  if (!changes.ParseFromArray(data, static_cast<int>(size))) return 0;
  const RoutingTable base = Base();
  const absl::StatusOr<RoutingTable> whole = ApplyRoutingChanges(base, changes);
  if (!whole.ok()) {
    FuzzCheck(absl::IsInvalidArgument(whole.status()), "refused as INVALID_ARGUMENT");
    return 0;
  }
  FuzzCheck(Routing::FromProto(*whole, 7).ok(), "the complete table can be read");
  FuzzCheck(whole->epoch() > base.epoch(), "newer");
  const RoutingTable again = RoutingChanges(*whole, base.epoch(), ChangedPartitions(base, *whole),
                                            /*servers_changed=*/true);
  FuzzCheck(ApplyRoutingChanges(base, again)->SerializeAsString() == whole->SerializeAsString(),
            "the tables are equal");
  return 0;
}

}  // namespace pawl
