// A child process that does not outlive its parent.
#ifndef PAWL_CLIENT_LIB_PROCESS_CHILD_PROCESS_H_
#define PAWL_CLIENT_LIB_PROCESS_CHILD_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"

namespace pawl {

struct ChildOptions {
  // The child's name in messages.
  std::string name;
  // The program's path and its arguments, without argv[0].
  std::string program;
  std::vector<std::string> arguments;
  // Receives the child's stdout and stderr. The file is replaced unless append_to_log is set. stdin
  // is /dev/null.
  std::string log;
  // "NAME=value" entries that replace or extend this process's environment.
  std::vector<std::string> environment = {};
  bool append_to_log = false;
};

// One child and its exit status.
//
// 1. The child dies, by SIGKILL, when the thread that started it ends for any reason. Start
//    children from the main thread.
// 2. It has its own process group: Ctrl-C reaches only the parent, which decides.
// 3. Processes that it starts in its group get its signals. They get SIGKILL once its end is
//    observed, unless Signal(SIGTERM) has ended it: then they may end in their own time, and the
//    child counts as running until they have, or until Signal(SIGKILL). So a program behind a
//    shell, which SIGTERM ends at once, can leave. Their end causes no SIGCHLD: poll HasEnded, or
//    call WaitUntil. They outlive this process only if it ends without observing theirs, as after
//    kill -9.
// 4. The pid is not reused before HasEnded or WaitUntil has observed the exit.
// 5. It starts with no signal blocked and with the default action of SIGPIPE. SIGCHLD is no longer
//    ignored in this process.
//
// For one thread.
class ChildProcess {
 public:
  // Fails if the program cannot be executed or the log cannot be written.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(ChildOptions options);

  // Kills the child and its group if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& name() const { return options_.name; }
  const std::string& log() const { return options_.log; }
  pid_t pid() const { return pid_; }
  // As started, but with the present name and log.
  const ChildOptions& options() const { return options_; }

  // Does not wait.
  bool HasEnded();
  // Waits until the child ends or `deadline` comes. Returns HasEnded().
  bool WaitUntil(MonotonicTime deadline);
  // The next four REQUIRE HasEnded().
  bool Succeeded() const;
  bool ExitedWith(int code) const;
  bool KilledBy(int signal) const;
  // "exited with code 3", "was killed by signal 9 (Killed)".
  std::string HowItEnded() const;

  // Sends a signal to the child and its group; no effect if the child has ended.
  void Signal(int signal);

  // Renames the child and its log, which the child continues to write.
  absl::Status Rename(const std::string& name, const std::string& log);

  // The last `lines` lines of the log, at most kMaxLogTailBytes; empty if there are none.
  std::vector<std::string> LogTail(size_t lines) const;

 private:
  ChildProcess(ChildOptions options, pid_t pid, int pid_descriptor);

  // Waits for the end, kills what is left of the group and takes the exit status; no effect while
  // other processes of the group may end in their own time. `wait_options`: of waitid.
  // REQUIRES: !ended_.
  void Reap(int wait_options);

  ChildOptions options_;
  const pid_t pid_;
  const int pid_descriptor_;
  bool ended_ = false;
  // Whether the group has got SIGTERM, and no SIGKILL since.
  bool asked_to_end_ = false;
  // As returned by waitpid.
  int wait_status_ = 0;
};

// Enough for the lines that explain the death of a program.
inline constexpr size_t kMaxLogTailBytes = 16384;

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_PROCESS_CHILD_PROCESS_H_
