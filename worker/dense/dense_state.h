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

// The weights and slots of all buckets. A bucket's version is the number of steps that its
// parameters are after; those of different buckets differ by at most 1 while a step's gradients are
// on their way.
//
// Weights have two places, for even and for odd versions: version v is read while version v + 1 is
// written, bucket by bucket. That is enough, since:
//
// 1. A bucket gets version v + 2, which is written over version v, from the gradients of all ranks
// of this process for step
//    v + 1 (or of those that have ended it elsewhere: they begin later). So none of them reads
//    version v any more.
// 2. A rank whose gradients of step v are still needed somewhere finds version v of every bucket:
// none has version v + 2
//    yet, by 1, and a bucket of version v + 1 has version v in its other place. That holds for a
//    process that has its state from another one only if it gets, of buckets ahead of others, that
//    place too: both versions are published then, the older one first.
// 3. A rank whose gradients are needed no more reads the oldest version of which all buckets are
// there (VersionFor).
//
// 4. A rank that this process has taken over may be at a step of which others have the version two
// steps later already; that
//    comes when a group forms with the rank, over what the rank would have read. So it reads
//    nothing before (AwaitTakenIn).
//
// Slots have one place; they are the newest version's, or, where shares are updated, SlotShares
// knows which of them are.
//
// All of it lies in a DenseMemory, which may be none that the host can read.
//
// Thread-safe, where the methods do not say otherwise. Published weights may be read without a
// lock.
class DenseState {
 public:
  // Of a bucket that is not there.
  static constexpr int64_t kNone = -1;

  // All of them outlive it. RESOURCE_EXHAUSTED without the memory.
  static absl::StatusOr<std::unique_ptr<DenseState>> Create(const DenseLayout& layout,
                                                            const UpdateRule& rule,
                                                            DenseMemory& memory);
  DenseState(const DenseState&) = delete;
  DenseState& operator=(const DenseState&) = delete;

  // Of each bucket.
  std::vector<int64_t> versions() const;
  // The lowest of them: the steps that the whole is after. Nothing if there is no state.
  std::optional<uint64_t> steps() const;

  // The version that a rank reads at `step`: that one, or, where it is gone already (the rank's
  // former host died after the step's gradients had been reduced), the oldest there is. Waits until
  // there is a state after step - 1 steps at least. The interrupt's reason, that of Fail,
  // DEADLINE_EXCEEDED.
  absl::StatusOr<uint64_t> VersionFor(uint64_t step, MonotonicDuration limit,
                                      const Interrupt& interrupt) const;
  // Waits until SetTakenIn has been called with this number or a higher one.
  absl::Status AwaitTakenIn(uint64_t changes, MonotonicDuration limit,
                            const Interrupt& interrupt) const;
  // Waits until the table, or all of them, have this version.
  absl::Status Await(size_t table, uint64_t version, MonotonicDuration limit,
                     const Interrupt& interrupt) const;
  absl::Status AwaitAll(uint64_t version, MonotonicDuration limit,
                        const Interrupt& interrupt) const;
  // What is there grows old from now on: nobody gets to see it any more, and the waits go on until
  // there is something else. REQUIRES: nobody reads.
  void Retire();
  bool retired() const;
  // Ends all waits, for good.
  void Fail(const absl::Status& reason);

  // Where the weights and slots lie.
  DenseMemory& memory() const { return memory_; }
  // REQUIRES: the table has the version, or the one after it.
  absl::Span<const float> Values(size_t table, uint64_t version) const;
  // The table's slots, which belong to its newest version. REQUIRES: nothing is published
  // meanwhile.
  absl::Span<const float> Slots(size_t table) const;

  // The rest is for one thread, the one that writes.

  // A group has formed, and its members have the same state; so many changes of this process's
  // ranks were made before.
  void SetTakenIn(uint64_t changes);
  // Gives the bucket its next version by one update with scale * gradient, which lies in the same
  // memory, and publishes it.
  absl::Status Apply(size_t bucket, float scale, const float* gradient);
  // Where the bucket's next update stands.
  UpdatePosition PositionOf(size_t bucket) const;
  // Memory to put another version into; Publish makes it readable.
  float* weights(size_t bucket, uint64_t version);
  float* slots(size_t bucket);
  void Publish(size_t bucket, uint64_t version);
  // What the bucket has becomes this version, without an update. REQUIRES: it has a lower one.
  absl::Status Relabel(size_t bucket, uint64_t version);
  // There is no state any more, retired or not. REQUIRES: nobody reads.
  void Clear();

  // Steps that were counted but brought no update, because all workers had died: updates = version
  // - lost_steps.
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
  // The blocks of each bucket, from its beginning.
  std::vector<std::vector<UpdatedRow>> rows_;

  std::shared_ptr<float> weights_[2];
  std::shared_ptr<float> slots_;

  mutable Mutex mu_;
  mutable CondVar changed_;
  std::vector<int64_t> versions_ PAWL_GUARDED_BY(mu_);
  // The oldest version of which all buckets are there.
  int64_t oldest_ PAWL_GUARDED_BY(mu_) = kNone;
  uint64_t lost_steps_ PAWL_GUARDED_BY(mu_) = 0;
  uint64_t taken_in_ PAWL_GUARDED_BY(mu_) = 0;
  bool retired_ PAWL_GUARDED_BY(mu_) = false;
  absl::Status failure_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_DENSE_STATE_H_
