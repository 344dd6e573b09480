// Which server holds which replica, and what events make of that. Where they are to be: placement_target.h; the way there:
// placement_step.h.
#ifndef PAWL_SCHEDULER_PLACEMENT_H_
#define PAWL_SCHEDULER_PLACEMENT_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace pawl {

// A server is known by the number in its name: server-3 is 3. Its lives are not told apart here: the death of one
// is followed before the next one is taken in.
using ServerNumber = uint32_t;
inline constexpr ServerNumber kNoServer = UINT32_MAX;

// The replicas of one partition.
struct ReplicaSet {
  struct Learner {
    ServerNumber server = kNoServer;
    // The epoch from which on it learns from the present primary.
    uint64_t since = 0;
  };

  // kNoServer while nobody can be.
  ServerNumber primary = kNoServer;
  // The epoch at which the primary became it, or ceased to be.
  uint64_t primary_since = 0;
  // The epoch at which it began with nothing.
  uint64_t began = 0;
  // In sync, as the primary is: they have every push that was ever acknowledged.
  std::vector<ServerNumber> backups;
  std::vector<Learner> learners;
  // Without primary and backups: the servers that were in sync when the last of them went. One of them must come back.
  std::vector<ServerNumber> holders;
  // A primary that was told at primary_since to serve no more, and may not have heard of it. Once it has, or is dead, the
  // first backup becomes primary; if all backups die first, it is the primary again.
  ServerNumber yielding = kNoServer;
  // A replica in sync that goes once another one has taken its place.
  ServerNumber leaving = kNoServer;

  bool InSync(ServerNumber server) const;
  bool Learns(ServerNumber server) const;
};

struct Placement {
  // Each function below that changes anything raises it by one.
  uint64_t epoch = 0;
  // By partition; empty before the first placement.
  std::vector<ReplicaSet> partitions;
};

// A server that is there.
struct PlacementServer {
  ServerNumber number = 0;
  // Is to be rid of all of its replicas, or to get none.
  bool draining = false;
  // The newest epoch that it is known to act by.
  uint64_t adopted_epoch = 0;
  // What it fails together with.
  std::string zone = {};
  // It serves at once what it becomes primary of. One that has just come back may have promised otherwise in its former
  // life, and waits for a lease.
  bool settled = true;
};

// All functions are pure but for `placement`, and return whether they have changed it. Invariants, whatever
// the order in which they are called:
//  1. A primary or backup has been in sync without a break since it was made a backup by CaughtUp, or was placed by
//     PlaceFirst, or was a holder.
//  2. The last server that has a partition's data stays: as primary, backup, yielding or holder.
//  3. epoch only grows; primary_since is the epoch of the last change of the primary.
//  4. No server is twice in a set.
//  5. Nobody becomes primary while the one before lives and has not heard that it is not any more.

// The first placement of `partitions` empty partitions, `replicas` of each, spread evenly.
// REQUIRES: 1 <= replicas <= servers.size(), servers ascending, placement empty.
void PlaceFirst(const std::vector<ServerNumber>& servers, uint32_t partitions, uint32_t replicas, Placement& placement);

// Failover: the servers are dead, all at the same time. Where others are in sync the first of them that is not among
// `unsettled` is primary, or else the first of them; where not, those that were are kept as holders.
bool RemoveServers(const std::vector<ServerNumber>& dead, const std::vector<ServerNumber>& unsettled, Placement& placement);

struct Recovery {
  bool changed = false;
  // Partitions whose last holder has come back without them: they are lost.
  std::vector<uint32_t> lost;
};
// A server is back with `recovered` (ascending): it is primary of those among them that it is a holder of. `nothing_yet`: no
// partition needs to have had a change that was acknowledged, so that one of which a holder has none has had none, and
// begins anew there.
Recovery RecoverServer(ServerNumber server, const std::vector<uint32_t>& recovered, bool nothing_yet, Placement& placement);

// Nothing was ever acknowledged that must be kept, and nobody can bring anything back: partitions that wait for holders
// begin anew on these servers. Whether there were any.
bool BeginAnew(const std::vector<ServerNumber>& servers, Placement& placement);

// `primary`, which acts by `adopted_epoch`, says that `learner` has everything: it is a backup from now on. Ignored unless
// that is so of the partition's present primary and learner.
bool CaughtUp(uint32_t partition, ServerNumber primary, ServerNumber learner, uint64_t adopted_epoch, Placement& placement);

// `silent` take nothing of what `primary`, which acts by `adopted_epoch`, sends: they are in no set any more whose primary
// it has been since then, neither as backups nor as learners.
bool DropSilent(ServerNumber primary, const std::set<ServerNumber>& silent, uint64_t adopted_epoch, Placement& placement);

// The first backup is primary from `epoch` on. What others have learned from its predecessor is void.
void Promote(ReplicaSet& set, uint64_t epoch);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_H_
