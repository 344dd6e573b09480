// A process's replica of the dense part of a model, which the workers train among themselves.
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
#include "worker/dense/dense_layout.h"
#include "worker/dense/dense_memory.h"
#include "worker/dense/dense_source.h"
#include "worker/dense/dense_state.h"
#include "worker/dense/dense_store.h"
#include "worker/dense/group_operations.h"
#include "worker/dense/local_gradients.h"
#include "worker/dense/slot_shares.h"
#include "worker/device/device.h"
#include "worker/process/interrupt.h"

namespace pawl {

// A replica of the dense parameters and slots, and the thread that keeps it equal to those of the
// other processes: after each step, collectives add up the gradients of all ranks, and every
// process applies the same update.
//
// # A step
//
// Ranks hand in their gradients table by table during their backward passes. When all ranks of the
// process have handed in those of a bucket, their sum, in rank order, travels. When the sum over
// all processes has arrived, divided by V as the servers do, the bucket's parameters are updated.
// The next forward pass may read them while other buckets still travel.
//
// All members must start the buckets in the same order, although different ones may be ready.
// Behind each bucket's gradients travels the progress of each member. When the bucket arrives, all
// members therefore know what is ready everywhere and choose the same next bucket (BucketOrder):
// the first one in the order of need that is ready with all members, or else the one that will be
// ready first. They then wait until that bucket is ready locally. This cannot deadlock: ranks wait
// only for buckets of earlier steps, so each bucket of a step becomes ready everywhere once the
// previous step is complete; and no bucket of a step starts before all buckets of the previous step
// have ended here, because none is complete earlier.
//
// A flag for each rank travels with each bucket, so that all members see whose gradients are in the
// sum.
//
// # A step with a sharded optimizer
//
// A bucket is split into equal shares, one per member. Its gradients are reduced and scattered, so
// that each member has the sum of its own share; the flags and the progress follow each share. Each
// member updates its share, and the new weights are gathered by all, together with a flag that a
// member's sums were finite. In the order of all members, the next bucket's operations follow both
// of these. The parameters equal those of the unsharded path, bit for bit if the collective adds in
// the same order for both.
//
// Each process keeps an array of all slots, but only the slots of its own shares are current. In a
// step that writes the parameters back, all slots are gathered along with the weights. Afterwards
// the retained slots of other shares equal those on the servers (SlotShares).
//
// # Groups
//
// A group forms with all ranks that the process hosts, once it has taken them over. Members then
// exchange their state until all have the same one and every joiner has what its ranks need
// (StateExchange). If no member has state, member 0 loads it from the servers. When an operation
// fails, the group ends or the process's ranks change, a new group forms. Unfinished sums are
// computed again from the gradients, which are kept until the step is finished, including those of
// ranks that have moved. Unfinished updates of shares are repeated too: an update that no member
// has gathered has changed nothing.
//
// A rank that ended step t elsewhere before it moved here takes no part in dense step t. If its
// former host is alive, that host has its contribution; otherwise the contribution is lost. A rank
// that still has to end a step that the dense parameters have passed computes its sparse gradients
// again with the oldest available dense parameters, and its dense gradients are ignored. The sum is
// divided by V in any case.
//
// # Memory
//
// Parameters, slots, gradients and sums lie in the memory of Options::device. If that is not the
// host's, a bucket is summed over the ranks and the processes and updated there, provided that the
// group's collective accepts device memory (NCCL). Otherwise (Gloo) the sum is copied to the host
// and the result back. Only rare transfers go through the host's memory: write-backs, and the state
// exchange of a new group.
//
// If all workers die at once, the parameters revert to the last write-back, at most
// write_back_steps old, while the servers' sparse part continues from where it was.
//
// Thread-safe, except for methods that belong to a rank's own thread.
class DenseReplica final : public DenseSource {
 public:
  struct Options {
    uint32_t logical_workers = 1;
    // For each dense table of the model, in the order of need.
    std::vector<uint64_t> elements;
    Optimizer optimizer;
    // 0: DefaultBucketBytes.
    uint64_t bucket_bytes = 0;
    // Each member updates only its share. Needs an elementwise rule. The same for all members.
    bool sharded = false;
    // With sharding: whether WriteBack will be called after this many steps. Called by ranks, and
    // by the replica's thread once a rank has started. REQUIRES: not null if sharded.
    std::function<bool(uint64_t steps)> is_write_back;
    // The device whose memory holds everything; outlives the replica. Null: the host's, as sharding
    // requires.
    Device* device = nullptr;
    // How long a collective operation may wait for the slowest member's gradients.
    MonotonicDuration timeout = std::chrono::minutes(10);
    // Delay before the next attempt to form a group after a refusal or a failure.
    MonotonicDuration retry_interval = std::chrono::milliseconds(100);
    // How long a member whose ranks have changed stays in the group at most. What has ended here
    // may still be on its way to others over this member's connections. It leaves early when
    // another member has ended the group.
    MonotonicDuration leave_limit = std::chrono::milliseconds(100);
    // Loads parameters that no member has: DenseStore::Load.
    std::function<absl::StatusOr<uint64_t>(const Interrupt& interrupt, DenseState& state)> load;
  };

