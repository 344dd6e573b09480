// The group of workers that do collective operations with each other.
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

// What one member hands to the others by one name, what all of a group hand to each other
// altogether, and by how many names: a group is connected by one exchange of addresses, of some
// kilobytes.
inline constexpr size_t kMaxExchangeBytes = size_t{64} << 10;
inline constexpr size_t kMaxGroupExchangeBytes = size_t{8} << 20;
inline constexpr size_t kMaxExchangeNames = 16;
inline constexpr size_t kMaxExchangeNameBytes = 128;

// Decides who waits for a group, when one is formed, and when it is over. Knows neither time nor
// who lives: it is told. Not thread-safe.
//
// Invariants:
// 1. There is one group at most. Its members host all ranks of the job, each rank once.
// 2. A group never changes: another member, or a member with other ranks, makes another group, with
// another generation.
// 3. Nobody is in a group and waits for one.
class WorkerGroup {
 public:
  // A rank as the scheduler has placed it.
  struct HostedRank {
    // Empty: it has no host.
    std::string node;
    uint64_t incarnation = 0;
    // Its host is to give it up; until it has, it may bring it or not.
    bool leaving = false;
    bool finished = false;
  };
  // Of each rank of the job.
  using Hosts = std::vector<HostedRank>;

  // The worker takes part in the next group, and that which it was in is over; but the same call
  // again changes nothing. It is taken for that if it says the same and its caller does not know
  // yet that the group is formed: whoever has called Exchange or IsOver has heard of it, and so
  // wants another one. `request` is the worker's own, of this incarnation.
  //
  // INVALID_ARGUMENT: no ranks, or not ascending. FAILED_PRECONDITION: some are another's, or anew
  // its own, or some that are assigned to it are missing; it waits no longer then, if it did.
  absl::Status Join(const JoinGroupRequest& request, const Hosts& hosts);

  // Nobody waits any more for the worker's answer.
  void Withdraw(const std::string& node);

  // The worker is gone, and with it the group that it is in.
  void NodeIsGone(const std::string& node, const std::string& how);

  // The job has been told of another placement, or may have been. The group is over if a rank has
  // another host, or the same one anew. Those who wait with other ranks than are assigned to them
  // now wait no more: returns them.
  std::vector<std::string> RanksAreHosted(const Hosts& hosts);

  // Forms a group of those who wait if they bring all ranks. `next_generation` gives a number that
  // no other group of the job ever has. Returns whether there is one now that was not there before.
  bool Form(const Hosts& hosts, const std::function<uint64_t()>& next_generation);

  bool Waits(const std::string& node) const { return waiting_.contains(node); }
  // The group that the worker is in, with its place; nullopt if it is in none.
  std::optional<JoinGroupResponse> GroupOf(const std::string& node) const;

  // The member hands out its value. ABORTED: the group is over. INVALID_ARGUMENT: an impossible
  // name, or too large a value. ALREADY_EXISTS: another value than it said before.
  // RESOURCE_EXHAUSTED beyond the limits.
  absl::Status Exchange(const ExchangeInGroupRequest& request);
  // All values by place; nullopt while some are missing; ABORTED if the group is over.
  absl::StatusOr<std::optional<ExchangeInGroupResponse>> Values(uint64_t generation,
                                                                const std::string& name) const;

  // Why this group is over; nullopt if it is not. INVALID_ARGUMENT for one who is no member of it.
  absl::StatusOr<std::optional<std::string>> IsOver(const std::string& node, uint64_t generation);
  std::optional<std::string> WhyOver(uint64_t generation) const;

  // 0: there is none.
  uint64_t generation() const { return generation_; }
  bool anybody() const { return generation_ != 0 || !waiting_.empty(); }

 private:
  struct Member {
    JoinGroupRequest request;
    // It has said something in the group.
    bool has_heard = false;
  };

  void End(const std::string& why);
  // REQUIRES: there is a group.
  Member* Find(const std::string& node);
  size_t PlaceOf(const std::string& node) const;
  static bool Holds(const JoinGroupRequest& request, const Hosts& hosts);

  // By node.
  std::map<std::string, JoinGroupRequest> waiting_;
  uint64_t generation_ = 0;
  // By place.
  std::vector<Member> members_;
  // By name, then place: nullopt while it is missing.
  std::map<std::string, std::vector<std::optional<std::string>>> exchanges_;
  size_t exchange_bytes_ = 0;
  // The last group that is over, and why.
  uint64_t former_generation_ = 0;
  std::string why_over_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_MEMBERSHIP_WORKER_GROUP_H_
