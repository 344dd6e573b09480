// Converts a replica set to and from its saved form.
#ifndef PAWL_SCHEDULER_PLACEMENT_STORED_REPLICA_SET_H_
#define PAWL_SCHEDULER_PLACEMENT_STORED_REPLICA_SET_H_

#include "proto/scheduler_state.pb.h"
#include "scheduler/placement/placement.h"

namespace pawl {

// Lossless: FromStored(ToStored(set)) equals set.
StoredReplicaSet ToStored(const ReplicaSet& set);
ReplicaSet FromStored(const StoredReplicaSet& stored);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_STORED_REPLICA_SET_H_
