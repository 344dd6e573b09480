// How the members of a new group reach the same dense parameters.
#ifndef PAWL_WORKER_DENSE_STATE_EXCHANGE_H_
#define PAWL_WORKER_DENSE_STATE_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/dense/dense_layout.h"
#include "worker/dense/dense_state.h"
#include "worker/dense/group_operations.h"
#include "worker/dense/slot_shares.h"

namespace pawl {

// The exchange of state before a group's first step. All members take part:
//
// 1. If no member has state, member 0 loads it from the servers.
// 2. Each bucket's weights go from the member with the highest version (the lowest place among
//    several) to those with lower versions: to joiners, and to members that missed the end of a
//    step. A member that is more than one update behind cannot continue, because its ranks may be
//    reading.
// 3. A member without state also gets the version before for a bucket that is ahead of others: its
//    ranks may be those whose gradients the others wait for.
// 4. The slots of a bucket travel with its weights. With shares, all slots go to all members: each
//    share's from the member that made its updates; those of a lost member's share as of the last
//    write-back or group change. The log says how many steps older these are, counted back to the
//    last group change. Weights are never older.
// 5. Steps that no rank still has to do, and whose gradients no member has, brought no update: the
//    state is relabelled to the first step to which a rank contributes, and all members count the
//    same lost steps.
//
// The local copy of a bucket changes when all of the bucket has arrived, and the count of lost
// steps when all buckets have. Whatever breaks meanwhile, a bucket has a single version, and keeps
// the version before if it had one. A member with the newest version gets no weights written, and
// no slots that it already has, because its ranks may be reading.
//
// Everything travels through the host's memory, wherever the state lies: groups form rarely.
//
// Used once, by the thread that writes the state.
class StateExchange {
 public:
  // Loads parameters that no member has: publishes all buckets and returns their version.
  using Load = std::function<absl::StatusOr<uint64_t>()>;

  // `shares`: null if every member makes all updates; the same for all members. All arguments
  // outlive this.
  StateExchange(const DenseLayout& layout, DenseState& state, SlotShares* shares,
                GroupOperations& group)
      : layout_(layout), state_(state), shares_(shares), group_(group) {}

  // `earliest`: the first step to which a rank of any member contributes; the same for all members.
  // Errors are those of the group, of `load` and of the memory, and ABORTED for a member that is
  // too far behind.
  absl::Status Run(uint64_t earliest, const Load& load);
  // After an error: whether this process cannot continue in another group either.
  bool failed() const { return failed_; }

 private:
  // Where the newest version of a bucket is, and what this member does with it.
  struct Newest {
    size_t source = 0;
    int64_t version = 0;
    // Lost steps before that version. If two members have it and disagree, the larger number: one
    // may have received it in an exchange that broke before it counted.
    int64_t lost_steps = 0;
    bool is_everywhere = true;
    bool any_member_lacks_it = false;
    bool takes = false;
    bool is_missing_here = false;
  };

  absl::Status GatherVersions();
  int64_t VersionAt(size_t place, size_t bucket) const {
    return all_[place * (layout_.buckets().size() + 1) + bucket];
  }
  int64_t LostStepsAt(size_t place) const { return VersionAt(place, layout_.buckets().size()); }
  bool IsStateMissing() const;
  absl::Status LoadState(uint64_t earliest, const Load& load);

  Newest NewestOf(size_t bucket) const;
  // `lowest`: the lowest of the buckets' newest versions. Raises `steps_before` to the age of the
  // oldest slots used.
  absl::Status ExchangeBucket(size_t bucket, const Newest& newest, int64_t lowest,
                              int64_t& steps_before);
  // The weights of the source.
  absl::Status ReceiveWeights(size_t bucket, uint64_t version, const Newest& newest,
                              std::vector<float>& weights);
  // `change`: applies what has arrived to the state.
  absl::Status ReceiveSlots(size_t bucket, const Newest& newest,
                            std::function<absl::Status()>& change);
  absl::Status ReceiveShares(size_t bucket, const Newest& newest, int64_t& steps_before,
                             std::function<absl::Status()>& change);
  absl::Status CountLostSteps(uint64_t earliest);

  const DenseLayout& layout_;
  DenseState& state_;
  SlotShares* const shares_;
  GroupOperations& group_;
  bool failed_ = false;
  // For each member: its buckets' versions and its lost steps.
  std::vector<int64_t> all_;
  // With shares: SlotShares::Describe of each member.
  std::vector<int64_t> descriptions_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_STATE_EXCHANGE_H_
