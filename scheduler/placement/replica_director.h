// Keeps the placement up to date as servers join, leave and catch up.
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

// How often the target is reconsidered for new loads, once it is reached.
inline constexpr std::chrono::seconds kLoadsInterval{10};
// A returned server is settled (PlacementServer) after a lease and this margin.
inline constexpr std::chrono::milliseconds kSettlingMargin{100};

// Feeds events to the pure functions that decide (scheduler/placement/placement.h,
// placement_target.h and placement_step.h), tracks partitions that wait for a server, and records
// moves. Time is passed in. Not thread-safe.
class ReplicaDirector {
 public:
  struct Options {
    uint32_t partitions = 1;
    uint32_t replicas = 1;
    uint32_t min_in_sync = 1;
    // Servers log to disk, so a server that died may return with its replicas.
    bool durable = true;
    // How long an unavailable partition waits for such a server.
    MonotonicDuration recovery_timeout = std::chrono::seconds(60);
    // The lease of a server.
    MonotonicDuration lease = std::chrono::seconds(1);
    // Servers that get partitions. Others are on standby, unless the job is elastic.
    uint32_t servers = 1;
    bool elastic = false;
  };

  // `events` outlives this.
  ReplicaDirector(const Options& options, EventLog& events)
      : options_(options),
        events_(events),
        wanted_servers_(options.servers),
        meter_(options.partitions) {}

  // Whether the first placement is made.
  bool placed() const { return !placement_.partitions.empty(); }
  const Placement& placement() const { return placement_; }
  uint64_t epoch() const { return placement_.epoch; }
  // The epoch of the last change of any primary.
  uint64_t primaries_since() const;
  bool HasAllPrimaries() const;

  // Sets the number of servers that get partitions.
  void SetWantedServers(uint32_t servers) {
    wanted_servers_ = servers;
    target_.reset();
  }
  // Whether, as of the last Step, the server has no replicas and gets none because there are enough
  // other servers.
  bool IsStandby(const Node& server) const { return standing_by_.contains(server.number); }

  // Places `replicas` of each partition, or one per server if there are fewer servers. REQUIRES:
  // !placed(); at least one server, ascending, none draining.
  void PlaceFirst(const std::vector<const Node*>& servers, uint32_t replicas);

  // OnServersGone and OnServerJoined return the error that the job fails with, if any, and raise
  // the epoch if placed().
  //
  // The servers died or left at the same time; how[i] describes how servers[i] left. A dead server
  // may return with its data: with a log, or, whatever the durability, if it was only unreachable.
  // `nothing_yet`: as in RecoverServer.
  std::optional<std::string> OnServersGone(const std::vector<Node>& servers,
                                           const std::vector<std::string>& how, bool dead,
                                           bool nothing_yet, MonotonicTime now);
  std::optional<std::string> OnServerJoined(const Node& server, std::vector<uint32_t> recovered,
                                            bool nothing_yet);

  // Whether the process with that nonce may become `server` without its data, which is damaged.
  // UNAVAILABLE, naming partitions and servers, unless servers that have sent a heartbeat since its
  // first request have every acknowledged push. `servers`: those that have sent heartbeats.
  absl::Status CheckReturnsWithoutData(const Node& server, uint64_t process_nonce,
                                       const std::vector<const Node*>& servers, MonotonicTime now);

