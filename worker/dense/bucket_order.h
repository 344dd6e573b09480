// The order in which the buckets of a step travel.
#ifndef PAWL_WORKER_DENSE_BUCKET_ORDER_H_
#define PAWL_WORKER_DENSE_BUCKET_ORDER_H_

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace pawl {

// Chooses the next bucket of a step. Every member asks with the same numbers and gets the same
// answers, so members need not announce what comes next.
//
// If a bucket travelled that one member has computed and another has not, it would block the link
// for others that are ready. So a bucket counts as ready only when it is known to be ready with all
// members. Gradients become ready from the last bucket on (DenseLayout), so one number describes a
// member's progress: the first bucket from which on all are ready.
//
// Used by one thread.
class BucketOrder {
 public:
  // Starts a step. `left`: for each bucket, whether it still has to travel.
  void Begin(std::vector<bool> left) { left_ = std::move(left); }
  // Returns the first bucket in the order of need that is left and not before `ready_from`. If
  // there is none, returns the last bucket that is left, which is the first to become ready.
  // Returns nothing if none is left.
  std::optional<size_t> Next(size_t ready_from) const;
  // The bucket has been started. REQUIRES: it was left.
  void Start(size_t bucket) { left_[bucket] = false; }

  bool IsLeft(size_t bucket) const { return left_[bucket]; }

 private:
  std::vector<bool> left_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_BUCKET_ORDER_H_
