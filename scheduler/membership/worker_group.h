// The group of workers that take part in collective operations.
#ifndef PAWL_SCHEDULER_MEMBERSHIP_WORKER_GROUP_H_
#define PAWL_SCHEDULER_MEMBERSHIP_WORKER_GROUP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// Limits of the values that members exchange: of one value, of all values in a group, and of their
// names. Connecting a group takes one exchange of addresses, a few kilobytes.
inline constexpr size_t kMaxExchangeBytes = size_t{64} << 10;
inline constexpr size_t kMaxGroupExchangeBytes = size_t{8} << 20;
inline constexpr size_t kMaxExchangeNames = 16;
inline constexpr size_t kMaxExchangeNameBytes = 128;

// Tracks which workers wait for a group, forms it, and ends it. It has no clock; its caller reports
// events. Not thread-safe.
//
// Invariants:
//  1. There is at most one group. Its members host all ranks of the job, each rank once.
//  2. A group never changes. Other members, or other ranks of a member, need another group with
//     another generation.
//  3. No worker is in a group and waits for one.
class WorkerGroup {
 public:
  // A rank as the scheduler has placed it.
  struct HostedRank {
    // Empty: it has no host.
    std::string node;
    uint64_t incarnation = 0;
    // Its host must give it up. Until then the host may bring it or leave it out.
    bool leaving = false;
    bool finished = false;
  };
  // By rank of the job.
  using Hosts = std::vector<HostedRank>;

  // The worker waits for the next group and ends the group that it is in. A repeated call changes
  // nothing: a call counts as repeated if the request is equal and the worker has not called
  // Exchange or CheckEnded in the group. `request` is from the worker's present incarnation.
  //
  // INVALID_ARGUMENT: no ranks, or not ascending. FAILED_PRECONDITION: the ranks are not those
  // assigned to it, with their present incarnations; the worker then no longer waits.
  absl::Status Join(const JoinGroupRequest& request, const Hosts& hosts);

  // The worker's call has ended: it no longer waits.
  void Withdraw(const std::string& node);

  // The worker is gone: ends the group that it is in.
  void OnNodeGone(const std::string& node, const std::string& how);

  // The assignment of ranks may have changed. Ends the group if a rank has another host or another
  // incarnation. Removes and returns the waiting workers whose ranks are no longer those assigned
  // to them.
  std::vector<std::string> OnRanksAssigned(const Hosts& hosts);

  // Forms a group of the waiting workers if they bring all ranks. `next_generation` returns a
  // number that no other group of the job ever has. Returns whether a group was formed.
  bool Form(const Hosts& hosts, const std::function<uint64_t()>& next_generation);

  // The group that the worker is in, with its place. nullopt if it is in none.
  std::optional<JoinGroupResponse> GroupOf(const std::string& node) const;

  // Stores a member's value. ABORTED: the group has ended. INVALID_ARGUMENT: an impossible name, or
  // too large a value. ALREADY_EXISTS: the member has stored another value by this name.
  // RESOURCE_EXHAUSTED beyond the limits.
  absl::Status Exchange(const ExchangeInGroupRequest& request);
  // All values by place. nullopt while some are missing. ABORTED if the group has ended.
  absl::StatusOr<std::optional<ExchangeInGroupResponse>> Values(uint64_t generation,
                                                                const std::string& name) const;

  // A member asks why its group ended. nullopt while it has not. INVALID_ARGUMENT if the node is
  // not a member.
  absl::StatusOr<std::optional<std::string>> CheckEnded(const std::string& node,
                                                        uint64_t generation);
  std::optional<std::string> EndReason(uint64_t generation) const;

  // 0: no group.
  uint64_t generation() const { return generation_; }
  bool IsActive() const { return generation_ != 0 || !waiting_.empty(); }

 private:
  struct Member {
    JoinGroupRequest request;
    // It has made a call in the group.
    bool has_heard = false;
  };

  void End(const std::string& why);
  // nullptr if the node is not a member.
  Member* Find(const std::string& node);
  size_t PlaceOf(const std::string& node) const;
  static bool Holds(const JoinGroupRequest& request, const Hosts& hosts);

  // By node.
  std::map<std::string, JoinGroupRequest> waiting_;
  uint64_t generation_ = 0;
  // By place.
  std::vector<Member> members_;
  // By name, then place. nullopt while missing.
  std::map<std::string, std::vector<std::optional<std::string>>> exchanges_;
  size_t exchange_bytes_ = 0;
  // The last group that ended, and why.
  uint64_t former_generation_ = 0;
  std::string end_reason_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_MEMBERSHIP_WORKER_GROUP_H_
