// A process's copy of the dense parameters.
#ifndef PAWL_WORKER_DENSE_DENSE_STATE_H_
#define PAWL_WORKER_DENSE_DENSE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "server/optimizer/update_rule.h"
#include "worker/dense/dense_layout.h"
#include "worker/dense/dense_memory.h"
#include "worker/process/interrupt.h"

namespace pawl {

// The weights and slots of all buckets. A bucket's version is the number of steps after which its
// parameters are. Versions of different buckets differ by at most 1 while a step's gradients
// travel.
//
// Weights have two buffers, for even and for odd versions: version v is read while version v + 1 is
// written, bucket by bucket. Two are enough:
//
// 1. A bucket gets version v + 2, which overwrites version v, from the gradients of all ranks of
//    this process for step v + 1 (or of ranks that ended it elsewhere and start later). None of
//    them reads version v any more.
// 2. A rank whose gradients of step v are still needed finds version v of every bucket: by 1, no
//    bucket has version v + 2, and a bucket of version v + 1 has version v in its other buffer. A
//    process that received its state from another one must therefore receive that buffer too for
//    buckets that are ahead: both versions are published, the older one first.
// 3. A rank whose gradients are no longer needed reads the oldest version that all buckets have
//    (VersionFor).
// 4. A rank that this process has taken over may be at a step for which others already have the
//    version two steps later. That version arrives when a group forms with the rank, and overwrites
//    what the rank would read. So the rank reads nothing before (AwaitSynchronized).
//
// Slots have one buffer. They belong to the newest version, or, with shares, SlotShares knows their
// versions.
//
// Everything lies in a DenseMemory, which the host may be unable to read.
//
// Thread-safe unless a method says otherwise. Published weights may be read without a lock.
class DenseState {
 public:
  // The version of a missing bucket.
  static constexpr int64_t kNone = -1;

  // All arguments outlive it. RESOURCE_EXHAUSTED without the memory.
  static absl::StatusOr<std::unique_ptr<DenseState>> Create(const DenseLayout& layout,
                                                            const UpdateRule& rule,
                                                            DenseMemory& memory);
  DenseState(const DenseState&) = delete;
  DenseState& operator=(const DenseState&) = delete;

  // For each bucket.
  std::vector<int64_t> versions() const;
  // The lowest version, which the whole state has. Nothing if there is no state.
  std::optional<uint64_t> steps() const;

  // The version that a rank reads at `step`: that one, or the oldest available one if it is gone
  // (the rank's former host died after the step's gradients had been reduced). Waits until there is
  // a state of at least version step - 1. Errors: the interrupt's reason, the reason of Fail,
  // DEADLINE_EXCEEDED.
  absl::StatusOr<uint64_t> VersionFor(uint64_t step, MonotonicDuration limit,
                                      const Interrupt& interrupt) const;
  // Waits until SetSynchronized has been called with at least this number.
  absl::Status AwaitSynchronized(uint64_t changes, MonotonicDuration limit,
                                 const Interrupt& interrupt) const;
  // Wait until one table, or all of them, have this version.
  absl::Status Await(size_t table, uint64_t version, MonotonicDuration limit,
                     const Interrupt& interrupt) const;
  absl::Status AwaitAll(uint64_t version, MonotonicDuration limit,
                        const Interrupt& interrupt) const;
  // The state is stale from now on: it is no longer readable, and waits continue until there is a
  // new one. REQUIRES: no rank reads.
  void Retire();
  bool retired() const;
  // Ends all waits permanently.
  void Fail(const absl::Status& reason);

  // Where the weights and slots lie.
  DenseMemory& memory() const { return memory_; }
  // REQUIRES: the table has the version, or the one after it.
  absl::Span<const float> Values(size_t table, uint64_t version) const;
  // The table's slots, which belong to its newest version. REQUIRES: nothing is published
  // meanwhile.
  absl::Span<const float> Slots(size_t table) const;

  // The remaining methods are for the one thread that writes.

  // A group has formed and its members have the same state. `changes`: the number of changes of
  // this process's ranks before that.
  void SetSynchronized(uint64_t changes);
  // Applies one update with scale * gradient, which lies in the same memory, and publishes the
  // bucket's next version.
  absl::Status Apply(size_t bucket, float scale, const float* gradient);
  // The position of the bucket's next update.
  UpdatePosition PositionOf(size_t bucket) const;
  // Memory for another version; Publish makes it readable.
  float* weights(size_t bucket, uint64_t version);
  float* slots(size_t bucket);
  void Publish(size_t bucket, uint64_t version);
  // Gives the bucket's contents this version without an update. REQUIRES: it has a lower one.
  absl::Status Relabel(size_t bucket, uint64_t version);
  // Discards the state, retired or not. REQUIRES: no rank reads.
  void Clear();

  // Steps that were counted without an update because all workers had died: updates = version -
  // lost_steps.
  uint64_t lost_steps() const;
  void set_lost_steps(uint64_t steps);

 private:
  template <typename Condition>
  absl::Status AwaitCondition(Condition condition, MonotonicDuration limit,
                              const Interrupt& interrupt) const PAWL_EXCLUDES(mu_);

  DenseState(const DenseLayout& layout, const UpdateRule& rule, DenseMemory& memory);
  Matrix WeightsOf(size_t bucket, uint64_t version);

  const DenseLayout& layout_;
  const UpdateRule& rule_;
  DenseMemory& memory_;
  // The blocks of each bucket, relative to its start.
  std::vector<std::vector<UpdatedRow>> rows_;

  std::shared_ptr<float> weights_[2];
  std::shared_ptr<float> slots_;

  mutable Mutex mu_;
  mutable CondVar changed_;
  std::vector<int64_t> versions_ PAWL_GUARDED_BY(mu_);
  // The oldest version that all buckets have.
  int64_t oldest_ PAWL_GUARDED_BY(mu_) = kNone;
  uint64_t lost_steps_ PAWL_GUARDED_BY(mu_) = 0;
  uint64_t synchronized_changes_ PAWL_GUARDED_BY(mu_) = 0;
  bool retired_ PAWL_GUARDED_BY(mu_) = false;
  absl::Status failure_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_DENSE_STATE_H_
