// The dense part of a model, trained by the workers among themselves.
#ifndef PAWL_WORKER_DENSE_DENSE_REPLICA_H_
#define PAWL_WORKER_DENSE_DENSE_REPLICA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/client.h"
#include "server/optimizer/update_rule.h"
#include "worker/collective/group_former.h"
#include "worker/dense/bucket_order.h"
#include "worker/dense/dense_layout.h"
#include "worker/dense/dense_memory.h"
#include "worker/dense/dense_state.h"
#include "worker/dense/dense_store.h"
#include "worker/dense/group_operations.h"
#include "worker/dense/local_gradients.h"
#include "worker/dense/slot_shares.h"
#include "worker/device/device.h"
#include "worker/process/interrupt.h"
#include "worker/train/dense_source.h"

namespace pawl {

// This process's copy of the dense parameters and slots, and the thread that keeps it equal to
// those of the other processes: after each step the gradients of all ranks are added up by
// collectives, and every process makes the same update.
//
// # A step
//
// Ranks hand in their gradients table by table while their backward passes go on. When all ranks of
// the process have given those of a bucket, their sum, in rank order, travels. When the sum over
// all processes is there, divided by V as the servers do, the bucket's parameters are updated, and
// the forward pass of the next step may read them while other buckets still travel.
//
// All members must start the buckets in one order, whichever are ready where. Behind the gradients
// of each bucket travels how far each member is with its own, so that all know when it has arrived
// what is ready with everybody, and choose the next one alike (BucketOrder): the first in the order
// of need that is ready with all; failing that, the one that will be. Then they wait until the
// bucket is ready with them too. Nobody waits in a circle: ranks wait for buckets of earlier steps
// alone, so each bucket of a step becomes ready everywhere once the step before is complete,
// whatever the order of this step's; and no bucket of a step is started before all buckets of the
// step before have ended here, since none is complete before.
//
// With each bucket travels a flag of each rank, so that all see whose gradients are in the sum.
//
// # A step with a sharded optimizer
//
// A bucket is cut into as many equal shares as there are members. Its gradients are reduced and
// scattered, so that each member has the sum of its own share; behind each share go the flags and
// how far the members are. Each member makes the update of its share alone, and the new weights are
// gathered by all; with them travels whether a member's sums were finite. The next bucket's
// operations come after both in all members' order. The parameters are what they would be without,
// bit for bit where the collective adds in the same order for both.
//
// The array of slots is as large as ever, but of each bucket the own share alone is worth
// something, until a step after which the parameters are written back: with its weights all slots
// are gathered, once more as many bytes for each slot of an element. What is kept of others' shares
// then is what the servers have (SlotShares).
//
// # Groups
//
// A group is formed with all ranks that the process hosts, once those that it is to have are taken
// over. Then members exchange their state, until all have the same and whoever has joined has what
// its ranks need (StateExchange); if nobody has anything, member 0 loads what the servers keep.
// When an operation fails, the group is over or the process's ranks change, a group is formed anew;
// the sums of what is not finished are made again from the gradients, which are kept until the step
// is finished, those of ranks that have moved on included. So are the updates of shares: one that
// no member has gathered has changed nothing.
//
// A rank that has ended step t elsewhere before it came here takes no part in dense step t: if its
// host lives, its contribution is there; if not, it is lost with that. A rank that is still to end
// a step that the dense parameters have left behind computes its sparse gradients again, with the
// oldest dense parameters that are there, and its dense ones are not used. The sum is divided by V
// all the same.
//
// # Where it lies
//
// Parameters, slots, gradients and their sums lie in the memory of Options::device. Where that is
// not the host's, a bucket is added up over the ranks, summed over the processes and updated there,
// if the group's collective takes the device's memory (NCCL); one that does not (Gloo) is given the
// sum in the host's memory, and its result is copied back. Through the host's memory goes what is
// rare: what is written back, and what a new group's members give each other.
//
// If all workers die at once, the parameters are those of the last write-back, at most
// write_back_steps old, while the servers' sparse part goes on where it was.
//
// Thread-safe, but for what is said of a rank's own thread.
class DenseReplica final : public DenseSource {
 public:
  struct Options {
    uint32_t logical_workers = 1;
    // Of each dense table of the model, in the order of need.
    std::vector<uint64_t> elements;
    Optimizer optimizer;
    // 0: DefaultBucketBytes.
    uint64_t bucket_bytes = 0;
    // Each member makes the updates of its share alone. Needs an elementwise rule, and is the same
    // for all members.
    bool sharded = false;
    // With that: whether WriteBack is to be called after so many steps. By the replica's thread,
    // once a rank has begun, and by ranks. REQUIRES: not null if sharded.
    std::function<bool(uint64_t steps)> is_write_back;
    // In whose memory all of it lies; outlives the replica. Null: in the host's, as it must be if
    // sharded.
    Device* device = nullptr;
    // How long a collective operation may wait for the slowest member's gradients.
    MonotonicDuration timeout = std::chrono::minutes(10);
    // How long to wait before a group is asked for again after a refusal or a failure.
    MonotonicDuration retry_interval = std::chrono::milliseconds(100);
    // How long a member whose ranks have changed stays in the group for others' sake at most: what
    // has ended here may still be on its way to them over this member's connections. It goes when
    // somebody else has ended the group.
    MonotonicDuration leave_limit = std::chrono::milliseconds(100);
    // From where the parameters come that nobody has: DenseStore::Load.
    std::function<absl::StatusOr<uint64_t>(const Interrupt& interrupt, DenseState& state)> load;
  };