  // Returns whether the placement changed.
  bool OnLearnersCaughtUp(const Node& primary, const HeartbeatRequest& report,
                          const Membership& membership);
  // Drops the followers that the report calls silent from the primary's partitions. Returns whether
  // the placement changed.
  bool DropSilent(const Node& primary, const HeartbeatRequest& report, const Membership& membership,
                  MonotonicTime now);
  // Restarts unavailable partitions empty on these servers (placement.h). REQUIRES: nothing_yet.
  bool RestartEmpty(const std::vector<const Node*>& servers);
  // The server acts by `epoch` (placement.h).
  Confirmation Confirm(const Node& server, uint64_t epoch);
  // Releases the server's retained replicas and returns their number. With `force` it also releases
  // those that no other server has; `loss` is then the error that the job fails with. REQUIRES:
  // placed().
  absl::StatusOr<uint32_t> ReleaseRetained(const Node& server, bool force,
                                           std::optional<std::string>& loss);
  // Whether some primary is handing over.
  bool handing_over() const;
  // Completes handovers whose primary has stopped serving. May be called between Steps.
  bool CompleteHandovers(const std::vector<const Node*>& servers);
  // Completes handovers in progress, releases retained replicas, and takes a step towards the
  // target; nullopt: no such step.
  bool Step(const std::vector<const Node*>& servers, std::optional<StepScope> scope,
            MonotonicTime now);

  // Records a server's figures on its partitions. Returns whether that added an event.
  bool OnFigures(const Node& server, const HeartbeatRequest& report, MonotonicTime now);
  MovesStatus Moves(MonotonicTime now) const;
  // The reasons why pushes to some partitions wait.
  std::vector<PushWait> PushWaits() const;
  // Whether the placement is at its target, as of the last Step.
  bool IsAtTarget() const;

  // Returns the error that the job fails with if a partition has waited too long.
  std::optional<std::string> CheckRecovery(MonotonicTime now) const;

  StoredPlacement Save() const;
  void Restore(const StoredPlacement& stored, MonotonicTime now);
  void RestoreMoves(const MovesStatus& stored) { progress_.Restore(stored); }

 private:
  void ForgetRecovered();
  void ForgetDepartures();
  std::string DepartureOf(ServerNumber server) const;
  // Logs that every partition has all its replicas again.
  void LogRedundancy();
  // "server-1 (...) died ...; partitions 1, 4, 7 are nowhere else"
  std::string LossText(const std::vector<uint32_t>& partitions, const std::string& how) const;

  // Converts the servers for the placement functions, and updates standing_by_.
  std::vector<PlacementServer> Present(const std::vector<const Node*>& servers);
  // Computes a new target if the servers, or the loads, have changed enough.
  void UpdateTarget(const std::vector<PlacementServer>& servers, MonotonicTime now);
  // The servers that are not settled.
  std::vector<ServerNumber> Unsettled(MonotonicTime now) const;
  void AddEvent(EventKind kind, ServerNumber server, ServerNumber from, uint32_t partition,
                std::optional<uint32_t> pause_ms);
  void NotePromotions(const std::vector<ReplicaSet>& before);

  struct Handover {
    ServerNumber from = kNoServer;
    uint64_t primary_since = 0;
  };

  const Options options_;
  EventLog& events_;
  uint32_t wanted_servers_;
  std::set<ServerNumber> standing_by_;
  PartitionMeter meter_;
  // The loads that target_ is based on, and when newer ones were last considered.
  PartitionLoads loads_;
  std::optional<MonotonicTime> loads_at_;
  std::optional<PlacementTarget> target_;
  // The servers that target_ is based on.
  std::vector<PlacementServer> target_servers_;
  MoveProgress progress_;
  // By partition: handovers whose pause the new primary has not reported yet.
  std::map<uint32_t, Handover> handovers_;
  Placement placement_;
  // By server: how it left, while it is in some last_in_sync.
  std::map<ServerNumber, std::string> departures_;
  // By server: when it is settled, if it returned with data since the first placement.
  std::map<ServerNumber, MonotonicTime> settled_from_;
  // By server: the process that wants to return without its data, and since when.
  struct DamagedReturn {
    uint64_t process_nonce = 0;
    MonotonicTime since;
  };
  std::map<ServerNumber, DamagedReturn> damaged_returns_;
  UnreachablePairs unreachable_pairs_;
  // By partition: since when it waits for a server to return.
  std::map<uint32_t, MonotonicTime> waiting_since_;
  bool short_of_replicas_ = false;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_REPLICA_DIRECTOR_H_
