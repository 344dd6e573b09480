// The meaning of pawlctl's exit codes.
#ifndef PAWL_DEPLOY_PAWLCTL_EXIT_CODE_H_
#define PAWL_DEPLOY_PAWLCTL_EXIT_CODE_H_

#include "absl/status/status.h"

namespace pawl {

inline constexpr int kExitDone = 0;
// The job failed or was stopped, its required final checkpoint is missing, the cluster refused the
// request, a check failed, or the output could not be written.
inline constexpr int kExitFailed = 1;
// The command line or the job file is wrong. No job was started or changed. `pawlctl run` may have
// removed the results of an earlier run.
inline constexpr int kExitUsage = 2;
// The scheduler or a server does not answer.
inline constexpr int kExitUnreachable = 3;
// Ended by signal s: 128 + s, as in shells. 130 is Ctrl-C, 143 SIGTERM.
inline constexpr int kExitSignal = 128;

// The same in the help of commands that call a running job.
inline constexpr char kExitCodesHelp[] =
    "Exit codes: 0: done; 1: refused, or a check failed; 2: wrong command line; 3: the scheduler\n"
    "or a server does not answer; 130: ended by Ctrl-C; 143: ended by SIGTERM.";
// The same in the help of commands that run a job to its end.
inline constexpr char kJobExitCodesHelp[] =
    "Exit codes: 0: the job completed; 1: it failed, was stopped, or lacks its final checkpoint;\n"
    "2: wrong command line or job file; 130: ended by Ctrl-C; 143: ended by SIGTERM.";

// The exit code for the result of a call to the cluster.
inline int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitDone;
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) return kExitUnreachable;
  return kExitFailed;
}

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_EXIT_CODE_H_
