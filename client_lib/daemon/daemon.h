// The parts that the main functions of all daemons share: flags, log format, signals, exit codes.
#ifndef PAWL_CLIENT_LIB_DAEMON_DAEMON_H_
#define PAWL_CLIENT_LIB_DAEMON_DAEMON_H_

#include <signal.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"

namespace pawl {

// The exit codes of all daemons.

// The job has completed or was stopped, or a signal asked the process to exit.
inline constexpr int kExitDone = 0;
// The job has failed, or a process that this one needs cannot be reached.
inline constexpr int kExitFailed = 1;
// Wrong flags, wrong or damaged files, or an invalid job.
inline constexpr int kExitUsage = 2;
// The job continues, but not under this scheduler: it could not save its state, has lost it to
// another scheduler, or was asked to leave.
inline constexpr int kExitRestart = 3;

// Receives SIGTERM and SIGINT in place of signal handlers. Construct it on the main thread before
// any other thread starts, because threads inherit the blocked signals.
class EndSignal {
 public:
  EndSignal();
  EndSignal(const EndSignal&) = delete;
  EndSignal& operator=(const EndSignal&) = delete;

  // Waits for the first signal, up to `timeout`. Returns true once one has come; later calls only
  // wait for `timeout`.
  bool Wait(MonotonicDuration timeout);

 private:
  sigset_t signals_;
  bool seen_ = false;
};

// Parses the flags of the binary `name`. Its --help shows `usage` and the program's own flags, its
// --version the Pawl version. The log goes to stderr. Exits with kExitUsage, naming the reason, on
// unknown flags and on positional arguments.
void SetUpDaemon(const std::string& name, const std::string& usage, int argc, char** argv);

// Prints "name: problem" and how to get help. Returns kExitUsage.
int UsageError(absl::string_view problem);

// Returns `flag`, or if it is empty the environment's PAWL_SCHEDULER, which may be empty too.
std::string SchedulerAddress(const std::string& flag);

// INVALID_ARGUMENT, naming the flag, unless --listen is host:port and --advertise is empty or an
// address that others can reach. `is_announced`: the process announces its --listen address if
// --advertise is empty.
absl::Status CheckAddressFlags(const std::string& listen, const std::string& advertise,
                               bool is_announced);

// INVALID_ARGUMENT unless it is host:port, or several of them separated by commas.
absl::Status CheckSchedulerAddress(const std::string& address);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_DAEMON_DAEMON_H_
