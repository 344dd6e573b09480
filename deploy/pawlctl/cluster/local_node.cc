#include "deploy/pawlctl/cluster/local_node.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/security/security.h"
#include "deploy/pawlctl/cluster/child_group.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/exit_code.h"
#include "deploy/pawlctl/scheduler_connection.h"

namespace pawl {
namespace {

// Nothing is done without a signal, a child's end among them, or the time of a restart.
constexpr std::chrono::seconds kLongestWait{3600};
constexpr std::chrono::seconds kStatusTimeout{2};
// While processes leave: no signal reports the end of those that they have started.
constexpr std::chrono::milliseconds kLeaveInterval{100};

class Node {
 public:
  Node(const LocalNodeOptions& options, const Programs& programs, SignalWaiter& signals)
      : options_(options), programs_(programs), signals_(signals), group_(options.max_restarts) {}

  int Go() {
    if (const absl::Status status = Start(); !status.ok()) {
      Fail(status.message());
      Leave();
    }
    while (!group_.IsDone()) {
      const MonotonicTime now = clock_.Now();
      MonotonicTime next = now + kLongestWait;
      if (group_.next_start().has_value()) next = std::min(next, *group_.next_start());
      if (kill_at_.has_value()) next = std::min({next, *kill_at_, now + kLeaveInterval});
      const int signal = signals_.Wait(next - now);
      if (signal != 0 && signal != SIGCHLD) OnSignal(signal);
      for (ChildProcess* child : group_.TakeEnded()) OnEnded(*child);
      if (const absl::Status status = group_.StartDue(clock_.Now()); !status.ok()) {
        Fail(status.message());
        Leave();
      }
      if (kill_at_.has_value() && clock_.Now() >= *kill_at_) Kill();
    }
    return failed_ ? kExitFailed : kExitDone;
  }

 private:
  absl::Status Start() {
    const std::filesystem::path logs = std::filesystem::path(options_.data_dir) / "logs";
    std::error_code error;
    std::filesystem::create_directories(logs, error);
    if (error) {
      return absl::InvalidArgumentError(
          absl::StrCat("--data_dir: cannot create ", logs.string(), ": ", error.message()));
    }
    const auto start = [&](ChildOptions command) {
      command.log = (logs / absl::StrCat(command.name, ".log")).string();
      command.append_to_log = true;
      if (options_.insecure) command.environment.push_back("PAWL_TLS_DIR=");
      console_.Line(absl::StrCat("starting ", command.name, "; its log is ", command.log));
      return group_.Start(std::move(command));
    };
    for (uint32_t i = 0; i < options_.servers; ++i)
      PAWL_RETURN_IF_ERROR(start(WithInsecure(ServerCommand(programs_, Place("server", i)))));
    for (uint32_t i = 0; i < options_.workers; ++i) {
      ChildOptions command =
          WorkerCommand(programs_, Place("worker", i), i, options_.devices, options_.worker_flags);
      PAWL_RETURN_IF_ERROR(
          start(programs_.is_own_worker ? std::move(command) : WithInsecure(std::move(command))));
    }
    return absl::OkStatus();
  }

  DaemonPlace Place(const std::string& role, uint32_t number) const {
    const std::string name = absl::StrCat(role, "-", number);
    return {.name = name,
            .scheduler = options_.scheduler,
            .listen = "",
            .data_dir = (std::filesystem::path(options_.data_dir) / name).string(),
            .tls_dir = TlsDir(role)};
  }
  std::string TlsDir(const std::string& role) const {
    return options_.tls_dir.empty() ? ""
                                    : (std::filesystem::path(options_.tls_dir) / role).string();
  }
  ChildOptions WithInsecure(ChildOptions command) const {
    if (options_.insecure) command.arguments.push_back("--insecure");
    return command;
  }

