// How the members of a new group come to have the same dense parameters.
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

// What one member of a group does before the group's first step. All members do it together:
//
// 1. If nobody has anything, member 0 loads what the servers keep.
// 2. Each bucket's weights go from the member with the highest version (of those the lowest place)
// to those with lower ones:
//    that serves whoever has joined, and whoever lacks the end of a step that others have. A member
//    that is further behind than one update cannot go on: its ranks may be reading.
// 3. Whoever has nothing gets, of a bucket that is ahead of others, the version before it too: its
// ranks may be those whose
//    gradients the others wait for.
// 4. The slots of a bucket come with its weights. Where members update shares alone, all slots go
// to all: each share's from
//    whoever has made its updates, and those of a share whose member is gone as they were at the
//    last write-back or change of the group. The log says how many steps before, as far back as the
//    last change of the group. Weights are never older.
// 5. Steps that no rank is before any more, and whose gradients nobody has, brought no update: what
// there is becomes that of
//    the first step that a rank contributes to, and all count the same lost steps.
//
// What is here of a bucket changes when all of it has come, and the count of lost steps when all
// buckets have: whatever breaks meanwhile, a bucket is of one version, and the one before is there
// if it was. Who has the newest version gets no weights written, and no slots that it has: its
// ranks may be reading.
//
// All of it travels through the host's memory, wherever the state lies: groups form rarely.
//
// For the thread that writes the state, once.
class StateExchange {
 public:
  // From where the parameters come that nobody has: publishes all buckets, and says after how many
  // steps they are.
  using Load = std::function<absl::StatusOr<uint64_t>()>;

  // `shares`: null where every member makes all updates; the same for all members. All of it
  // outlives this.
  StateExchange(const DenseLayout& layout, DenseState& state, SlotShares* shares,
                GroupOperations& group)
      : layout_(layout), state_(state), shares_(shares), group_(group) {}

  // `earliest`: the first step to which a rank of any member contributes; the same for all members.
  // Errors: the group's, those of `load`, the memory's, ABORTED for a member that is too far
  // behind.
  absl::Status Run(uint64_t earliest, const Load& load);
  // With an error: whether this process cannot go on, in another group either.
  bool failed() const { return failed_; }

 private:
  // Who has a bucket's newest version, and what this member is to do with it.
  struct Newest {
    size_t source = 0;
    int64_t version = 0;
    // Of the steps before it. Of two members that have it one may have got it in an exchange that
    // broke, and not have counted yet: the larger number.
    int64_t lost_steps = 0;
    bool all_have_it = true;
    bool somebody_has_nothing = false;
    bool takes = false;
    bool has_nothing = false;
  };

  absl::Status GatherVersions();
  int64_t VersionAt(size_t place, size_t bucket) const {
    return all_[place * (layout_.buckets().size() + 1) + bucket];
  }
  int64_t LostStepsAt(size_t place) const { return VersionAt(place, layout_.buckets().size()); }
  bool NobodyHasAny() const;
  absl::Status LoadState(uint64_t earliest, const Load& load);

  Newest NewestOf(size_t bucket) const;
  // `lowest`: of the newest versions of all buckets. `steps_before` grows to how old the oldest
  // slots were.
  absl::Status ExchangeBucket(size_t bucket, const Newest& newest, int64_t lowest,
                              int64_t& steps_before);
  // Those of the source.
  absl::Status ReceiveWeights(size_t bucket, uint64_t version, const Newest& newest,
                              std::vector<float>& weights);
  // `change`: puts into the state what has come.
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
  // Of each member: its buckets' versions, its lost steps.
  std::vector<int64_t> all_;
  // With shares: SlotShares::Describe of each member.
  std::vector<int64_t> descriptions_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_STATE_EXCHANGE_H_
