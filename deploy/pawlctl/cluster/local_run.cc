#include "deploy/pawlctl/cluster/local_run.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/clock.h"
#include "client_lib/process/child_process.h"
#include "client_lib/process/signal_waiter.h"
#include "deploy/pawlctl/cluster/local_cluster.h"
#include "deploy/pawlctl/cluster/out_folder.h"
#include "deploy/pawlctl/cluster/progress.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/exit_code.h"
#include "deploy/pawlctl/scheduler_connection.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// For the scheduler to read and check the job, and to bind a port.
constexpr seconds kSchedulerStartTime{30};
// How often to look for the scheduler's address.
constexpr milliseconds kAddressInterval{20};
// How often to ask the scheduler for its status, and how long to wait for the answer.
constexpr milliseconds kStatusInterval{500};
constexpr milliseconds kNamingInterval{50};
constexpr milliseconds kStatusTimeout{500};
// How often to print a line where none can be redrawn in place.
constexpr seconds kLineInterval{5};
// A scheduler that is silent for this long does not recover by itself.
constexpr seconds kMaxSilence{120};
// How long the processes may take to exit: after the end of the job, after SIGTERM, and after the
// job was stopped.
constexpr seconds kEndGrace{10};
constexpr seconds kTermGrace{5};
constexpr seconds kStopGrace{3};
// Lines of a dead process's log to print.
constexpr size_t kTailLines = 15;

// Whether a read from stdin would return its end. Data is read and ignored.
bool StdinHasEnded() {
  pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (poll(&input, 1, /*timeout=*/0) <= 0) return false;
  char ignored[256];
  return read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0;
}

// The whole file; nullopt if it cannot be opened.
std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// One run, from the start of the scheduler to the end of the last process.
//
// The scheduler decides the job's state. This class watches the processes, restarts those that die,
// shows progress and cleans up. It stops the job only if
// - the user asks for it,
// - the scheduler does not come back,
// - a process dies that has never registered, or
// - a process that the job needs dies after all restarts are used up.
// Every wait has a deadline, `give_up_at_`, which each phase of the shutdown sets.
class Run {
 public:
  Run(const LocalJob& job, const RunOptions& options, Programs programs, const OutFolder& out,
      SignalWaiter& signals)
      : job_(job.job),
        servers_(options.servers),
        workers_(job.workers),
        restore_(options.restore),
        until_stdin_ends_(options.until_stdin_ends),
        out_(out),
        signals_(signals),
        console_(options.is_quiet),
        cluster_(std::move(programs), out, options.servers, job.workers, options.max_restarts,
                 options.devices, job.worker_flags, options.tls),
        security_options_{.tls_dir = options.tls ? out.tls("operator") : ""} {}

  int Go() {
    started_ = clock_.Now();
    console_.Line(absl::StrCat("job ", job_.name(), ": 1 scheduler, ", servers_,
                               servers_ == 1 ? " server, " : " servers, ", workers_,
                               workers_ == 1 ? " worker" : " workers", "; logs in ", out_.path(),
                               "/logs"));
    std::vector<std::string> flags;
    if (!restore_.empty())
      flags.push_back(absl::StrCat("--restore=", std::filesystem::absolute(restore_).string()));
    if (const absl::Status status = cluster_.StartScheduler(flags); !status.ok()) {
      console_.Error(status.message());
      return kExitFailed;
    }
    give_up_at_ = clock_.Now() + kSchedulerStartTime;
    while (true) {
      MonotonicDuration wait = connection_ == nullptr ? kAddressInterval : StatusInterval();
      if (cluster_.group().next_start().has_value())
        wait = std::min(wait, *cluster_.group().next_start() - clock_.Now());
      int signal = signals_.Wait(wait);
      if (signal == 0 && until_stdin_ends_ && StdinHasEnded()) {
        until_stdin_ends_ = false;
        signal = SIGTERM;
      }
      if (signal != 0 && signal != SIGCHLD) OnSignal(signal);
      for (ChildProcess* child : cluster_.group().TakeEnded()) OnEnded(*child);
      StartDue();
      if (cluster_.group().IsDone()) break;
      if (connection_ == nullptr) {
        ConnectIfListening();
      } else if (clock_.Now() >= next_status_at_ && !scheduler_ended_) {
        AskScheduler();
      }
      if (give_up_at_.has_value() && clock_.Now() >= *give_up_at_) GiveUp();
    }
    return Finish();
  }

