// Where the replicas are, and what follows when servers come, go and catch up.
#ifndef PAWL_SCHEDULER_REPLICA_DIRECTOR_H_
#define PAWL_SCHEDULER_REPLICA_DIRECTOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "proto/scheduler.pb.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/membership.h"
#include "scheduler/placement.h"

namespace pawl {

// Turns events into steps of the placement (scheduler/placement.h, which decides) and keeps account of partitions that
// wait for a holder. Time is passed in. Not thread-safe.
class ReplicaDirector {
 public:
  struct Options {
    uint32_t partitions = 1;
    uint32_t replicas = 1;
    // Servers write their replicas down: one that died may bring them back.
    bool durable = true;
    // How long a partition waits for that.
    MonotonicDuration recovery_timeout = std::chrono::seconds(60);
  };

  explicit ReplicaDirector(const Options& options) : options_(options) {}

  // The first placement has been made.
  bool placed() const { return !placement_.partitions.empty(); }
  const Placement& placement() const { return placement_; }
  uint64_t epoch() const { return placement_.epoch; }
  // The epoch of the last change of any primary.
  uint64_t primaries_since() const;
  bool EveryPartitionHasAPrimary() const;

  // With `replicas` of each partition to begin with. REQUIRES: !placed(), at least so many servers.
  void PlaceFirst(const std::vector<const Node*>& servers, uint32_t replicas);
  void PlaceFirst(const std::vector<const Node*>& servers) { PlaceFirst(servers, options_.replicas); }

  // What the job fails with, or nothing. Each raises the epoch once it is placed.
  //
  // The servers have died or left, at once; `how` says for each of them how. `nothing_yet`: as in RecoverServer.
  std::optional<std::string> ServersAreGone(const std::vector<Node>& servers, const std::vector<std::string>& how,
                                            bool nothing_yet, MonotonicTime now);
  std::optional<std::string> ServerIsThere(const Node& server, std::vector<uint32_t> recovered, bool nothing_yet);

  // Whether the placement has changed.
  bool LearnersHaveCaughtUp(const Node& primary, const HeartbeatRequest& report, const Membership& membership);
  bool Step(const std::vector<const Node*>& servers, bool move);
  // Of servers that write nothing down, if nothing_yet: what they took with them begins anew on others.
  bool BeginAnew(const std::vector<const Node*>& servers);

  // What the job fails with: a partition has waited too long.
  std::optional<std::string> CheckRecovery(MonotonicTime now) const;

  StoredPlacement Save() const;
  void Restore(const StoredPlacement& stored, MonotonicTime now);

 private:
  void ForgetWhoWaitsNoMore();
  // Logs it when the last of the partitions that were short of replicas has as many as it should.
  void NoteRedundancy();
  // "server-1 (...) died ...; partitions 1, 4, 7 were nowhere else"
  std::string LossText(const std::vector<uint32_t>& partitions, const std::string& how) const;

  const Options options_;
  Placement placement_;
  // By number: how they went, while they are holders.
  std::map<ServerNumber, std::string> how_gone_;
  // By partition: since when it waits for a holder.
  std::map<uint32_t, MonotonicTime> waiting_since_;
  bool short_of_replicas_ = false;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_REPLICA_DIRECTOR_H_
