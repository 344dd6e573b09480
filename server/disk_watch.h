// Decides when to report a server's disk as failed.
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

// A disk hangs if a write waits for this long while nothing becomes durable.
inline constexpr std::chrono::milliseconds kDiskHangTimeout{2000};
// A failure shorter than this is not reported.
inline constexpr std::chrono::milliseconds kDiskFailureReportDelay{500};
// A failed disk counts as recovered after this long without a failure.
inline constexpr std::chrono::milliseconds kDiskRecoveryTime{3000};

// Tracks how long the log has not been writable. The caller passes the time in. Not thread-safe.
class DiskWatch {
 public:
  // Records the current state: `written` is why the log cannot be written, `waits` whether any
  // change waits for the log, and `durable` a number that grows with each change that becomes
  // durable.
  void Note(const absl::Status& written, bool waits, uint64_t durable, MonotonicTime now);

  // The failure to report; nullopt while the disk can be written.
  std::optional<DiskFailure> Failure(MonotonicTime now) const;

 private:
  std::optional<MonotonicTime> failing_since_;
  // Why the last failure happened.
  std::string reason_;
  // The failure has lasted long enough to be reported.
  bool reported_ = false;
  std::optional<MonotonicTime> working_since_;
  uint64_t durable_ = 0;
  std::optional<MonotonicTime> waiting_since_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_DISK_WATCH_H_