 private:
  // The phases of the shutdown.
  enum class Ending { kNot, kLeaving, kTerminated, kKilled };

  void OnSignal(int signal) {
    if (interrupted_by_ != 0) {
      console_.Error("second signal: killing all processes");
      Kill();
      return;
    }
    interrupted_by_ = signal;
    console_.Error(absl::StrCat("got ", sigdescr_np(signal), ": stopping the job",
                                signal == SIGINT ? " (again to kill it)" : ""));
    StopJob("interrupted by its user");
  }

  // Asks the scheduler to stop the job. Terminates the processes if it refuses.
  void StopJob(const std::string& reason) {
    if (ending_ != Ending::kNot) return;
    if (connection_ != nullptr && !scheduler_ended_ &&
        connection_->StopJob(reason, kStatusTimeout).ok()) {
      LeaveWithin(kStopGrace);
    } else {
      Terminate();
    }
  }

  void LeaveWithin(MonotonicDuration grace) {
    if (ending_ != Ending::kNot) return;
    cluster_.group().CancelRestarts();
    ending_ = Ending::kLeaving;
    give_up_at_ = clock_.Now() + grace;
  }

  void Terminate() {
    if (ending_ == Ending::kKilled) return;
    cluster_.group().CancelRestarts();
    ending_ = Ending::kTerminated;
    cluster_.group().SignalAll(SIGTERM);
    give_up_at_ = clock_.Now() + kTermGrace;
  }

  void Kill() {
    cluster_.group().CancelRestarts();
    ending_ = Ending::kKilled;
    cluster_.group().SignalAll(SIGKILL);
    give_up_at_ = std::nullopt;
  }

  void GiveUp() {
    switch (ending_) {
      case Ending::kNot:
        // Only the start of the scheduler has a deadline.
        Fail(
            absl::StrCat("the scheduler does not listen after ", kSchedulerStartTime.count(), " s"),
            &cluster_.scheduler());
        Terminate();
        break;
      case Ending::kLeaving:
        Terminate();
        break;
      case Ending::kTerminated:
        console_.Error(absl::StrCat(cluster_.group().Running(), " processes did not end within ",
                                    kTermGrace.count(), " s of SIGTERM: killing them"));
        Kill();
        break;
      case Ending::kKilled:
        break;
    }
  }

  // Records the first reason why the run cannot succeed, and prints each with the end of the
  // child's log.
  void Fail(const std::string& reason, const ChildProcess* child) {
    if (failure_.empty()) failure_ = reason;
    if (child == nullptr) {
      console_.Error(reason);
      return;
    }
    const std::vector<std::string> tail = child->LogTail(kTailLines);
    console_.Error(absl::StrCat(
        reason, tail.empty() ? "; its log is empty (" : "; the last lines of its log (",
        child->log(), tail.empty() ? ")" : "):"));
    for (const std::string& line : tail) console_.Error(absl::StrCat("  | ", line));
  }

