#include "client_lib/process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace pawl {
namespace {

// How often to look whether the rest of a group has ended.
constexpr std::chrono::milliseconds kGroupPollInterval{20};

absl::Status SystemError(absl::string_view what, int error) {
  return absl::ErrnoToStatus(error, what);
}

// Runs in the child between fork and exec, without the parent's other threads and with their locks
// in any state: only system calls are allowed.
[[noreturn]] void BecomeProgram(const char* program, char* const* argv, char* const* environment,
                                int log, int null, int error_pipe, pid_t parent) {
  int error = 0;
  sigset_t none;
  sigemptyset(&none);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    error = errno;
  } else if (getppid() != parent) {
    // The parent died before the line above; nothing remains to report to.
    _exit(127);
  } else if (setpgid(0, 0) != 0 || sigprocmask(SIG_SETMASK, &none, nullptr) != 0 ||
             dup2(null, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
             dup2(log, STDERR_FILENO) < 0 || signal(SIGPIPE, SIG_DFL) == SIG_ERR) {
    error = errno;
  } else {
    execve(program, argv, environment);
    error = errno;
  }
  [[maybe_unused]] const ssize_t written = write(error_pipe, &error, sizeof(error));
  _exit(127);
}

// Whether a process of the group runs other than its leader. kill(-group, 0) cannot tell: it finds
// the leader too, which stays a zombie so that the group's id is not reused.
bool RunsWithoutLeader(pid_t leader) {
  std::error_code error;
  for (std::filesystem::directory_iterator process("/proc", error), end; !error && process != end;
       process.increment(error)) {
    pid_t pid;
    if (!absl::SimpleAtoi(process->path().filename().string(), &pid) || pid == leader) continue;
    std::ifstream file(process->path() / "stat");
    std::string stat;
    std::getline(file, stat);
    // "PID (NAME) STATE PARENT GROUP ...", where NAME may have any characters.
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) continue;
    char state;
    pid_t parent, group;
    std::istringstream fields(stat.substr(name_end + 1));
    if (fields >> state >> parent >> group && group == leader && state != 'Z' && state != 'X')
      return true;
  }
  return false;
}

// Closes on destruction.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() { Close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return value_; }
  int Release() { return std::exchange(value_, -1); }
  void Close() {
    if (value_ >= 0) close(value_);
    value_ = -1;
  }

 private:
  int value_;
};

