#include "scheduler/placement/stored_replica_set.h"

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
  for (const ServerNumber server : set.last_in_sync) stored.add_last_in_sync(server);
  for (const ServerNumber server : set.fallbacks) stored.add_fallbacks(server);
  for (const ServerNumber server : set.retained) stored.add_retained(server);
  stored.set_retained_since(set.retained_since);
  stored.set_confirm_since(set.confirm_since);
  stored.set_yielding(set.yielding);
  stored.set_yielding_since(set.yielding_since);
  stored.set_leaving(set.leaving);
  stored.set_created_epoch(set.created_epoch);
  return stored;
}

ReplicaSet FromStored(const StoredReplicaSet& stored) {
  ReplicaSet set;
  set.primary = stored.primary();
  set.primary_since = stored.primary_since();
  set.backups.assign(stored.backups().begin(), stored.backups().end());
  for (int i = 0; i < stored.learners_size(); ++i)
    set.learners.push_back({stored.learners(i), stored.learners_since(i)});
  set.yielding = stored.yielding();
  // Version 0.2 gave the partition a new term as soon as its primary yielded.
  set.yielding_since =
      stored.has_yielding_since() ? stored.yielding_since() : stored.primary_since();
  set.leaving = stored.leaving();
  set.created_epoch = stored.created_epoch();
  set.last_in_sync.assign(stored.last_in_sync().begin(), stored.last_in_sync().end());
  set.fallbacks.assign(stored.fallbacks().begin(), stored.fallbacks().end());
  set.retained.assign(stored.retained().begin(), stored.retained().end());
  set.retained_since = stored.retained_since();
  set.confirm_since = stored.confirm_since();
  return set;
}

}  // namespace pawl