  // `former` outlives it. INVALID_ARGUMENT for an impossible optimizer, one that cannot be sharded,
  // or a sharded one outside the host's memory. RESOURCE_EXHAUSTED if the device lacks the memory.
  static absl::StatusOr<std::unique_ptr<DenseReplica>> Create(Options options, GroupFormer& former);
  // Leaves the group. REQUIRES: no call is waiting.
  ~DenseReplica() override;

  // The process will host the rank and is taking it over.
  void Expect(uint32_t rank, uint64_t incarnation);
  // The process hosts the rank, from this step on.
  absl::Status Begin(uint32_t rank, uint64_t first_step) {
    return gradients_.Begin(rank, first_step);
  }
  // The process no longer hosts the rank. Its successor repeats the gradients of `next_step` and
  // later.
  void End(uint32_t rank, uint64_t next_step);
  // Called by the thread of a started rank before its first step. Waits until a group with the rank
  // has formed and its members have the same state. Until then the state may be overwritten while
  // it is read (dense_state.h).
  absl::Status AwaitSynchronized(uint32_t rank, MonotonicDuration limit,
                                 const Interrupt& interrupt) const {
    return state_->AwaitSynchronized(gradients_.ChangesAtBegin(rank), limit, interrupt);
  }

  absl::StatusOr<std::unique_ptr<DenseView>> At(uint64_t step, Session& session,
                                                MonotonicDuration timeout) override;

  // Called by the thread of a started rank in each step. GradientBuffer returns where its gradient
  // of a dense table goes, in the same memory as the parameters; MarkReady hands that in; SkipStep
  // says that the rank has no samples. REQUIRES: all tables of the step have been awaited.
  absl::Span<float> GradientBuffer(uint32_t rank, size_t table) {
    return gradients_.Buffer(rank, table);
  }
  void MarkReady(uint32_t rank, uint64_t step, size_t table) {
    gradients_.MarkReady(rank, step, table);
  }
  void SkipStep(uint32_t rank, uint64_t step) { gradients_.SkipStep(rank, step); }

  // Waits until all parameters are at this version.
  absl::Status AwaitSteps(uint64_t steps, MonotonicDuration limit,
                          const Interrupt& interrupt) const {
    return state_->AwaitAll(steps, limit, interrupt);
  }
  // Waits for one table in the same way.
  absl::Status AwaitTable(size_t table, uint64_t steps, MonotonicDuration limit,
                          const Interrupt& interrupt) const {
    return state_->Await(table, steps, limit, interrupt);
  }
  // Returns a rank's part of writing the parameters back. Returns nothing if they are not at
  // exactly this version, or if a sharded replica was not told of the write-back. Errors are those
  // of the device. REQUIRES: called by the thread of a rank that has handed in its gradients of
  // step `steps` - 1 but not of the next step.
  absl::StatusOr<std::optional<DenseStore::WriteBackPart>> WriteBack(const DenseStore& store,
                                                                     uint64_t steps,
                                                                     uint32_t rank) const;

  // Whether no group accepts this process as it is (GroupFormer::Form), while others may continue
  // without it. By then every wait here ends with the reason.
  bool refused() const { return refused_; }

  // Whether everything lies in the host's memory.
  bool is_in_host_memory() const { return memory_->IsHostMemory(); }
  const DenseLayout& layout() const { return layout_; }
  const UpdateRule& rule() const { return *rule_; }

