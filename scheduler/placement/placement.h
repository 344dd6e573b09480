// Which server holds which replica, and what events make of that. Where they are to be:
// placement_target.h; the way there: placement_step.h.
#ifndef PAWL_SCHEDULER_PLACEMENT_PLACEMENT_H_
#define PAWL_SCHEDULER_PLACEMENT_PLACEMENT_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace pawl {

// A server is known by the number in its name: server-3 is 3. Its lives are not told apart here:
// the death of one is followed before the next one is taken in.
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
  // Every acknowledged push is on each of these servers: the primary, the backups, `yielding`, and
  // those that were in sync before, until the primary has confirmed that it knows of their
  // departure. Any of them may become primary.
  std::vector<ServerNumber> last_in_sync;
  // Of last_in_sync: present with their data, but not in sync. One may be a learner too, and keeps
  // what it has meanwhile.
  std::vector<ServerNumber> fallbacks;
  // Not in sync any more; they keep their files until the partition has enough other replicas
  // (ReleaseKeepers).
  std::vector<ServerNumber> keepers;
  // The epoch of the last addition to them.
  uint64_t keepers_since = 0;
  // The epoch at which last_in_sync became more than those in sync. The primary acknowledges
  // nothing until it has confirmed that it acts by this epoch or a later one. 0: there is nothing
  // to confirm.
  uint64_t confirm_since = 0;
  // A primary that was told at primary_since to serve no more, and may not have heard of it. Once
  // it has, or is dead, the first backup becomes primary; if all backups die first, it is the
  // primary again.
  ServerNumber yielding = kNoServer;
  // A replica in sync that goes once another one has taken its place.
  ServerNumber leaving = kNoServer;

  bool InSync(ServerNumber server) const;
  bool Learns(ServerNumber server) const;
  // last_in_sync has servers that are not in sync.
  bool IsUnconfirmed() const;
  uint32_t in_sync() const {
    return static_cast<uint32_t>(backups.size()) + (primary != kNoServer ? 1 : 0);
  }
  // No server can serve it: one of last_in_sync must come back with its data.
  bool Waits() const;
};

struct Placement {
  // Each function below that changes anything raises it by one, except Confirm.
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
  // It serves at once what it becomes primary of. One that has just come back may have promised
  // otherwise in its former incarnation, and waits for a lease.
  bool settled = true;
  // Its log can be written.
  bool writes = true;
};

// All functions are pure but for `placement`, and return whether they have changed it. Invariants,
// whatever the order in which they are called:
//  1. A primary or backup is in last_in_sync.
//  2. No push is acknowledged without all of last_in_sync. It loses a server only if that server
//  has come back without its
//     data, if the primary has confirmed that it knows of the departure, or if all wanted replicas
//     are in sync.
//  3. epoch only grows; primary_since is the epoch of the last change of the primary.
//  4. No server is twice in a set.
//  5. Nobody becomes primary while the one before lives and has not heard that it is not any more.

// The first placement of `partitions` empty partitions, `replicas` of each, spread evenly.
// REQUIRES: 1 <= replicas <= servers.size(), servers ascending, placement empty.
void PlaceFirst(const std::vector<ServerNumber>& servers, uint32_t partitions, uint32_t replicas,
                Placement& placement);

// Failover: the servers are dead, all at the same time. Where others are in sync the first of them
// that is not among `unsettled` is primary, or else the first of them; where not, a fallback is;
// without one, the partition waits.
bool RemoveServers(const std::vector<ServerNumber>& dead,
                   const std::vector<ServerNumber>& unsettled, Placement& placement);

struct Recovery {
  bool changed = false;
  // Partitions whose last possible primary has come back without them: they are lost.
  std::vector<uint32_t> lost;
};
// A server is back with `recovered` (ascending). Where it is in last_in_sync and has the data, it
// is a fallback, and the primary if the partition waits. `nothing_yet`: no change was acknowledged
// in any partition, so that one without the data has lost nothing; see BeginAnew.
Recovery RecoverServer(ServerNumber server, const std::vector<uint32_t>& recovered,
                       bool nothing_yet, Placement& placement);

// Nothing was ever acknowledged: partitions that wait begin anew, each on one of these servers,
// which are present; on one in last_in_sync, unless `on_any`, because no server can bring anything
// back.
bool BeginAnew(const std::vector<ServerNumber>& servers, bool on_any, Placement& placement);

// `primary`, which acts by `adopted_epoch`, says that `learner` has everything: it is a backup from
// now on. Ignored unless that is so of the partition's present primary and learner.
bool CaughtUp(uint32_t partition, ServerNumber primary, ServerNumber learner,
              uint64_t adopted_epoch, Placement& placement);

// `silent` take nothing of what `primary`, which acts by `adopted_epoch`, sends: they are in no set
// any more whose primary it has been since then, neither as backups nor as learners. Those who lost
// something by that.
std::set<ServerNumber> DropSilent(ServerNumber primary, const std::set<ServerNumber>& silent,
                                  uint64_t adopted_epoch, Placement& placement);

struct Confirmation {
  bool changed = false;
  // Every partition whose primary the server is has been confirmed.
  bool complete = true;
};
// `server`, in its present incarnation, acts by `epoch`: of the partitions whose primary it is by
// then, only those in sync count as last_in_sync from now on. Not where they are fewer than
// `min_in_sync`: nothing is acknowledged there.
Confirmation Confirm(ServerNumber server, uint64_t epoch, uint32_t min_in_sync,
                     Placement& placement);

// Where `replicas` servers are in sync, confirmed, and all of them act by the epoch at which the
// last keeper was added or a later one, the keepers may delete their files.
bool ReleaseKeepers(const std::vector<PlacementServer>& servers, uint32_t replicas,
                    Placement& placement);

// What an operator can release of one server.
struct KeptReplicas {
  std::vector<uint32_t> partitions;
  // Of these: no other server is known to have what it has.
  std::vector<uint32_t> needed;
};
KeptReplicas KeptBy(ServerNumber server, const Placement& placement);
// An operator gives up what the server keeps, with `needed` also what no other server has. The
// partitions that are lost by that.
std::vector<uint32_t> ReleaseServer(ServerNumber server, bool needed, Placement& placement);

// The parts of the above from which placement_step.h is made.
//
// The first backup is primary from `epoch` on. What others have learned from its predecessor is
// void. A primary that has yielded is a fallback.
void Promote(ReplicaSet& set, uint64_t epoch);
// The backup, which is there, is not in sync any more.
void LeaveInSync(ServerNumber backup, uint64_t epoch, ReplicaSet& set);
// The server is not in sync any more, and keeps its files.
void Keep(ServerNumber server, uint64_t epoch, ReplicaSet& set);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_PLACEMENT_H_