// A copy of the descriptor with a number above those that the child replaces: a parent whose own
// standard streams are closed gets theirs from open(). -1, with errno, as for a descriptor of -1.
int AboveStandardStreams(int descriptor) {
  return descriptor < 0 ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(ChildOptions options) {
  // Opened for append, so that the log can be truncated or read while it grows.
  const int truncate = options.append_to_log ? 0 : O_TRUNC;
  const Descriptor opened_log(
      open(options.log.c_str(), O_WRONLY | O_CREAT | truncate | O_APPEND | O_CLOEXEC, 0644));
  const Descriptor log(AboveStandardStreams(opened_log.get()));
  if (log.get() < 0) return SystemError(absl::StrCat("cannot write the log ", options.log), errno);
  const Descriptor opened_null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor null(AboveStandardStreams(opened_null.get()));
  if (null.get() < 0) return SystemError("cannot open /dev/null", errno);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return SystemError("cannot make a pipe", errno);
  const Descriptor read_end(ends[0]);
  Descriptor opened_write_end(ends[1]);
  Descriptor write_end(AboveStandardStreams(opened_write_end.get()));
  if (write_end.get() < 0) return SystemError("cannot make a pipe", errno);

  std::vector<char*> argv = {options.program.data()};
  for (std::string& argument : options.arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  std::vector<char*> environment;
  for (char** inherited = environ; *inherited != nullptr; ++inherited) {
    const bool replaced = std::any_of(
        options.environment.begin(), options.environment.end(), [&](const std::string& own) {
          return strncmp(*inherited, own.c_str(), own.find('=') + 1) == 0;
        });
    if (!replaced) environment.push_back(*inherited);
  }
  for (std::string& own : options.environment) environment.push_back(own.data());
  environment.push_back(nullptr);

  // If SIGCHLD was ignored when this program started, the kernel would discard exit statuses.
  struct sigaction on_end;
  if (sigaction(SIGCHLD, nullptr, &on_end) == 0 && on_end.sa_handler == SIG_IGN)
    signal(SIGCHLD, SIG_DFL);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return SystemError(absl::StrCat("cannot start ", options.name), errno);
  if (pid == 0) {
    BecomeProgram(options.program.c_str(), argv.data(), environment.data(), log.get(), null.get(),
                  write_end.get(), parent);
  }
  opened_write_end.Close();
  write_end.Close();

  // Exec closes the pipe; if exec fails the child writes errno to it.
  int error = 0;
  ssize_t bytes;
  do {
    bytes = read(read_end.get(), &error, sizeof(error));
  } while (bytes < 0 && errno == EINTR);
  if (bytes == static_cast<ssize_t>(sizeof(error))) {
    waitpid(pid, nullptr, 0);
    return SystemError(absl::StrCat("cannot execute ", options.program, " as ", options.name),
                       error);
  }
  // Not pidfd_open: glibc 2.36 declares it without C linkage.
  Descriptor pid_descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (pid_descriptor.get() < 0) {
    const int open_error = errno;
    kill(-pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return SystemError(absl::StrCat("cannot watch ", options.name), open_error);
  }
  return std::unique_ptr<ChildProcess>(
      new ChildProcess(std::move(options), pid, pid_descriptor.Release()));
}

ChildProcess::ChildProcess(ChildOptions options, pid_t pid, int pid_descriptor)
    : options_(std::move(options)), pid_(pid), pid_descriptor_(pid_descriptor) {}

ChildProcess::~ChildProcess() {
  if (!HasEnded()) {
    Signal(SIGKILL);
    Reap(/*wait_options=*/0);
  }
  close(pid_descriptor_);
}

bool ChildProcess::HasEnded() {
  if (!ended_) Reap(WNOHANG);
  return ended_;
}

void ChildProcess::Reap(int wait_options) {
  siginfo_t end = {};
  int result;
  do {
    result = waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOWAIT | wait_options);
  } while (result < 0 && errno == EINTR);
  if (result < 0 || end.si_pid != pid_) return;
  // A shell dies of the signal at once, and its program may need time.
  const bool died_of_sigterm =
      end.si_status == (end.si_code == CLD_EXITED ? 128 + SIGTERM : SIGTERM);
  if (asked_to_end_ && died_of_sigterm && RunsWithoutLeader(pid_)) return;
  // The id of the group is not reused before waitpid reaps its leader.
  kill(-pid_, SIGKILL);
  while (waitpid(pid_, &wait_status_, 0) < 0 && errno == EINTR) {
  }
  ended_ = true;
}

bool ChildProcess::WaitUntil(MonotonicTime deadline) {
  while (!HasEnded()) {
    const MonotonicDuration left = deadline - Clock::Real().Now();
    if (left <= MonotonicDuration::zero()) return false;
    // Rounded up: a poll of 0 ms would spin.
    const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    pollfd event = {pid_descriptor_, POLLIN, 0};
    // If the child has ended, the rest of its group has not, and nothing reports that end.
    if (poll(&event, 1, static_cast<int>(std::min<int64_t>(left_ms, 1000))) > 0 && !HasEnded())
      poll(nullptr, 0, static_cast<int>(std::min<int64_t>(left_ms, kGroupPollInterval.count())));
  }
  return true;
}

bool ChildProcess::Succeeded() const { return ExitedWith(0); }

bool ChildProcess::ExitedWith(int code) const {
  return WIFEXITED(wait_status_) && WEXITSTATUS(wait_status_) == code;
}

bool ChildProcess::KilledBy(int signal) const {
  return WIFSIGNALED(wait_status_) && WTERMSIG(wait_status_) == signal;
}

std::string ChildProcess::HowItEnded() const {
  if (WIFSIGNALED(wait_status_)) {
    const int signal = WTERMSIG(wait_status_);
    return absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")");
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(wait_status_));
}

void ChildProcess::Signal(int signal) {
  if (HasEnded()) return;
  if (signal == SIGTERM) asked_to_end_ = true;
  if (signal == SIGKILL) asked_to_end_ = false;
  kill(-pid_, signal);
}

absl::Status ChildProcess::Rename(const std::string& name, const std::string& log) {
  std::error_code error;
  std::filesystem::rename(options_.log, log, error);
  if (error) {
    return SystemError(absl::StrCat("cannot rename ", options_.log, " to ", log), error.value());
  }
  options_.name = name;
  options_.log = log;
  return absl::OkStatus();
}

std::vector<std::string> ChildProcess::LogTail(size_t lines) const {
  std::ifstream file(options_.log, std::ios::binary);
  if (!file) return {};
  file.seekg(0, std::ios::end);
  const auto size = static_cast<size_t>(std::max<std::streamoff>(file.tellg(), 0));
  const size_t count = std::min(size, kMaxLogTailBytes);
  file.seekg(static_cast<std::streamoff>(size - count));
  std::string text(count, '\0');
  file.read(text.data(), static_cast<std::streamsize>(count));
  text.resize(static_cast<size_t>(file.gcount()));
  std::vector<std::string> tail = absl::StrSplit(text, '\n', absl::SkipEmpty());
  // The first line may be incomplete.
  if (count < size && tail.size() > 1) tail.erase(tail.begin());
  if (tail.size() > lines) tail.erase(tail.begin(), tail.end() - static_cast<ptrdiff_t>(lines));
  return tail;
}

}  // namespace pawl