 private:
  // A bucket in transit.
  struct Flight {
    size_t bucket = 0;
    uint64_t step = 0;
    // `sum` is over this process's ranks, `reduced` over all: the bucket's gradients, the ranks'
    // flags, and for each member how many buckets, from the last one on, are ready (a whole number
    // below 2^24, hence exact); with room for one more number. Both lie in the parameters' memory,
    // with room for the largest bucket. With sharding, `scattered` holds all of that for each
    // share, and `reduced` is this member's share.
    std::shared_ptr<float> sum;
    std::shared_ptr<float> reduced;
    std::vector<float> scattered;
    // The gradients that are being added to `sum`.
    std::vector<std::shared_ptr<float>> contributions;
    // Whether the collective needs host memory and `sum` is not in it; then these two are used.
    bool through_host = false;
    std::vector<float> host_sum;
    std::vector<float> host_reduced;
    // The numbers behind the gradients: first those of the sum, later those of the reduced sum.
    std::vector<float> tail;
    // With sharding: the new weights, whether the sums were not finite, and in a write-back step
    // the slots, packed.
    std::vector<float> updated;
    std::vector<float> gathered;
    std::future<absl::Status> done;
  };

  DenseReplica(Options options, std::unique_ptr<const UpdateRule> rule,
               std::unique_ptr<DenseMemory> memory, GroupFormer& former);
  // Everything that may fail, before the thread starts.
  absl::Status Initialize();
  absl::Status AllocateFlights();

  // Runs on the thread.
  void Drive();
  absl::StatusOr<std::vector<GroupRank>> AwaitRanks();
  // Returns when the group has ended, with the reason.
  absl::Status RunGroup(Collective& collective);
  absl::Status Synchronize(GroupOperations& group);
  absl::Status RunSteps(GroupOperations& group);
  // The first bucket from which on all are ready here or have been started.
  size_t ReadyFrom(uint64_t step);
  // The same for all members, as of the start of the flight, which has arrived.
  size_t ReadyWithAllFrom(const GroupOperations& group, const Flight& flight) const;
  absl::Status AwaitComplete(const GroupOperations& group, size_t bucket, uint64_t step);
  // The number of the bucket's elements whose sum arrives here; and the number of elements behind
  // them (the ranks' flags and the members' progress).
  size_t SummedElements(const GroupOperations& group, size_t bucket) const;
  size_t TrailerElements(const GroupOperations& group) const {
    return options_.logical_workers + group.size();
  }
  absl::Status StartBucket(GroupOperations& group, size_t bucket, uint64_t step, Flight& flight);
  // After the flight's operation: copies what follows the gradients to the host. Update copies the
  // gradients to where they are needed, while the next bucket travels.
  absl::Status TakeTail(const GroupOperations& group, Flight& flight);
  absl::Status CheckFlags(const Flight& flight);
  absl::Status FailNotFinite(const Flight& flight);
  // REQUIRES: not sharded.
  absl::StatusOr<bool> IsFinite(const Flight& flight);
  absl::Status Update(const Flight& flight);
  // With sharding: how much of a bucket is gathered from each member; the update of this member's
  // share, which starts the gather; and the end of the gather.
  size_t GatheredElements(const GroupOperations& group, const Flight& flight) const;
  void UpdateShare(GroupOperations& group, Flight& flight);
  absl::Status TakeShares(GroupOperations& group, Flight& flight);

  // OK, or why this member has to leave the group.
  absl::Status CheckMembership(const Collective& collective) const;
  // Waits until the others have ended the group, at most leave_limit.
  void AwaitGroupEnd(const Collective& collective) const;
  // Discards the state. REQUIRES: no rank reads.
  void ClearState();
  // Records an error after which the process cannot continue.
  absl::Status Fail(const absl::Status& status);

  const Options options_;
  const std::unique_ptr<const UpdateRule> rule_;
  const std::unique_ptr<DenseMemory> memory_;
  const DenseLayout layout_;
  GroupFormer& former_;
  // Constant after Create.
  std::unique_ptr<DenseState> state_;
  LocalGradients gradients_;
  // Null unless the optimizer is sharded. Used by the thread alone.
  std::unique_ptr<SlotShares> shares_;
  // Held while ranks change: no rank is expected between the end of the last one and the retirement
  // of the state.
  Mutex ranks_mu_;

  // Used by the thread alone: LocalGradients::changes() when the group formed.
  uint64_t changes_ = 0;
  bool failed_ = false;
  // The current step in this group: the buckets that are left, and a cached ReadyFrom.
  BucketOrder order_;
  size_t ready_from_ = 0;
  Flight flights_[2];

  std::atomic<bool> refused_{false};
  Interrupt stop_;
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_DENSE_REPLICA_H_
