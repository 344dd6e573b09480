// The contributions of a process's ranks to a step of the dense parameters.
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

// The ranks that this process hosts, and the gradients of each. A rank's gradients of step t are
// kept until its step t + 1, which it starts only when all buckets have version t + 1. So the sum
// of a bucket can be computed again as long as it may be needed, and a rank that moves away leaves
// its contribution behind.
//
// Thread-safe.
class LocalGradients {
 public:
  // The gradients lie in `memory`. Both arguments outlive it.
  LocalGradients(const DenseLayout& layout, DenseMemory& memory)
      : layout_(layout), memory_(memory) {}

  // Expect: the process will host the rank. Begin: its gradients start with `first_step`; fails
  // without the memory for them. End: the process no longer hosts the rank; its contributions to
  // `next_step` and later are dropped, because its successor starts there.
  void Expect(uint32_t rank, uint64_t incarnation);
  absl::Status Begin(uint32_t rank, uint64_t first_step);
  // Returns true if it was the last rank.
  bool End(uint32_t rank, uint64_t next_step);
  // A counter of these changes; and its value when the started rank began.
  uint64_t changes() const;
  uint64_t ChangesAtBegin(uint32_t rank) const;
  // Ascending. Nothing while an expected rank has not started.
  std::optional<std::vector<GroupRank>> Ranks() const;
  // The earliest step to which a rank of this process contributes or has contributed. Nothing if
  // there is no such rank.
  std::optional<uint64_t> EarliestStep() const;

  // Called by the rank's thread between Begin and End. Buffer returns where its gradient of a table
  // goes, MarkReady hands it in, and SkipStep says that the rank has none in this step.
  // Contributions to a finished step are ignored.
  absl::Span<float> Buffer(uint32_t rank, size_t table);
  void MarkReady(uint32_t rank, uint64_t step, size_t table);
  void SkipStep(uint32_t rank, uint64_t step);

  // Whether all ranks of Ranks() that began at or before this step have contributed to the bucket.
  bool IsComplete(size_t bucket, uint64_t step) const;
  // Enqueues on `stream`: sum[0, count) = the contributions to the bucket, added in rank order;
  // flags[r] = 1 for each rank r in the sum, else 0. The caller holds the result until the stream
  // has finished, because a rank that ends or is expected again meanwhile would free its gradients.
  // REQUIRES: the bucket has version `step` in this process. `sum` and `stream` belong to the
  // memory.
  [[nodiscard]] std::vector<std::shared_ptr<float>> Sum(size_t bucket, uint64_t step,
                                                        Stream& stream, float* sum,
                                                        absl::Span<float> flags) const;
  // Drops the contributions of departed ranks to earlier steps.
  void DropBefore(uint64_t step);

  // Waits until events() differs from `seen`, or the deadline.
  void WaitForChange(uint64_t seen, MonotonicTime deadline);
  // Ends WaitForChange.
  void Wake();
  // A counter of all contributions, changes and calls of Wake.
  uint64_t events() const;

 private:
  struct Rank {
    uint64_t incarnation = 0;
    bool has_started = false;
    uint64_t changes_at_begin = 0;
    uint64_t first_step = 0;
    // The last step to which it contributed.
    std::optional<uint64_t> step;
    // By table, in that step.
    std::vector<bool> ready;
    bool skipped = false;
    // All tables, as in the layout.
    std::shared_ptr<float> gradients;
  };
  struct Departed {
    uint32_t number = 0;
    Rank rank;
  };

  bool IsReadyLocked(const Rank& rank, const DenseBucket& bucket, uint64_t step) const
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
