#include "deploy/pawlctl/cluster/run_command.h"

#include <signal.h>
#include <string.h>

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
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/job_file.h"
#include "client_lib/job/job_validation.h"
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

// Reading and checking the job, and binding a port.
constexpr seconds kSchedulerStartTime{30};
// How often to look for the scheduler's address.
constexpr milliseconds kAddressInterval{20};
// How often to ask the scheduler how it goes, and how long to wait for the answer.
constexpr milliseconds kStatusInterval{500};
constexpr milliseconds kStatusTimeout{500};
// A line this often where no line can be drawn anew.
constexpr seconds kLineInterval{5};
// A scheduler that answers nothing for so long does not come back by itself.
constexpr seconds kMaxSilence{120};
// How long the processes have to end by themselves after the job has, after SIGTERM, and when
// nobody tells them.
constexpr seconds kEndGrace{10};
constexpr seconds kTermGrace{5};
constexpr seconds kStopGrace{3};
// Of the log of a process that died.
constexpr size_t kTailLines = 15;

bool IsOver(JobState state) { return state == COMPLETED || state == FAILED || state == STOPPED; }

// The whole file, or nothing if it is not there.
std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

struct PreparedJob {
  Job job;
  uint32_t workers;
};

// As pawl-worker's --collectives has them.
constexpr absl::string_view kCollectives[] = {"auto", "gloo", "nccl"};

std::vector<std::string> WorkerFlags(const RunOptions& options) {
  std::vector<std::string> flags;
  if (!options.collectives.empty())
    flags.push_back(absl::StrCat("--collectives=", options.collectives));
  if (options.cuda_graphs) flags.emplace_back("--cuda_graphs");
  return flags;
}

// As pawl-worker's --device has it.
bool IsDeviceName(absl::string_view name) {
  if (name == "cpu") return true;
  return absl::ConsumePrefix(&name, "cuda:") && !name.empty() &&
         absl::c_all_of(name, absl::ascii_isdigit);
}

// The job as it shall run; its mistakes are found here, before anything is started.
absl::StatusOr<PreparedJob> PrepareJob(const RunOptions& options) {
  if (options.job.empty()) {
    return absl::InvalidArgumentError(
        "--job=FILE is missing: which job shall run? See pawlctl run --help");
  }
  if (options.servers < 1 || options.servers > kMaxLocalNodes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--servers=", options.servers, " is not possible: on one machine 1 to ", kMaxLocalNodes));
  }
  PAWL_ASSIGN_OR_RETURN(Job job, ReadJobFile(options.job));
  for (const std::string& setting : options.set) {
    PAWL_RETURN_IF_ERROR(Annotate(ApplyOverride(job, setting), absl::StrCat("--set=", setting)));
  }
  if (options.replicas != 0) job.set_replicas(options.replicas);
  if (options.replicas > options.servers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--replicas=", options.replicas, " is not possible with --servers=", options.servers,
        ": each replica of a partition is on another server"));
  }
  for (const std::string& device : options.devices) {
    if (!IsDeviceName(device)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--device=", device, " is not possible: cpu or cuda:N, such as cuda:0"));
    }
  }
  if (!options.collectives.empty() && !absl::c_linear_search(kCollectives, options.collectives)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--collectives=", options.collectives,
                     " is not possible: ", absl::StrJoin(kCollectives, ", ")));
  }
  if (Durability durability; !options.durability.empty()) {
    if (!Durability_Parse(options.durability, &durability) ||
        durability == DURABILITY_UNSPECIFIED) {
      return absl::InvalidArgumentError(absl::StrCat("--durability=", options.durability,
                                                     " is not possible: MEMORY, LOG or FSYNC"));
    }
    job.set_durability(durability);
  }
  ResolvePaths(job, std::filesystem::current_path().string());
  const int32_t workers = options.workers >= 0 ? options.workers : IsServeOnly(job) ? 0 : 1;
  if (IsServeOnly(job) && workers != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers=", workers, ": ", options.job,
                     " has neither data nor model, so that its workers are programs of "
                     "your own: leave --workers out"));
  }
  if (!IsServeOnly(job) && (workers < 1 || workers > static_cast<int32_t>(kMaxLocalNodes))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--workers=", workers, " is not possible: on one machine 1 to ", kMaxLocalNodes));
  }
  PreparedJob prepared = {.job = std::move(job), .workers = static_cast<uint32_t>(workers)};
  PAWL_RETURN_IF_ERROR(Annotate(
      ValidateJob(prepared.job,
                  {.check_files = true, .workers = prepared.workers, .servers = options.servers}),
      options.job));
  return prepared;
}

