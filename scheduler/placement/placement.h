// The placement of replicas on servers, and how events change it. placement_target.h computes where
// replicas should be, placement_step.h the steps towards that.
#ifndef PAWL_SCHEDULER_PLACEMENT_PLACEMENT_H_
#define PAWL_SCHEDULER_PLACEMENT_PLACEMENT_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace pawl {

// The number in a server's name: server-3 is 3. The placement does not distinguish incarnations:
// the death of one is applied before the return of the next.
using ServerNumber = uint32_t;
inline constexpr ServerNumber kNoServer = UINT32_MAX;

// The replicas of one partition.
struct ReplicaSet {
  struct Learner {
    ServerNumber server = kNoServer;
    // The epoch since which it learns from the present primary.
    uint64_t since = 0;
  };

  // kNoServer while no server can be primary.
  ServerNumber primary = kNoServer;
  // The epoch of the last change of the primary.
  uint64_t primary_since = 0;
  // The epoch at which the partition was created empty.
  uint64_t created_epoch = 0;
  // In sync, like the primary: they have every acknowledged push.
  std::vector<ServerNumber> backups;
  std::vector<Learner> learners;
  // Servers that have every acknowledged push: the primary, the backups, `yielding`, and those that
  // left the in-sync set, until the primary confirms that it knows of their departure. Any of them
  // may become primary.
  std::vector<ServerNumber> last_in_sync;
  // Members of last_in_sync that are present with their data, but not in sync. A fallback may also
  // be a learner; it keeps its data meanwhile.
  std::vector<ServerNumber> fallbacks;
  // Servers that left the in-sync set and retain their files until the partition has enough other
  // replicas (ReleaseRetained).
  std::vector<ServerNumber> retained;
  // The epoch of the last addition to `retained`.
  uint64_t retained_since = 0;
  // The epoch at which last_in_sync became larger than the in-sync set. The primary acknowledges
  // nothing until it confirms that it acts by this epoch or a later one. 0: nothing to confirm.
  uint64_t confirm_since = 0;
  // The previous primary, which must stop serving by the routing of `yielding_since` and may not
  // act by it yet. Once it does, or is dead, the first backup becomes primary, and this server a
  // backup unless it is `leaving`. If all backups die first, it becomes primary again.
  ServerNumber yielding = kNoServer;
  uint64_t yielding_since = 0;
  // A replica in sync that is dropped once its replacement is in sync.
  ServerNumber leaving = kNoServer;

  // The primary, a backup, or a yielding primary that becomes a backup.
  bool InSync(ServerNumber server) const;
  bool IsLearner(ServerNumber server) const;
  // last_in_sync has servers that are not in sync.
  bool IsUnconfirmed() const;
  // A yielding primary becomes a backup.
  bool stays() const { return yielding != kNoServer && yielding != leaving; }
  uint32_t in_sync() const {
    return static_cast<uint32_t>(backups.size()) + (primary != kNoServer || stays() ? 1 : 0);
  }
  // The present primary; while it yields, its successor.
  ServerNumber NextPrimary() const;
  // No server can serve the partition until a server of last_in_sync returns with its data.
  bool IsUnavailable() const;
};

struct Placement {
  // Every function below except Confirm raises it by one if it changes anything.
  uint64_t epoch = 0;
  // By partition. Empty before the first placement.
  std::vector<ReplicaSet> partitions;
};

// A server that is present.
struct PlacementServer {
  ServerNumber number = 0;
  // It must lose all its replicas and gets none.
  bool draining = false;
  // The newest epoch that it has reported to act by.
  uint64_t adopted_epoch = 0;
  // The failure domain, such as a rack.
  std::string zone = {};
  // It can serve as primary at once. A server that has just returned cannot: its previous
  // incarnation may have given promises that bind for one lease.
  bool settled = true;
  // Whether its log is writable.
  bool writes = true;
};

// All functions change only `placement` and return whether they did. Invariants, in whatever order
// they are called:
//  1. A primary or backup is in last_in_sync.
//  2. A push is acknowledged only by all of last_in_sync. A server leaves last_in_sync only if it
//     returns without its data, if the primary confirms that it knows of the departure, or if all
//     wanted replicas are in sync.
//  3. epoch only grows; primary_since is the epoch of the last change of the primary.
//  4. No server is twice in a set.
//  5. No server becomes primary while its predecessor lives and has not adopted the routing that
//     replaces it.

