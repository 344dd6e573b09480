// Barriers at which the parties of a job wait for each other.
#ifndef PAWL_SCHEDULER_MEMBERSHIP_BARRIERS_H_
#define PAWL_SCHEDULER_MEMBERSHIP_BARRIERS_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/scheduler_state.pb.h"

namespace pawl {

// The limit on open barriers of one kind, and on those of kind kOthers at which one node waits.
inline constexpr size_t kMaxOpenBarriers = 256;
inline constexpr size_t kMaxOpenBarriersOfNode = 32;
// Closed barriers of one kind that are remembered for parties whose answer was lost. The oldest are
// forgotten.
inline constexpr size_t kMaxClosedBarriers = 4096;
inline constexpr size_t kMaxBarrierNameBytes = 128;
// The maximum number of ranks of a job.
inline constexpr uint32_t kMaxBarrierParties = 16384;

// Counts parties, not messages: a party that arrives repeatedly counts once, and a failure names
// the party that died. The ranks' barriers share neither names nor limits with the others: a client
// that chose the name of the next one first, or opened barriers without end, would stop the
// training. Not thread-safe.
class Barriers {
 public:
  enum class Outcome { kWaiting, kComplete };
  // kRanks: the parties are the hosts of all ranks.
  enum class Kind { kRanks, kOthers };

  // Identifies a barrier.
  static std::string Key(Kind kind, const std::string& name);

  // `node` arrives as `party`. kComplete: all parties have arrived, and the caller answers all
  // waiting calls. INVALID_ARGUMENT for an impossible name, impossible numbers or numbers that
  // differ from the other parties', RESOURCE_EXHAUSTED beyond the limits, ABORTED if the barrier
  // has failed.
  absl::StatusOr<Outcome> Arrive(const std::string& name, uint32_t parties, uint32_t party,
                                 const std::string& node, Kind kind = Kind::kRanks);

  // The node gives up as this party: the barrier fails for all parties. Returns the failure, or OK
  // if the barrier was closed or this node has not arrived as the party.
  absl::Status FailParty(const std::string& key, uint32_t party, const std::string& node,
                         absl::string_view reason);

  // The node no longer is this party of the ranks' barriers: revokes its arrival at open ones, so
  // that another node can arrive.
  void Withdraw(const std::string& node, uint32_t party);

  struct Failure {
    std::string key;
    absl::Status status;
  };
  // The node is gone: fails every open barrier at which it has arrived.
  std::vector<Failure> FailNode(const std::string& node, absl::string_view reason);

  // Saves closed barriers only. Parties that wait at open barriers arrive again.
  StoredBarriers Save() const;
  // REQUIRES: no party has arrived at any barrier.
  void Restore(const StoredBarriers& stored);

 private:
  struct Barrier {
    // 0: unknown, after a restart.
    uint32_t parties = 0;
    // The node of each party.
    std::map<uint32_t, std::string> arrived;
    bool closed = false;
    // The failure, if any, once closed.
    absl::Status result;
  };

  // The barriers of one kind.
  struct Bounds {
    size_t open = 0;
    // The keys, the oldest first.
    std::deque<std::string> closed;
  };

  Bounds& BoundsOf(Kind kind) { return bounds_[static_cast<size_t>(kind)]; }
  absl::Status CheckCanOpen(const std::string& name, const std::string& node, Kind kind);
  void Close(const std::string& key, Barrier& barrier, const absl::Status& result);

  absl::flat_hash_map<std::string, Barrier> barriers_;
  // By Kind.
  std::array<Bounds, 2> bounds_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_MEMBERSHIP_BARRIERS_H_