// One run, from the start of the scheduler to the end of the last process.
//
// The scheduler decides how the job stands; this class watches, starts again what dies, tells and
// cleans up. It ends the job itself only if the user asks, if the scheduler does not come back, if
// a process dies that the scheduler has never known, or if one that the job cannot do without has
// died once too often. Every wait has an end: see `give_up_at_`, which each step towards the end
// sets anew.
class Run {
 public:
  Run(const PreparedJob& job, const RunOptions& options, Programs programs, const OutFolder& out,
      SignalWaiter& signals)
      : job_(job.job),
        servers_(options.servers),
        workers_(job.workers),
        restore_(options.restore),
        out_(out),
        signals_(signals),
        cluster_(std::move(programs), out, options.servers, job.workers, options.max_restarts,
                 options.devices, WorkerFlags(options)) {}

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
      MonotonicDuration wait = connection_ == nullptr ? kAddressInterval : kStatusInterval;
      if (cluster_.next_start().has_value())
        wait = std::min(wait, *cluster_.next_start() - clock_.Now());
      const int signal = signals_.Wait(wait);
      if (signal != 0 && signal != SIGCHLD) OnSignal(signal);
      for (ChildProcess* child : cluster_.TakeEnded()) OnEnded(*child);
      StartDue();
      if (cluster_.Running() == 0 && !cluster_.next_start().has_value()) break;
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
  // The steps towards the end.
  enum class Ending { kNot, kLeaving, kTerminated, kKilled };

  void OnSignal(int signal) {
    if (interrupted_by_ != 0) {
      console_.Error("asked again: killing all processes");
      Kill();
      return;
    }
    interrupted_by_ = signal;
    console_.Error(absl::StrCat("got ", sigdescr_np(signal), ": stopping the job",
                                signal == SIGINT ? " (once more to kill it)" : ""));
    StopJob("interrupted by its user");
  }

