// A replica set as it is saved.
#ifndef PAWL_SCHEDULER_PLACEMENT_STORED_REPLICA_SET_H_
#define PAWL_SCHEDULER_PLACEMENT_STORED_REPLICA_SET_H_

#include "proto/scheduler_state.pb.h"
#include "scheduler/placement/placement.h"

namespace pawl {

// Each is the other's reverse: nothing of a set is left out.
StoredReplicaSet ToStored(const ReplicaSet& set);
ReplicaSet FromStored(const StoredReplicaSet& stored);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_STORED_REPLICA_SET_H_
