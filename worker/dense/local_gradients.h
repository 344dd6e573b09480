// What the ranks of a process have contributed to a step of the dense parameters.
#ifndef PAWL_WORKER_DENSE_LOCAL_GRADIENTS_H_
#define PAWL_WORKER_DENSE_LOCAL_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "proto/scheduler.pb.h"
#include "worker/dense/dense_layout.h"
#include "worker/dense/dense_memory.h"
#include "worker/device/device.h"

namespace pawl {

// The ranks that this process hosts, and memory for the gradients of each. A rank's gradients of
// step t stay until its step t + 1, which it begins when all buckets have version t + 1 only: so
// the sum of a bucket can be made again as long as it may be needed, and a rank that leaves leaves
// its contribution behind.
//
// Thread-safe.
class LocalGradients {
 public:
  // The gradients lie in `memory`. Both outlive it.
  LocalGradients(const DenseLayout& layout, DenseMemory& memory)
      : layout_(layout), memory_(memory) {}

  // The process is to host the rank; its gradients begin with `first_step`; it hosts it no more,
  // and what it gave for `next_step` or later counts no more, since its successor begins there. It
  // does not begin without the memory for its gradients.
  void Expect(uint32_t rank, uint64_t incarnation);
  absl::Status Begin(uint32_t rank, uint64_t first_step);
  // True: it was the last one.
  bool End(uint32_t rank, uint64_t next_step);
  // Grows with each of these; and what it was when the rank, which has begun, had.
  uint64_t changes() const;
  uint64_t ChangesAtBegin(uint32_t rank) const;
  // Ascending; nothing while one that is expected has not begun.
  std::optional<std::vector<GroupRank>> Ranks() const;
  // The earliest step to which a rank of this process contributes or has contributed; nothing if
  // there is no such rank.
  std::optional<uint64_t> EarliestStep() const;

  // For the rank's thread, from Begin to End: where its gradient of a table goes, and that it is
  // there, or that there is none in this step. What comes for a step that is finished already is
  // not used.
  absl::Span<float> Buffer(uint32_t rank, size_t table);
  void Give(uint32_t rank, uint64_t step, size_t table);
  void GiveNothing(uint32_t rank, uint64_t step);

  // Whether all ranks of Ranks(), as far as they have begun at or before this step, have
  // contributed to the bucket.
  bool IsComplete(size_t bucket, uint64_t step) const;
  // sum[0, count) = the contributions to the bucket, added in rank order, when the stream has come
  // to its end; flags[r] = 1 for each rank r that is in it, else 0. What is returned is to be held
  // until then: a rank that ends, or is expected anew, meanwhile would take the memory of its
  // gradients with it. REQUIRES: the bucket has version `step` in this process. `sum` and the
  // stream are the memory's.
  [[nodiscard]] std::vector<std::shared_ptr<float>> Sum(size_t bucket, uint64_t step,
                                                        Stream& stream, float* sum,
                                                        absl::Span<float> flags) const;
  // Forgets what ranks that have gone left for earlier steps.
  void DropBefore(uint64_t step);

  // Until something is given or changes, or the deadline.
  void WaitForChange(uint64_t seen, MonotonicTime deadline);
  // Ends what waits for a change.
  void Wake();
  // Grows with everything given, every change and every Wake.
  uint64_t events() const;

 private:
  struct Rank {
    uint64_t incarnation = 0;
    bool begun = false;
    uint64_t changes_at_begin = 0;
    uint64_t first_step = 0;
    // The last step it gave something for.
    std::optional<uint64_t> step;
    // By table; in that step.
    std::vector<bool> given;
    bool nothing = false;
    // All tables, as the layout has them.
    std::shared_ptr<float> gradients;
  };
  struct Departed {
    uint32_t number = 0;
    Rank rank;
  };

  bool GaveLocked(const Rank& rank, const DenseBucket& bucket, uint64_t step) const
      PAWL_REQUIRES(mu_);
  void Notify() PAWL_REQUIRES(mu_) {
    ++events_;
    changed_.NotifyAll();
  }

  const DenseLayout& layout_;
  DenseMemory& memory_;

  mutable Mutex mu_;
  CondVar changed_;
  std::map<uint32_t, Rank> ranks_ PAWL_GUARDED_BY(mu_);
  std::vector<Departed> departed_ PAWL_GUARDED_BY(mu_);
  uint64_t changes_ PAWL_GUARDED_BY(mu_) = 0;
  uint64_t events_ PAWL_GUARDED_BY(mu_) = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_LOCAL_GRADIENTS_H_
