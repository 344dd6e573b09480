// A program started by this one, that does not outlive it.
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
  // What messages call it.
  std::string name;
  // The program's path and its arguments, without argv[0].
  std::string program;
  std::vector<std::string> arguments;
  // Where its stdout and stderr go; the file is made anew, unless it is to be gone on with. stdin
  // is /dev/null.
  std::string log;
  // "NAME=value" each, in place of or besides what this process has in its environment.
  std::vector<std::string> environment = {};
  bool append_to_log = false;
};

// One child and what became of it.
//
// 1. The child dies with the thread that started it, by SIGKILL, whatever happens
//    to that thread: so a child is started from the main thread.
// 2. It is in a process group of its own: Ctrl-C reaches the parent alone, which decides.
// 3. Until the exit has been seen by HasEnded or WaitUntil the pid is not given to another process.
//
// For one thread.
class ChildProcess {
 public:
  // Fails if the program cannot be executed or the log cannot be written.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(ChildOptions options);

  // Kills it if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& name() const { return options_.name; }
  const std::string& log() const { return options_.log; }
  pid_t pid() const { return pid_; }
  // As started, but with its present name and log.
  const ChildOptions& options() const { return options_; }

  // Does not wait.
  bool HasEnded();
  // Returns HasEnded() as of when the child ended or `deadline` came.
  bool WaitUntil(MonotonicTime deadline);
  // REQUIRES of the three: HasEnded().
  bool Succeeded() const;
  bool KilledBy(int signal) const;
  // "exited with code 3", "was killed by signal 9 (Killed)".
  std::string HowItEnded() const;

  // Sends a signal; nothing if it has ended.
  void Signal(int signal);

  // Renames the child and its log, which it goes on writing.
  absl::Status Rename(const std::string& name, const std::string& log);

  // The last `lines` lines of its log, of at most kMaxLogTailBytes; empty if there are none.
  std::vector<std::string> LogTail(size_t lines) const;

 private:
  ChildProcess(ChildOptions options, pid_t pid, int pid_descriptor);

  ChildOptions options_;
  const pid_t pid_;
  const int pid_descriptor_;
  bool ended_ = false;
  // As waitpid gives it.
  int wait_status_ = 0;
};

// Enough for the lines that say why a program died.
inline constexpr size_t kMaxLogTailBytes = 16384;

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_PROCESS_CHILD_PROCESS_H_