  // `former` outlives it. INVALID_ARGUMENT for an impossible optimizer, or one that cannot be
  // sharded, or a sharded one that is not to lie in the host's memory; RESOURCE_EXHAUSTED if the
  // device has not as much memory.
  static absl::StatusOr<std::unique_ptr<DenseReplica>> Create(Options options, GroupFormer& former);
  // Leaves the group. REQUIRES: nobody waits for anything here.
  ~DenseReplica() override;

  // The process is to host the rank, and takes it over.
  void Expect(uint32_t rank, uint64_t incarnation);
  // It has it, at this step.
  absl::Status Begin(uint32_t rank, uint64_t first_step) {
    return gradients_.Begin(rank, first_step);
  }
  // It has it no more; what it gave for `next_step` and later ones its successor gives again.
  void End(uint32_t rank, uint64_t next_step);
  // By the thread of a rank that has begun, before its first step: waits until a group with the
  // rank has formed, and its members have the same state. What it would read earlier may be written
  // over while it does (dense_state.h).
  absl::Status AwaitTakenIn(uint32_t rank, MonotonicDuration limit,
                            const Interrupt& interrupt) const {
    return state_->AwaitTakenIn(gradients_.ChangesAtBegin(rank), limit, interrupt);
  }

  absl::StatusOr<std::unique_ptr<DenseView>> At(uint64_t step, Session& session,
                                                MonotonicDuration timeout) override;

  // By the thread of a rank that has begun, in each step: where its gradient of a dense table goes,
  // in the memory that the parameters are in too, and that it is there; or that the rank has no
  // samples. REQUIRES of both: all tables of the step have been awaited.
  absl::Span<float> GradientBuffer(uint32_t rank, size_t table) {
    return gradients_.Buffer(rank, table);
  }
  void Give(uint32_t rank, uint64_t step, size_t table) { gradients_.Give(rank, step, table); }
  void GiveNothing(uint32_t rank, uint64_t step) { gradients_.GiveNothing(rank, step); }

  // Waits until the parameters are after so many steps, all of them.
  absl::Status AwaitSteps(uint64_t steps, MonotonicDuration limit,
                          const Interrupt& interrupt) const {
    return state_->AwaitAll(steps, limit, interrupt);
  }
  // The same for one table.
  absl::Status AwaitTable(size_t table, uint64_t steps, MonotonicDuration limit,
                          const Interrupt& interrupt) const {
    return state_->Await(table, steps, limit, interrupt);
  }
  // A rank's part of writing the parameters back; nothing if they are not, or no more, after so
  // many steps exactly, or if a sharded replica has not been told that they would be. Errors are
  // those of the device. REQUIRES: by the thread of a rank that has given its gradients of step
  // `steps` - 1 and not of the next.
  absl::StatusOr<std::optional<DenseStore::WriteBackPart>> WriteBack(const DenseStore& store,
                                                                     uint64_t steps,
                                                                     uint32_t rank) const;

  // Whether no group takes this process as it is (GroupFormer::Form), while others may go on
  // without it. By then whatever is waited for here ends with the reason.
  bool refused() const { return refused_; }

  // Whether all of it lies in the host's memory.
  bool is_of_host() const { return memory_->IsOfHost(); }
  const DenseLayout& layout() const { return layout_; }
  const UpdateRule& rule() const { return *rule_; }

