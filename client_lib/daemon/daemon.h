// What the main functions of all daemons share: help, log format, signals.
#ifndef PAWL_CLIENT_LIB_DAEMON_DAEMON_H_
#define PAWL_CLIENT_LIB_DAEMON_DAEMON_H_

#include <signal.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"

namespace pawl {

// The exit codes of all daemons.
inline constexpr int kExitDone =
    0;  // the job has completed or was stopped, or a signal asked the process to end
inline constexpr int kExitFailed =
    1;                                // the job has failed, or a process it needs cannot be reached
inline constexpr int kExitUsage = 2;  // wrong flags, files (damaged ones too) or job
// The job goes on, but not by this scheduler, which could not save its state, has lost it to
// another one, or was asked to leave.
inline constexpr int kExitAgain = 3;

// Takes SIGTERM and SIGINT for itself, so that they interrupt nothing. Made on the
// main thread before any other thread starts: threads inherit the blocked signals.
class EndSignal {
 public:
  EndSignal();
  EndSignal(const EndSignal&) = delete;
  EndSignal& operator=(const EndSignal&) = delete;

  // Waits until the first signal comes, or for `timeout`; true once one has come, after which it
  // waits for `timeout` alone.
  bool Wait(MonotonicDuration timeout);

 private:
  sigset_t signals_;
  bool seen_ = false;
};

// Parses the flags of the binary `name`, whose --help shows `usage` and the program's own flags and
// whose --version says which Pawl it is of. The log goes to stderr. Ends the process with
// kExitUsage, saying why, on unknown flags and on anything that is not a flag.
void SetUpDaemon(const std::string& name, const std::string& usage, int argc, char** argv);

// Prints "name: problem" and where to find help; returns kExitUsage.
int UsageError(absl::string_view problem);

// `flag`, or if that is empty the environment's PAWL_SCHEDULER, which may be empty too.
std::string SchedulerAddress(const std::string& flag);

// INVALID_ARGUMENT, naming the flag, unless --listen is host:port and --advertise, if it is not
// empty, is an address at which others can reach the process. `is_told`: others are told where it
// listens if --advertise is empty.
absl::Status CheckAddressFlags(const std::string& listen, const std::string& advertise,
                               bool is_told);

// INVALID_ARGUMENT unless it is host:port, or several of them separated by commas.
absl::Status CheckSchedulerAddress(const std::string& address);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_DAEMON_DAEMON_H_