  void OnEnded(ChildProcess& child) {
    const bool is_scheduler = &child == &cluster_.scheduler();
    if (is_scheduler) scheduler_ended_ = true;
    // This program ended it.
    if (ending_ == Ending::kTerminated || ending_ == Ending::kKilled || interrupted_by_ != 0)
      return;
    const bool answered = !is_scheduler && ending_ == Ending::kNot && AskScheduler();
    // metrics.json says whether the job has ended.
    if (cluster_.scheduler().HasEnded()) ReadMetrics();
    const std::string what = absl::StrCat(is_scheduler ? "the scheduler" : child.name(), " (pid ",
                                          child.pid(), ") ", child.HowItEnded());
    if (HasEnded(state_)) {
      // Every process leaves a job that has ended. A failure then is only a warning.
      if (is_scheduler) LeaveWithin(kEndGrace);
      if (!is_scheduler && !child.Succeeded() && state_ == COMPLETED) {
        Warn(absl::StrCat(what, " after the job had completed"), child);
      }
      return;
    }
    if (ending_ != Ending::kNot) return;
    // Another start would find the same flags, files, job and state.
    const bool is_usage = child.ExitedWith(kExitUsage);
    if (is_scheduler && (child.Succeeded() || is_usage || connection_ == nullptr)) {
      Fail(absl::StrCat(what,
                        child.Succeeded() ? " before the job ended"
                        : is_usage ? ": its flags, files or job are wrong, or its state is outdated"
                                   : " before it listened",
                        "; ending the whole cluster"),
           &child);
      Terminate();
      return;
    }
    if (child.Succeeded()) {
      // It left on request, as after SIGTERM, or its program ended early.
      // A scheduler that does not answer may have ended with the job, which the worker knew first.
      const bool is_worker = absl::StartsWith(child.name(), "worker");
      if (is_worker && answered && state_ != FINISHING && !cluster_.HasWorker()) {
        Fail(absl::StrCat(what, " before the job ended, and no worker is left"), &child);
        StopJob(failure_);
      } else if (answered) {
        console_.Error(absl::StrCat(what, ": it has left the job"));
      }
      return;
    }
    if (answered && !cluster_.WasRegistered(child)) {
      Fail(absl::StrCat(what, " before it had registered"), &child);
      StopJob(failure_);
      return;
    }
    Restart(child, what);
  }

  void Restart(ChildProcess& child, const std::string& what) {
    const RestartPolicy& policy = cluster_.group().restart_policy();
    if (const std::optional<MonotonicDuration> delay =
            cluster_.group().Restart(child, clock_.Now());
        delay.has_value()) {
      console_.Error(absl::StrCat(what, ": restarting it in ",
                                  std::chrono::duration_cast<milliseconds>(*delay).count(),
                                  " ms (restart ", policy.restarts(), " of at most ",
                                  policy.max_restarts(), "); its log is ", child.log()));
      return;
    }
    Fail(absl::StrCat(what, policy.max_restarts() == 0
                                ? ", and nothing is restarted (--max_restarts=0)"
                                : absl::StrCat(", and all ", policy.max_restarts(),
                                               " restarts (--max_restarts) are used up")),
         &child);
    // Other servers have the replicas of one that is lost.
    if (absl::StartsWith(child.name(), "server-") &&
        ++servers_lost_ < std::max(job_.replicas(), 1u))
      return;
    StopJob(failure_);
  }

  void StartDue() {
    if (const absl::Status status = cluster_.group().StartDue(clock_.Now()); !status.ok()) {
      Fail(std::string(status.message()), nullptr);
      StopJob(failure_);
      return;
    }
    if (scheduler_ended_ && !cluster_.scheduler().HasEnded()) scheduler_ended_ = false;
  }

  void Warn(const std::string& what, const ChildProcess& child) {
    console_.Error(absl::StrCat("warning: ", what, "; its log is ", child.log()));
  }

  void ConnectIfListening() {
    if (ending_ != Ending::kNot || scheduler_ended_) return;
    const std::string address = cluster_.SchedulerAddress();
    if (address.empty()) return;
    // Start the nodes first: connecting starts threads, and a process that forks should have few.
    if (const absl::Status status = cluster_.StartNodes(address); !status.ok()) {
      Fail(std::string(status.message()), nullptr);
      Terminate();
      return;
    }
    absl::StatusOr<std::unique_ptr<Security>> security =
        Security::Open(security_options_, RoleSet(PeerRole::kOperator));
    if (!security.ok()) {
      Fail(std::string(security.status().message()), nullptr);
      Terminate();
      return;
    }
    security_ = *std::move(security);
    connection_ = std::make_unique<SchedulerConnection>(address, *security_);
    give_up_at_ = std::nullopt;
    heard_at_ = clock_.Now();
    next_line_at_ = clock_.Now() + kLineInterval;
  }

  // Short until the logs have their nodes' names: a small job ends soon after its nodes register.
  MonotonicDuration StatusInterval() const {
    return cluster_.AllAreNamed() ? kStatusInterval : kNamingInterval;
  }

