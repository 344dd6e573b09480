#include "scheduler/stored_replica_set.h"

namespace pawl {

StoredReplicaSet ToStored(const ReplicaSet& set) {
  StoredReplicaSet stored;
  stored.set_primary(set.primary);
  stored.set_primary_since(set.primary_since);
  for (const ServerNumber backup : set.backups) stored.add_backups(backup);
  for (const ReplicaSet::Learner& learner : set.learners) {
    stored.add_learners(learner.server);
    stored.add_learners_since(learner.since);
  }
  for (const ServerNumber holder : set.holders) stored.add_holders(holder);
  stored.set_yielding(set.yielding);
  stored.set_leaving(set.leaving);
  stored.set_began(set.began);
  return stored;
}

ReplicaSet FromStored(const StoredReplicaSet& stored) {
  ReplicaSet set;
  set.primary = stored.primary();
  set.primary_since = stored.primary_since();
  set.backups.assign(stored.backups().begin(), stored.backups().end());
  for (int i = 0; i < stored.learners_size(); ++i) set.learners.push_back({stored.learners(i), stored.learners_since(i)});
  set.holders.assign(stored.holders().begin(), stored.holders().end());
  set.yielding = stored.yielding();
  set.leaving = stored.leaving();
  set.began = stored.began();
  return set;
}

}  // namespace pawl