  // Asks the scheduler to end the job, or ends the processes if it does not take that.
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
    cluster_.CancelRestarts();
    ending_ = Ending::kLeaving;
    give_up_at_ = clock_.Now() + grace;
  }

  void Terminate() {
    if (ending_ == Ending::kKilled) return;
    cluster_.CancelRestarts();
    ending_ = Ending::kTerminated;
    cluster_.SignalAll(SIGTERM);
    give_up_at_ = clock_.Now() + kTermGrace;
  }

  void Kill() {
    cluster_.CancelRestarts();
    ending_ = Ending::kKilled;
    cluster_.SignalAll(SIGKILL);
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
        console_.Error(absl::StrCat(cluster_.Running(), " processes did not end within ",
                                    kTermGrace.count(), " s of SIGTERM: killing them"));
        Kill();
        break;
      case Ending::kKilled:
        break;
    }
  }

  // Notes the first reason for which the run cannot succeed, and says it with the last words of the
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
    // Asked to by this program.
    if (ending_ == Ending::kTerminated || ending_ == Ending::kKilled || interrupted_by_ != 0)
      return;
    const bool answered = !is_scheduler && ending_ == Ending::kNot && AskScheduler();
    // What it has written says whether the job is over.
    if (cluster_.scheduler().HasEnded()) ReadMetrics();
    const std::string what = absl::StrCat(is_scheduler ? "the scheduler" : child.name(), " (pid ",
                                          child.pid(), ") ", child.HowItEnded());
    if (IsOver(state_)) {
      // Everybody leaves a job that is over; those that do it badly are named but change nothing.
      if (is_scheduler) LeaveWithin(kEndGrace);
      if (!is_scheduler && !child.Succeeded() && state_ == COMPLETED) {
        Warn(absl::StrCat(what, " after the job had completed"), child);
      }
      return;
    }
    if (ending_ != Ending::kNot) return;
    if (is_scheduler && (child.Succeeded() || connection_ == nullptr)) {
      Fail(
          absl::StrCat(what, child.Succeeded() ? " before the job was over" : " before it listened",
                       "; ending the whole cluster"),
          &child);
      Terminate();
      return;
    }
    if (child.Succeeded()) {
      // It was asked to, as by SIGTERM: the scheduler decides what that means.
      if (answered) console_.Error(absl::StrCat(what, ": it has left the job"));
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
    const RestartPolicy& policy = cluster_.restart_policy();
    if (const std::optional<MonotonicDuration> delay = cluster_.Restart(child, clock_.Now());
        delay.has_value()) {
      console_.Error(absl::StrCat(what, ": starting it again in ",
                                  std::chrono::duration_cast<milliseconds>(*delay).count(),
                                  " ms (restart ", policy.restarts(), " of at most ",
                                  policy.max_restarts(), "); its log is ", child.log()));
      return;
    }
    Fail(absl::StrCat(what, policy.max_restarts() == 0
                                ? ", and nothing is started again (--max_restarts=0)"
                                : absl::StrCat(", and all ", policy.max_restarts(),
                                               " restarts (--max_restarts) are used up")),
         &child);
    // What other servers have too can be done without.
    if (absl::StartsWith(child.name(), "server-") &&
        ++servers_lost_ < std::max(job_.replicas(), 1u))
      return;
    StopJob(failure_);
  }

  void StartDue() {
    if (const absl::Status status = cluster_.StartDue(clock_.Now()); !status.ok()) {
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
    // The nodes first: connecting starts threads, and what forks should have few.
    if (const absl::Status status = cluster_.StartNodes(address); !status.ok()) {
      Fail(std::string(status.message()), nullptr);
      Terminate();
      return;
    }
    connection_ = std::make_unique<SchedulerConnection>(address);
    give_up_at_ = std::nullopt;
    heard_at_ = clock_.Now();
    next_line_at_ = clock_.Now() + kLineInterval;
  }

  // Returns whether it has answered.
  bool AskScheduler() {
    if (connection_ == nullptr || scheduler_ended_) return false;
    absl::StatusOr<GetStatusResponse> status = connection_->GetStatus(kStatusTimeout);
    const MonotonicTime now = clock_.Now();
    next_status_at_ = now + kStatusInterval;
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
    if (IsOver(state_)) {
      console_.Clear();
      if (state_ == FAILED && job_failure_.empty()) job_failure_ = status_->failure();
      LeaveWithin(kEndGrace);
    }
    return true;
  }

  // Somebody has asked for more servers or workers.
  void FollowScale() {
    if (ending_ != Ending::kNot || status_->scale().revision() <= scale_revision_ || IsOver(state_))
      return;
    scale_revision_ = status_->scale().revision();
    if (const absl::Status status = cluster_.StartMissing(*status_); !status.ok()) {
      console_.Error(absl::StrCat("cannot start what the job was scaled to: ", status.message()));
    }
  }

  // What the scheduler wrote at its end says more than the last answer that was had from it.
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

  // The scheduler's result, with what only this program knows; as it is if it is no JSON object.
  std::string WithRestarts(const std::string& metrics_text) const {
    nlohmann::ordered_json metrics =
        nlohmann::ordered_json::parse(metrics_text, nullptr, /*allow_exceptions=*/false);
    if (!metrics.is_object()) return metrics_text;
    metrics["restarts"] = nlohmann::ordered_json::object();
    for (const auto& [name, restarts] : cluster_.Restarts()) metrics["restarts"][name] = restarts;
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
      console_.Error(absl::StrCat("there is no checkpoint of the job's end: ", lost));
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
      for (const char* name : {"auc", "logloss", "accuracy", "rmse"}) {
        const auto value = eval->find(name);
        if (value != eval->end() && value->is_number()) {
          scores.push_back(absl::StrCat(name, " ", FormatValue(value->get<double>())));
        }
      }
    }
    if (!scores.empty()) console_.Line(absl::StrCat("evaluation: ", absl::StrJoin(scores, "  ")));
    const auto digest = metrics_.find("digest");
    console_.Line(absl::StrCat(
        "digest ",
        digest != metrics_.end() && digest->is_string() ? digest->get<std::string>() : "none",
        "; pushes: ", count("pushes_applied"), " applied, ", count("pushes_deduplicated"),
        " recognised as repeated; staleness at most ", count("staleness_max")));
    if (const std::string end = metrics_.value("end_checkpoint", ""); !end.empty()) {
      console_.Line(absl::StrCat("checkpoint of the end in ", end));
    }
    console_.Line(absl::StrCat("metrics in ", out_.metrics_file()));
  }

  const Clock& clock_ = Clock::Real();
  const Job job_;
  const uint32_t servers_;
  const uint32_t workers_;
  const std::string restore_;
  const OutFolder& out_;
  SignalWaiter& signals_;
  Console console_;
  LocalCluster cluster_;
  ProgressMeter meter_;

  // From when the scheduler listens.
  std::unique_ptr<SchedulerConnection> connection_;
  MonotonicTime started_;
  MonotonicTime heard_at_;
  MonotonicTime next_status_at_;
  MonotonicTime next_line_at_;
  // When the present step towards the end, or the start of the scheduler, has taken too long.
  std::optional<MonotonicTime> give_up_at_;

  Ending ending_ = Ending::kNot;
  bool scheduler_ended_ = false;
  // The signal, or 0.
  int interrupted_by_ = 0;
  // Those that are not started again.
  uint32_t servers_lost_ = 0;
  // Of the last scaling that was followed.
  uint64_t scale_revision_ = 0;
  // What the scheduler said last.
  std::optional<GetStatusResponse> status_;
  JobState state_ = JOB_STATE_UNSPECIFIED;
  std::string job_failure_;
  // What this program saw going wrong first.
  std::string failure_;
  std::string metrics_text_;
  nlohmann::json metrics_;
};

}  // namespace

int RunCommand(const RunOptions& options) {
  Console console;
  const auto usage_error = [&console](const absl::Status& status) {
    console.Error(status.message());
    return kExitUsage;
  };
  const absl::StatusOr<PreparedJob> job = PrepareJob(options);
  if (!job.ok()) return usage_error(job.status());
  absl::StatusOr<Programs> programs = FindPrograms(options.own_program, options.bin_folder);
  if (!programs.ok()) return usage_error(programs.status());
  const absl::StatusOr<std::unique_ptr<OutFolder>> out =
      OutFolder::Open(options.out.empty() ? absl::StrCat("out/", job->job.name()) : options.out);
  if (!out.ok()) return usage_error(out.status());
  if (const absl::Status status = (*out)->Write((*out)->job_file(), JobText(job->job));
      !status.ok()) {
    return usage_error(status);
  }
  SignalWaiter signals;
  return Run(*job, options, *std::move(programs), **out, signals).Go();
}

}  // namespace pawl