  // Asks for the status. Returns whether the scheduler answered.
  bool AskScheduler() {
    if (connection_ == nullptr || scheduler_ended_) return false;
    absl::StatusOr<GetStatusResponse> status = connection_->GetStatus(kStatusTimeout);
    const MonotonicTime now = clock_.Now();
    next_status_at_ = now + StatusInterval();
    if (!status.ok()) {
      if (ending_ == Ending::kNot && now - heard_at_ >= kMaxSilence) {
        Fail(absl::StrCat("the scheduler has not answered for ", kMaxSilence.count(),
                          " s: ", status.status().message()),
             &cluster_.scheduler());
        Terminate();
      }
      return false;
    }
    heard_at_ = now;
    status_ = *std::move(status);
    state_ = status_->state();
    cluster_.NameNodes(*status_);
    FollowScale();
    const Progress progress = meter_.Update(*status_, now);
    const std::string line = FormatProgress(progress, console_.width());
    if (console_.is_terminal()) {
      if (!line.empty() && ending_ == Ending::kNot) console_.Draw(line);
    } else if (now >= next_line_at_ && !line.empty()) {
      console_.Line(absl::StrCat("[", FormatSeconds(Seconds(now - started_)), "] ", line));
      next_line_at_ = now + kLineInterval;
    }
    if (HasEnded(state_)) {
      console_.Clear();
      if (state_ == FAILED && job_failure_.empty()) job_failure_ = status_->failure();
      LeaveWithin(kEndGrace);
    }
    return true;
  }

  // Starts the nodes that pawlctl scale asked for.
  void FollowScale() {
    if (ending_ != Ending::kNot || status_->scale().revision() <= scale_revision_ ||
        HasEnded(state_))
      return;
    scale_revision_ = status_->scale().revision();
    if (const absl::Status status = cluster_.StartMissing(*status_); !status.ok()) {
      console_.Error(
          absl::StrCat("cannot start the nodes that the job was scaled to: ", status.message()));
    }
  }

