// For how long a server's log has not been written.
#ifndef PAWL_SERVER_DISK_WATCH_H_
#define PAWL_SERVER_DISK_WATCH_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// A disk on which nothing has become durable for so long, though something waits for it, does not
// answer.
inline constexpr std::chrono::milliseconds kDiskHangs{2000};
// A disk that is full or fails for less is not told of.
inline constexpr std::chrono::milliseconds kDiskFailureTold{500};
// A disk that has failed is good again once it has been so for this long.
inline constexpr std::chrono::milliseconds kDiskIsGoodAgain{3000};

// Time is passed in. Not thread-safe.
class DiskWatch {
 public:
  // What is known now: whether the log takes changes; whether any change waits for it; and a number
  // that grows with each change that becomes durable.
  void Note(const absl::Status& room, bool waits, uint64_t durable, MonotonicTime now);

  // Nothing if the disk can be written.
  std::optional<DiskFailure> Failure(MonotonicTime now) const;

 private:
  std::optional<MonotonicTime> failing_since_;
  // Of the last failure.
  std::string reason_;
  // It has been told of.
  bool told_ = false;
  std::optional<MonotonicTime> good_since_;
  uint64_t durable_ = 0;
  std::optional<MonotonicTime> waiting_since_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_DISK_WATCH_H_
