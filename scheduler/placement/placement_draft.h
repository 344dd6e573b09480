// What the target of a placement is made of: the present one, which is changed move by move.
#ifndef PAWL_SCHEDULER_PLACEMENT_PLACEMENT_DRAFT_H_
#define PAWL_SCHEDULER_PLACEMENT_PLACEMENT_DRAFT_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "scheduler/placement/partition_load.h"
#include "scheduler/placement/placement.h"
#include "scheduler/placement/replica_quotas.h"

namespace pawl {

// Nobody, among the indices of servers in a draft.
inline constexpr uint32_t kNobody = UINT32_MAX;
inline constexpr double kRounding = 1e-6;

// What is to be equal besides the number of replicas.
enum Measure { kBytes, kKeys, kMeasures };

struct DraftServer {
  ServerNumber number = 0;
  uint32_t zone = 0;
  // Partitions that it has a replica of.
  std::vector<uint32_t> partitions;
  uint32_t primaries = 0;
  // Sums over its partitions, in shares of what a server has on average.
  std::array<double, kMeasures> has{};
  double quota = 0;
  double primary_quota = 0;

  double replicas() const { return static_cast<double>(partitions.size()); }
  double surplus() const { return replicas() - quota; }
  double primary_surplus() const { return primaries - primary_quota; }
};

struct DraftPartition {
  // Somebody who has its data is there.
  bool placed = false;
  // Indices of servers.
  std::vector<uint32_t> members;
  // Those of them that have its data.
  std::vector<uint32_t> in_sync;
  // The members at first.
  std::vector<uint32_t> former;
  uint32_t primary = kNobody;
  // Something is being copied or handed over.
  bool in_motion = false;
  bool hot = false;
  bool hot_primary = false;
  // In shares of what a server has on average.
  std::array<double, kMeasures> weight{};
  double primary_weight = 0;
};

inline bool Contains(const std::vector<uint32_t>& all, uint32_t one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// A quota, rounded down and up.
inline double Low(double quota) { return std::floor(quota + kRounding); }
inline double High(double quota) { return std::ceil(quota - kRounding); }

// What a server has of something, and what it is to have.
struct Share {
  double has = 0;
  double quota = 0;
};

// As long as a server has more than its quota rounded up, or less than it rounded down: the one
// with the largest surplus is relieved, or the one with the smallest supplied. Whoever cannot be
// helped (false) is left as it is.
void EvenOut(size_t servers, absl::FunctionRef<Share(uint32_t)> share,
             absl::FunctionRef<bool(uint32_t)> relieve, absl::FunctionRef<bool(uint32_t)> supply);

// The servers that stay, and what they have of the partitions that are there. Keeps the sums right,
// decides nothing: placement_spread.h, placement_numbers.h, placement_measures.h and
// placement_primaries.h do. Not thread-safe.
class PlacementDraft {
 public:
  // As ComputeTarget's.
  PlacementDraft(const std::vector<PlacementServer>& servers, uint32_t replicas,
                 const PartitionLoads& loads, const Placement& placement);

  // Without those that drain.
  const std::vector<DraftServer>& servers() const { return servers_; }
  const std::vector<DraftPartition>& partitions() const { return partitions_; }
  // Of each partition, on servers and in each zone.
  uint32_t replicas() const { return replicas_; }
  const std::vector<ZoneBounds>& zones() const { return zones_; }
  // Partitions that are.
  size_t placed() const { return placed_; }
  // Whether there is enough of it to be balanced.
  bool is_weighed(int measure) const { return weighed_[measure]; }

  // The number of replicas that each server is to have. What hot partitions take is taken off.
  void SetQuotas();
  void SetPrimaryQuota(uint32_t server, double quota) { servers_[server].primary_quota = quota; }

  // REQUIRES: not a member yet; a member.
  void AddMember(uint32_t p, uint32_t server);
  void RemoveMember(uint32_t p, uint32_t server);
  // Whoever has the place has the role.
  void Move(uint32_t p, uint32_t from, uint32_t to);
  // kNobody: there is none for now.
  void SetPrimary(uint32_t p, uint32_t server);

  // Members of a partition in a zone.
  uint32_t InZone(const DraftPartition& part, uint32_t zone) const;
  // Whether Move may be: nothing is under way, and the zones are no worse.
  bool CanMove(uint32_t p, uint32_t from, uint32_t to) const;
  // By how much the sum of squares of bytes and keys falls if p goes from `from` to `to`, and q (if
  // it is one) the other way.
  double Gain(uint32_t p, uint32_t q, uint32_t from, uint32_t to) const;

 private:
  uint32_t IndexOf(ServerNumber server) const;
  void AddPartition(uint32_t p, const ReplicaSet& set);
  // Shares of what a server has on average, and which are hot.
  void Weigh(const PartitionLoads& loads);
  bool ZonesAllow(const DraftPartition& part, uint32_t from, uint32_t to) const;

  std::vector<DraftServer> servers_;
  std::map<ServerNumber, uint32_t> index_;
  uint32_t replicas_ = 0;
  std::vector<ZoneBounds> zones_;
  std::vector<DraftPartition> partitions_;
  size_t placed_ = 0;
  std::array<bool, kMeasures> weighed_{};
};

// Something of a partition goes from one server to another.
struct Hop {
  uint32_t from = kNobody;
  uint32_t to = kNobody;
  uint32_t partition = kNobody;
};

// The shortest way from one of `from` to one of `to`, its last hop first: empty if there is none.
// From a server a partition of its own may go to those of `takers(partition, here)` of which
// `may_go(partition, here, taker)` is true; among ways of the same length it is the one whose
// servers and takers are named first.
std::vector<Hop> ShortestWay(
    const PlacementDraft& draft, const std::vector<uint32_t>& from, const std::vector<uint32_t>& to,
    absl::FunctionRef<absl::Span<const uint32_t>(uint32_t, uint32_t)> takers,
    absl::FunctionRef<bool(uint32_t, uint32_t, uint32_t)> may_go);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_PLACEMENT_DRAFT_H_
