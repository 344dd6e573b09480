// What pawlctl's exit code says; `pawlctl --help` has the same list.
#ifndef PAWL_DEPLOY_PAWLCTL_EXIT_CODE_H_
#define PAWL_DEPLOY_PAWLCTL_EXIT_CODE_H_

#include "absl/status/status.h"

namespace pawl {

inline constexpr int kExitDone = 0;
// The job failed or was stopped, or has no checkpoint of its end though it was to have one, or the
// cluster refused what was asked.
inline constexpr int kExitFailed = 1;
// A wrong command line or job file: nothing was started or changed.
inline constexpr int kExitUsage = 2;
// The scheduler or a server does not answer.
inline constexpr int kExitUnreachable = 3;
// Ended by signal s: 128 + s, as shells have it; 130 is Ctrl-C, 143 SIGTERM.
inline constexpr int kExitSignal = 128;

// Of a call to the cluster.
inline int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitDone;
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) return kExitUnreachable;
  return kExitFailed;
}

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_EXIT_CODE_H_
