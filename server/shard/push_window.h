// The set of ordinals that a partition has accepted from one sender.
#ifndef PAWL_SERVER_SHARD_PUSH_WINDOW_H_
#define PAWL_SERVER_SHARD_PUSH_WINDOW_H_

#include <bitset>
#include <cstddef>
#include <cstdint>

#include "client_lib/base/limits.h"

namespace pawl {

// Stores the set as its highest contiguous ordinal and a bitmap of fixed size after it
// (kPushWindow, which clients respect). Not thread-safe.
class PushWindow {
 public:
  enum class Answer { kNew, kDuplicate, kBeyondWindow };

  PushWindow() = default;
  // All ordinals below `contiguous` have been accepted.
  explicit PushWindow(uint64_t contiguous) : contiguous_(contiguous), count_(contiguous) {}

  // The answer that Take would give.
  Answer Look(uint64_t ordinal) const {
    if (ordinal < contiguous_) return Answer::kDuplicate;
    if (ordinal - contiguous_ >= kPushWindow) return Answer::kBeyondWindow;
    return taken_[ordinal % kPushWindow] ? Answer::kDuplicate : Answer::kNew;
  }

  Answer Take(uint64_t ordinal) {
    const Answer answer = Look(ordinal);
    if (answer != Answer::kNew) return answer;
    taken_.set(ordinal % kPushWindow);
    ++count_;
    while (taken_[contiguous_ % kPushWindow]) taken_.reset(contiguous_++ % kPushWindow);
    return answer;
  }

  // All ordinals below this have been accepted.
  uint64_t contiguous() const { return contiguous_; }
  // The number of accepted ordinals.
  uint64_t count() const { return count_; }
  // Whether an ordinal below an accepted one is missing.
  bool has_gap() const { return count_ != contiguous_; }

 private:
  uint64_t contiguous_ = 0;
  uint64_t count_ = 0;
  // Bit (ordinal mod kPushWindow), for ordinals from contiguous_ to contiguous_ + kPushWindow - 1.
  std::bitset<kPushWindow> taken_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_PUSH_WINDOW_H_
