// Where the replicas are, and what follows when servers come, go and catch up.
#ifndef PAWL_SCHEDULER_PLACEMENT_REPLICA_DIRECTOR_H_
#define PAWL_SCHEDULER_PLACEMENT_REPLICA_DIRECTOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/membership/membership.h"
#include "scheduler/placement/move_progress.h"
#include "scheduler/placement/partition_meter.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/placement_step.h"
#include "scheduler/placement/placement_target.h"
#include "scheduler/placement/unreachable_pairs.h"
#include "scheduler/status/event_log.h"

namespace pawl {

// How often what partitions cost is looked at anew, when all are where they are to be.
inline constexpr std::chrono::seconds kLoadsInterval{10};
// After a lease and so much more a server that has come back serves at once what it becomes primary
// of.
inline constexpr std::chrono::milliseconds kSettlingMargin{100};

// Turns events into steps of the placement (scheduler/placement/placement.h, placement_target.h and
// placement_step.h, which decide), keeps account of partitions that wait for a server, and notes
// what has moved. Time is passed in. Not thread-safe.
class ReplicaDirector {
 public:
  struct Options {
    uint32_t partitions = 1;
    uint32_t replicas = 1;
    uint32_t min_in_sync = 1;
    // Servers write their replicas down: one that died may bring them back.
    bool durable = true;
    // How long a partition waits for that.
    MonotonicDuration recovery_timeout = std::chrono::seconds(60);
    // Of the servers.
    MonotonicDuration lease = std::chrono::seconds(1);
    // Servers that have partitions; others stand by, unless the job is elastic.
    uint32_t servers = 1;
    bool elastic = false;
  };

  // `events` outlives this; null: nobody wants to know.
  explicit ReplicaDirector(const Options& options, EventLog* events = nullptr)
      : options_(options),
        events_(events),
        wanted_servers_(options.servers),
        meter_(options.partitions) {}

  // The first placement has been made.
  bool placed() const { return !placement_.partitions.empty(); }
  const Placement& placement() const { return placement_; }
  uint64_t epoch() const { return placement_.epoch; }
  // The epoch of the last change of any primary.
  uint64_t primaries_since() const;
  bool EveryPartitionHasAPrimary() const;

  // How many servers are to have partitions.
  void SetWantedServers(uint32_t servers) {
    wanted_servers_ = servers;
    target_.reset();
  }
  // It has nothing and gets nothing for now, since there are enough others. As of the last Step.
  bool StandsBy(const Node& server) const { return standing_by_.contains(server.number); }

  // With `replicas` of each partition to begin with, or as many as there are servers. REQUIRES:
  // !placed(); some servers, ascending, none of which drains.
  void PlaceFirst(const std::vector<const Node*>& servers, uint32_t replicas);
  void PlaceFirst(const std::vector<const Node*>& servers) {
    PlaceFirst(servers, options_.replicas);
  }

  // What the job fails with, or nothing. Each raises the epoch once it is placed.
  //
  // The servers have died, or left, all at the same time; `how` says for each server how. A dead
  // server may come back with its data: with a log, or, whatever the durability, if it was only
  // unreachable. `nothing_yet`: as in RecoverServer.
  std::optional<std::string> ServersAreGone(const std::vector<Node>& servers,
                                            const std::vector<std::string>& how, bool dead,
                                            bool nothing_yet, MonotonicTime now);
  std::optional<std::string> ServerIsThere(const Node& server, std::vector<uint32_t> recovered,
                                           bool nothing_yet);

  // Whether the placement has changed.
  bool LearnersHaveCaughtUp(const Node& primary, const HeartbeatRequest& report,
                            const Membership& membership);
  // Drops from the primary's partitions those who take nothing of what it sends. Whether the
  // placement has changed.
  bool DropSilent(const Node& primary, const HeartbeatRequest& report, const Membership& membership,
                  MonotonicTime now);
  // If nothing_yet: what no server can serve begins anew on these, see placement.h.
  bool BeginAnew(const std::vector<const Node*>& servers);
  // The server acts by `epoch`.
  Confirmation Confirm(const Node& server, uint64_t epoch);
  // The number of partitions of which the server may delete its replica. With `force`, `loss` may
  // become what the job fails with. REQUIRES: placed().
  absl::StatusOr<uint32_t> ReleaseKept(const Node& server, bool force,
                                       std::optional<std::string>& loss);
  // Some primary hands over.
  bool handing_over() const;
  // What need not wait for a step: a primary that hands over has heard of it.
  bool CompleteHandovers(const std::vector<const Node*>& servers);
  // With move == false only what is under way is completed.
  bool Step(const std::vector<const Node*>& servers, bool move, MonotonicTime now);

  // Takes note of what a server says of its partitions; returns whether there is an event.
  bool NoteFigures(const Node& server, const HeartbeatRequest& report, MonotonicTime now);
  MovesStatus Moves(MonotonicTime now) const;
  // Why pushes to some partitions wait; empty if none do.
  std::vector<PushWait> PushWaits() const;
  // All replicas are where they are to be, as of the last Step.
  bool AtRest() const;

  // What the job fails with: a partition has waited too long.
  std::optional<std::string> CheckRecovery(MonotonicTime now) const;

  StoredPlacement Save() const;
  void Restore(const StoredPlacement& stored, MonotonicTime now);
  void RestoreMoves(const MovesStatus& stored) { progress_.Restore(stored); }

 private:
  void ForgetWhoWaitsNoMore();
  void ForgetHowOthersWent();
  std::string HowGone(ServerNumber server) const;
  // Logs it when the last of the partitions that were short of replicas has as many as it should.
  void NoteRedundancy();
  // "server-1 (...) died ...; partitions 1, 4, 7 were nowhere else"
  std::string LossText(const std::vector<uint32_t>& partitions, const std::string& how) const;

  // As the decisions see them; notes who stands by.
  std::vector<PlacementServer> Present(const std::vector<const Node*>& servers);
  // Decides anew if something that matters is different.
  void UpdateTarget(const std::vector<PlacementServer>& servers, MonotonicTime now);
  // Those that cannot be expected to serve at once what they take over.
  std::vector<ServerNumber> Unsettled(MonotonicTime now) const;
  void AddEvent(EventKind kind, ServerNumber server, ServerNumber from, uint32_t partition,
                std::optional<uint32_t> pause_ms);
  void NotePromotions(const std::vector<ReplicaSet>& before);

  struct Handover {
    ServerNumber from = kNoServer;
    uint64_t primary_since = 0;
  };

  const Options options_;
  EventLog* const events_;
  uint32_t wanted_servers_;
  std::set<ServerNumber> standing_by_;
  PartitionMeter meter_;
  // Those by which the target was decided, and when they were last looked at.
  PartitionLoads loads_;
  std::optional<MonotonicTime> loads_at_;
  std::optional<PlacementTarget> target_;
  // Of which the target is, without what they have adopted.
  std::vector<PlacementServer> target_servers_;
  MoveProgress progress_;
  // By partition: those of which the new primary has not yet said how long they took.
  std::map<uint32_t, Handover> handovers_;
  Placement placement_;
  // By number: how they went, while they are in some last_in_sync.
  std::map<ServerNumber, std::string> how_gone_;
  // By number: when those that have come back with their data since the first placement are
  // settled.
  std::map<ServerNumber, MonotonicTime> settled_from_;
  UnreachablePairs unreachable_pairs_;
  // By partition: since when it waits for a server to come back.
  std::map<uint32_t, MonotonicTime> waiting_since_;
  bool short_of_replicas_ = false;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_REPLICA_DIRECTOR_H_