// Places `partitions` empty partitions for the first time, `replicas` of each, spread evenly.
// REQUIRES: 1 <= replicas <= servers.size(), servers ascending, placement empty.
void PlaceFirst(const std::vector<ServerNumber>& servers, uint32_t partitions, uint32_t replicas,
                Placement& placement);

// Failover: all `dead` servers died at the same time. The new primary is the first server in sync
// that is not `unsettled`, else the first in sync, else a fallback. Without one the partition is
// unavailable.
bool RemoveServers(const std::vector<ServerNumber>& dead,
                   const std::vector<ServerNumber>& unsettled, Placement& placement);

struct Recovery {
  bool changed = false;
  // Partitions that are lost: their last possible primary returned without them.
  std::vector<uint32_t> lost;
};
// A server returns with the partitions `recovered` (ascending). Where it is in last_in_sync and has
// the data, it becomes a fallback, or the primary of an unavailable partition. `nothing_yet`: no
// change was acknowledged in any partition, so a server without the data has lost nothing; see
// RestartEmpty.
Recovery RecoverServer(ServerNumber server, const std::vector<uint32_t>& recovered,
                       bool nothing_yet, Placement& placement);

// Restarts every unavailable partition empty on one of the present `servers`: on a member of
// last_in_sync, or, with `on_any`, when no server can return with data, on any server. REQUIRES: no
// push was ever acknowledged.
bool RestartEmpty(const std::vector<ServerNumber>& servers, bool on_any, Placement& placement);

// `primary`, which acts by `adopted_epoch`, reports that `learner` has every acknowledged push: the
// learner becomes a backup. Ignored unless both are the partition's present primary and learner.
bool CaughtUp(uint32_t partition, ServerNumber primary, ServerNumber learner,
              uint64_t adopted_epoch, Placement& placement);

// A server that does not accept what a primary sends: of all partitions, or of one.
struct SilentFollower {
  ServerNumber server = kNoServer;
  std::optional<uint32_t> partition = std::nullopt;
};
// `primary`, which acts by `adopted_epoch`, reports these followers. Removes them, as backups and
// learners, from the sets whose primary it has been since then. Returns the servers that lost a
// replica.
std::set<ServerNumber> DropSilent(ServerNumber primary, const std::vector<SilentFollower>& silent,
                                  uint64_t adopted_epoch, Placement& placement);

struct Confirmation {
  bool changed = false;
  // Every partition whose primary is this server is confirmed.
  bool complete = true;
};
// `server` acts by `epoch`, in its present incarnation: reduces last_in_sync to the servers in sync
// for all partitions whose primary it was by then. Skips partitions with fewer than `min_in_sync`
// servers in sync, which acknowledge nothing.
Confirmation Confirm(ServerNumber server, uint64_t epoch, uint32_t min_in_sync,
                     Placement& placement);

// Lets retained replicas delete their files where `replicas` servers are in sync and confirmed, and
// all of them act by retained_since or a later epoch.
bool ReleaseRetained(const std::vector<PlacementServer>& servers, uint32_t replicas,
                     Placement& placement);

// The partitions for which `server` is in last_in_sync, and no `present` server is there with its
// data: `server` may have acknowledged pushes that no present server is known to have.
std::vector<uint32_t> HeldOnlyBy(ServerNumber server, const std::set<ServerNumber>& present,
                                 const Placement& placement);

// The retained replicas of one server, which an operator can release.
struct RetainedReplicas {
  std::vector<uint32_t> partitions;
  // Partitions whose data no other server is known to have.
  std::vector<uint32_t> needed;
};
RetainedReplicas RetainedBy(ServerNumber server, const Placement& placement);
// An operator gives up the retained replicas of a server; with `needed` also those that no other
// server has. Returns the partitions that are lost as a result.
std::vector<uint32_t> ReleaseServer(ServerNumber server, bool needed, Placement& placement);

// Building blocks for placement_step.h.
//
// Makes the first backup primary from `epoch` on. Learners of its predecessor start over. A
// yielding primary becomes a backup, or a fallback if it is leaving.
void Promote(ReplicaSet& set, uint64_t epoch);
// The backup, which is present, leaves the in-sync set.
void LeaveInSync(ServerNumber backup, uint64_t epoch, ReplicaSet& set);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_PLACEMENT_H_
