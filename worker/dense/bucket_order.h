// The order in which the buckets of a step travel.
#ifndef PAWL_WORKER_DENSE_BUCKET_ORDER_H_
#define PAWL_WORKER_DENSE_BUCKET_ORDER_H_

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace pawl {

// Which bucket of a step is next. Every member asks with the same numbers and gets the same
// answers, so that nobody has to say to the others what comes.
//
// A bucket that one member is ahead with and another has not computed yet would hold up the link
// while there is something else to send. So a bucket counts only when it is ready with all members,
// as far as they know of each other. Gradients become ready from the last bucket on (DenseLayout),
// and one number says how far a member is: the first bucket from which on all are ready with it.
//
// For one thread.
class BucketOrder {
 public:
  // A step begins. `left`: by bucket, whether it is still to travel in it.
  void Begin(std::vector<bool> left) { left_ = std::move(left); }
  // Of the buckets that are left and not before `ready_from`, the first in the order of need; if
  // there is none, the last one that is left, which is the first to become ready. Nothing if none
  // is left.
  std::optional<size_t> Next(size_t ready_from) const;
  // It has been started. REQUIRES: it was left.
  void Start(size_t bucket) { left_[bucket] = false; }

  bool IsLeft(size_t bucket) const { return left_[bucket]; }

 private:
  std::vector<bool> left_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DENSE_BUCKET_ORDER_H_