  void OnSignal(int signal) {
    if (kill_at_.has_value()) {
      console_.Error("killing all processes");
      Kill();
      return;
    }
    console_.Error(absl::StrCat("got ", sigdescr_np(signal), ": all processes leave the job"));
    Leave();
  }

  void OnEnded(const ChildProcess& child) {
    const std::string what =
        absl::StrCat(child.name(), " (pid ", child.pid(), ") ", child.HowItEnded());
    if (child.Succeeded()) {
      console_.Line(absl::StrCat(what, ": it has left the job, or the job has ended"));
      return;
    }
    // A Python worker exits with this code; a shell or program without a handler is killed.
    if (kill_at_.has_value() && !killing_ &&
        (child.ExitedWith(kExitSignal + SIGTERM) || child.KilledBy(SIGTERM))) {
      console_.Line(absl::StrCat(what, ": it has left"));
      return;
    }
    if (kill_at_.has_value()) {
      failed_ = true;
      console_.Error(absl::StrCat(what, "; its log is ", child.log()));
      return;
    }
    if (JobHasEnded()) {
      Fail(absl::StrCat(what, " and the job has ended; its log is ", child.log()));
      return;
    }
    const std::optional<MonotonicDuration> delay = group_.Restart(child, clock_.Now());
    if (delay.has_value()) {
      console_.Error(
          absl::StrCat(what, ": restarting it in ",
                       std::chrono::duration_cast<std::chrono::milliseconds>(*delay).count(),
                       " ms (restart ", group_.restart_policy().restarts(), " of at most ",
                       options_.max_restarts, "); its log is ", child.log()));
      return;
    }
    Fail(absl::StrCat(what, ", and all ", options_.max_restarts,
                      " restarts (--max_restarts) are used up; its log is ", child.log()));
    Leave();
  }

  // Whether the scheduler says so. The scheduler of an ended job waits for its nodes to leave.
  bool JobHasEnded() {
    // Opened now: connections start threads, and a process that forks should have few.
    if (security_ == nullptr) {
      absl::StatusOr<std::unique_ptr<Security>> security =
          Security::Open({.tls_dir = TlsDir(options_.workers > 0 ? "worker" : "server"),
                          .insecure = options_.insecure},
                         kAllRoles);
      if (!security.ok()) {
        console_.Error(security.status().message());
        return false;
      }
      security_ = *std::move(security);
      connection_ = std::make_unique<SchedulerConnection>(options_.scheduler, *security_);
    }
    const absl::StatusOr<GetStatusResponse> status = connection_->GetStatus(kStatusTimeout);
    return status.ok() && HasEnded(status->state());
  }

  void Fail(absl::string_view reason) {
    failed_ = true;
    console_.Error(reason);
  }

  void Leave() {
    if (kill_at_.has_value()) return;
    group_.CancelRestarts();
    group_.SignalAll(SIGTERM);
    kill_at_ = clock_.Now() + options_.leave_timeout;
  }

  void Kill() {
    if (group_.Running() > 0) failed_ = true;
    killing_ = true;
    group_.SignalAll(SIGKILL);
    kill_at_ = clock_.Now() + kLongestWait;
  }

  const Clock& clock_ = Clock::Real();
  const LocalNodeOptions& options_;
  const Programs& programs_;
  SignalWaiter& signals_;
  Console console_;
  ChildGroup group_;
  std::unique_ptr<Security> security_;
  // Null until it is needed.
  std::unique_ptr<SchedulerConnection> connection_;
  // While the processes leave: when those that are left are killed.
  std::optional<MonotonicTime> kill_at_;
  // SIGKILL was sent.
  bool killing_ = false;
  bool failed_ = false;
};

}  // namespace

int RunLocalNode(const LocalNodeOptions& options, const Programs& programs, SignalWaiter& signals) {
  // Lost output must not end this program before its processes have left.
  signal(SIGPIPE, SIG_IGN);
  return Node(options, programs, signals).Go();
}

}  // namespace pawl