 private:
  // A bucket on its way.
  struct Flight {
    size_t bucket = 0;
    uint64_t step = 0;
    // Over this process's ranks, and over all: the bucket's gradients, the ranks' flags, how many
    // buckets from the last one on are ready with each member (a whole number below 2^24, so
    // exact); and room for a number more. In the memory of the parameters, with room for the
    // largest bucket. `scattered`: all of that for each share, where it is sharded; `reduced` is
    // the own share's then.
    std::shared_ptr<float> sum;
    std::shared_ptr<float> reduced;
    std::vector<float> scattered;
    // What is added up to `sum`, while it is.
    std::vector<std::shared_ptr<float>> contributions;
    // Whether the collective takes the host's memory alone, and `sum` is not in it: both in the
    // host's memory then.
    bool through_host = false;
    std::vector<float> host_sum;
    std::vector<float> host_reduced;
    // What follows the gradients, of the sum, and then of what it is reduced to.
    std::vector<float> tail;
    // Of a share: the new weights, whether the sums were not finite, and in a step of a write-back
    // the slots, packed.
    std::vector<float> updated;
    std::vector<float> gathered;
    std::future<absl::Status> done;
  };

  DenseReplica(Options options, std::unique_ptr<const UpdateRule> rule,
               std::unique_ptr<DenseMemory> memory, GroupFormer& former);
  // All that may fail, before the thread starts.
  absl::Status Initialize();
  absl::Status AllocateFlights();

  // The thread.
  void Drive();
  absl::StatusOr<std::vector<GroupRank>> AwaitRanks();
  // Until the group is over, which is why it returns.
  absl::Status TakePart(Collective& collective);
  absl::Status Synchronize(GroupOperations& group);
  absl::Status RunSteps(GroupOperations& group);
  // The first bucket from which on all are ready here, or have been started.
  size_t ReadyFrom(uint64_t step);
  // The same with all members when the flight, which has arrived, was started.
  size_t ReadyWithAllFrom(const GroupOperations& group, const Flight& flight) const;
  absl::Status AwaitComplete(const GroupOperations& group, size_t bucket, uint64_t step);
  // Of the bucket's elements, those whose sum comes here; and what is behind them: the ranks'
  // flags, how far members are.
  size_t SummedElements(const GroupOperations& group, size_t bucket) const;
  size_t TrailerElements(const GroupOperations& group) const {
    return options_.logical_workers + group.size();
  }
  absl::Status StartBucket(GroupOperations& group, size_t bucket, uint64_t step, Flight& flight);
  // When its operation has ended: what is behind the gradients comes to the host. They come to
  // where they are needed in Update, when the next bucket is under way.
  absl::Status TakeTail(const GroupOperations& group, Flight& flight);
  absl::Status CheckFlags(const Flight& flight);
  absl::Status NotFinite(const Flight& flight);
  // REQUIRES: not sharded.
  absl::StatusOr<bool> IsFinite(const Flight& flight);
  absl::Status Update(const Flight& flight);
  // The rest is for shares: how much of a bucket is gathered from each member; the update of the
  // own share, which starts the gathering; the end of that.
  size_t GatheredElements(const GroupOperations& group, const Flight& flight) const;
  void UpdateShare(GroupOperations& group, Flight& flight);
  absl::Status TakeShares(GroupOperations& group, Flight& flight);

  // OK, or why this member has to leave the group.
  absl::Status StillIn(const Collective& collective) const;
  // Waits until the group is over for others, leave_limit at most.
  void LetOthersEnd(const Collective& collective) const;
  // There is no state any more. REQUIRES: nobody reads.
  void ClearState();
  // The process cannot go on.
  absl::Status Fatal(const absl::Status& status);

  const Options options_;
  const std::unique_ptr<const UpdateRule> rule_;
  const std::unique_ptr<DenseMemory> memory_;
  const DenseLayout layout_;
  GroupFormer& former_;
  // Constant after Create.
  std::unique_ptr<DenseState> state_;
  LocalGradients gradients_;
  // Null unless the optimizer is sharded. Of the thread alone.
  std::unique_ptr<SlotShares> shares_;
  // No rank is expected between the end of the last one and that the state is retired.
  Mutex replica_map_mu_;

  // Of the thread alone. LocalGradients::changes() when the group was formed.
  uint64_t changes_ = 0;
  bool failed_ = false;
  // Of the step under way, in this group: what is left to travel, and ReadyFrom as far as it was
  // found out.
  BucketOrder order_;
  size_t ready_from_ = 0;
  Flight flights_[2];

  std::atomic<bool> refused_{false};
  Interrupt stop_;
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_DENSE_REPLICA_H_