  // Reads the scheduler's result, which is newer than its last answer.
  void ReadMetrics() {
    const std::optional<std::string> text = ReadFile(out_.data("scheduler") + "/metrics.json");
    if (!text.has_value()) return;
    metrics_text_ = *text;
    metrics_ = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!metrics_.is_object()) return;
    JobState state;
    if (JobState_Parse(metrics_.value("state", ""), &state)) state_ = state;
    if (job_failure_.empty()) job_failure_ = metrics_.value("failure", "");
  }

  // The scheduler's result with the number of restarts. Unchanged if it is not a JSON object.
  std::string WithRestarts(const std::string& metrics_text) const {
    nlohmann::ordered_json metrics =
        nlohmann::ordered_json::parse(metrics_text, nullptr, /*allow_exceptions=*/false);
    if (!metrics.is_object()) return metrics_text;
    metrics["restarts"] = nlohmann::ordered_json::object();
    for (const auto& [name, restarts] : cluster_.group().Restarts())
      metrics["restarts"][name] = restarts;
    return metrics.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }

  int Finish() {
    console_.Clear();
    ReadMetrics();
    absl::Status saved;
    if (!metrics_text_.empty())
      saved = out_.Write(out_.metrics_file(), WithRestarts(metrics_text_));
    if (!saved.ok()) console_.Error(saved.message());

    const bool has_result = metrics_.is_object() && saved.ok();
    if (state_ == COMPLETED && has_result && !cluster_.scheduler().KilledBy(SIGKILL)) {
      Summarize();
      const std::string lost = metrics_.value("end_checkpoint_failure", "");
      if (lost.empty()) return kExitDone;
      console_.Error(absl::StrCat("the final checkpoint is missing: ", lost));
      return kExitFailed;
    }
    if (interrupted_by_ != 0) {
      console_.Error(absl::StrCat("job ", job_.name(), " was interrupted; no process is left"));
      return kExitSignal + interrupted_by_;
    }
    const std::string why = !job_failure_.empty() ? job_failure_ : failure_;
    if (state_ == STOPPED) {
      console_.Error(absl::StrCat("job ", job_.name(), " was stopped before its end",
                                  why.empty() ? "" : absl::StrCat(": ", why)));
    } else if (state_ == COMPLETED) {
      console_.Error(absl::StrCat(
          "job ", job_.name(), " completed, but its scheduler left no result (",
          out_.data("scheduler"), "/metrics.json); its log is ", cluster_.scheduler().log()));
    } else {
      console_.Error(absl::StrCat("job ", job_.name(), " failed",
                                  why.empty() ? "" : absl::StrCat(": ", why), "; logs are in ",
                                  out_.path(), "/logs"));
    }
    return kExitFailed;
  }

  void Summarize() {
    const auto number = [this](const char* name) {
      const auto value = metrics_.find(name);
      return value != metrics_.end() && value->is_number() ? value->get<double>() : 0.0;
    };
    const auto count = [&number](const char* name) {
      return FormatCount(static_cast<uint64_t>(number(name)));
    };
    console_.Line(absl::StrCat(
        "job ", job_.name(), " completed in ", FormatSeconds(Seconds(clock_.Now() - started_)),
        " (training ", FormatSeconds(number("wall_s")), "): ", count("steps"), " steps, ",
        count("samples"), " samples, ", count("samples_per_s"), " samples/s"));
    std::vector<std::string> scores;
    if (const auto eval = metrics_.find("eval"); eval != metrics_.end() && eval->is_object()) {
      const auto add = [&](const std::string& name) {
        const auto value = eval->find(name);
        if (value != eval->end() && value->is_number())
          scores.push_back(absl::StrCat(name, " ", FormatValue(value->get<double>())));
      };
      const std::vector<std::string> shown = {"auc",  "logloss", "accuracy", "rmse",
                                              "gauc", "mae",     "ndcg"};
      for (const std::string& name : shown) add(name);
      // Those of further labels.
      for (const auto& [name, value] : eval->items()) {
        const size_t slash = name.rfind('/');
        if (slash != std::string::npos && absl::c_linear_search(shown, name.substr(slash + 1)))
          add(name);
      }
    }
    if (!scores.empty()) console_.Line(absl::StrCat("evaluation: ", absl::StrJoin(scores, "  ")));
    const auto digest = metrics_.find("digest");
    console_.Line(absl::StrCat(
        "digest ",
        digest != metrics_.end() && digest->is_string() ? digest->get<std::string>() : "none",
        "; pushes: ", count("pushes_applied"), " applied, ", count("pushes_deduplicated"),
        " duplicates; staleness at most ", count("staleness_max")));
    if (const std::string end = metrics_.value("end_checkpoint", ""); !end.empty()) {
      console_.Line(absl::StrCat("final checkpoint in ", end));
    }
    console_.Line(absl::StrCat("metrics in ", out_.metrics_file()));
  }

  const Clock& clock_ = Clock::Real();
  const Job job_;
  const uint32_t servers_;
  const uint32_t workers_;
  const std::string restore_;
  // RunOptions::until_stdin_ends, until it has.
  bool until_stdin_ends_;
  const OutFolder& out_;
  SignalWaiter& signals_;
  Console console_;
  LocalCluster cluster_;
  ProgressMeter meter_;

  const SecurityOptions security_options_;
  // Null until the scheduler listens.
  std::unique_ptr<Security> security_;
  std::unique_ptr<SchedulerConnection> connection_;
  MonotonicTime started_;
  MonotonicTime heard_at_;
  MonotonicTime next_status_at_;
  MonotonicTime next_line_at_;
  // The deadline of the current shutdown phase, or of the scheduler's start.
  std::optional<MonotonicTime> give_up_at_;

  Ending ending_ = Ending::kNot;
  bool scheduler_ended_ = false;
  // The signal, or 0.
  int interrupted_by_ = 0;
  // Servers that died and are not restarted.
  uint32_t servers_lost_ = 0;
  // The revision of the last scaling that was applied.
  uint64_t scale_revision_ = 0;
  // The scheduler's last answer.
  std::optional<GetStatusResponse> status_;
  JobState state_ = JOB_STATE_UNSPECIFIED;
  std::string job_failure_;
  // The first failure that this program saw.
  std::string failure_;
  std::string metrics_text_;
  nlohmann::json metrics_;
};

}  // namespace

int RunLocalJob(const LocalJob& job, const RunOptions& options, Programs programs,
                const OutFolder& out, SignalWaiter& signals) {
  // Lost output must not end this program before it has stopped the job.
  signal(SIGPIPE, SIG_IGN);
  return Run(job, options, std::move(programs), out, signals).Go();
}

}  // namespace pawl
