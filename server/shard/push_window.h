// Which ordinals of one sender a partition has taken.
#ifndef PAWL_SERVER_SHARD_PUSH_WINDOW_H_
#define PAWL_SERVER_SHARD_PUSH_WINDOW_H_

#include <bitset>
#include <cstddef>
#include <cstdint>

#include "client_lib/base/limits.h"

namespace pawl {

// Remembers a set of ordinals as the highest contiguous one and a bitmap of fixed
// size after it (kPushWindow; clients keep within it). Not thread-safe.
class PushWindow {
 public:
  enum class Answer { kNew, kDuplicate, kBeyondWindow };

  PushWindow() = default;
  // All ordinals below `contiguous` have been taken.
  explicit PushWindow(uint64_t contiguous) : contiguous_(contiguous), count_(contiguous) {}

  // What Take would answer.
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

  // All ordinals below this have been taken.
  uint64_t contiguous() const { return contiguous_; }
  // How many have been taken.
  uint64_t count() const { return count_; }
  // True if an ordinal is missing below one that has been taken.
  bool has_gap() const { return count_ != contiguous_; }

 private:
  uint64_t contiguous_ = 0;
  uint64_t count_ = 0;
  // Bit (ordinal mod kPushWindow), for ordinals from contiguous_ to contiguous_ + kPushWindow - 1.
  std::bitset<kPushWindow> taken_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_PUSH_WINDOW_H_
