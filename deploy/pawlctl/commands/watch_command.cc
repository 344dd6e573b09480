#include "deploy/pawlctl/commands/watch_command.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/process/signal_waiter.h"
#include "deploy/pawlctl/cluster/progress.h"
#include "deploy/pawlctl/commands/connection_flags.h"
#include "deploy/pawlctl/commands/report.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/scheduler_connection.h"
#include "scheduler/curve/curve.h"
#include "scheduler/curve/curve_file.h"

namespace pawl {
namespace {

struct WatchOptions {
  ConnectionOptions connection;
  MonotonicDuration interval = std::chrono::milliseconds(200);
};

constexpr MonotonicDuration kShortestPause = std::chrono::milliseconds(200);
// Between two lines of progress without a terminal.
constexpr std::chrono::seconds kLineInterval{10};

// Prints what is new in each answer.
class Watch {
 public:
  explicit Watch(const WatchOptions& options) : options_(options) {}

  int Run() {
    SignalWaiter signals;
    SchedulerConnection scheduler(options_.connection.scheduler, *options_.connection.security);
    const Clock& clock = Clock::Real();
    SilenceLimit silence;
    bool ended_early = false;
    while (true) {
      const absl::StatusOr<GetStatusResponse> status =
          scheduler.GetStatus(options_.connection.timeout);
      const MonotonicTime now = clock.Now();
      const bool may_wait = silence.Allows(status.status(), now);
      if (status.ok()) {
        Show(*status, now);
        if (HasEnded(status->state())) return End(*status);
      } else if (!may_wait) {
        console_.Clear();
        return ReportError(status.status());
      } else {
        console_.Draw("the scheduler does not answer; waiting for it");
      }
      MonotonicDuration pause = options_.interval;
      if (status.ok() && !ended_early) {
        // A scheduler ends soon after its job, so asking at intervals can miss the end.
        ended_early = !absl::IsDeadlineExceeded(scheduler.AwaitEnd(options_.interval));
        pause = MonotonicDuration::zero();
      } else {
        // The wait failed at once, as it does while the job starts: ask often until it works.
        if (ended_early) pause = std::min(pause, kShortestPause);
        ended_early = false;
      }
      if (const int signal = signals.Wait(pause); signal != 0) {
        console_.Clear();
        return kExitSignal + signal;
      }
    }
  }

 private:
  void Show(const GetStatusResponse& status, MonotonicTime now) {
    // The first answer has the evaluations so far.
    if (!curve_.has_value()) curve_.emplace(GetStatusResponse());
    const std::chrono::duration<double> unix_s =
        std::chrono::system_clock::now().time_since_epoch();
    for (const CurvePoint& point : curve_->Next(status)) {
      if (options_.connection.json) {
        console_.Line(CurveLine(unix_s.count(), point));
      } else if (point.kind == CurvePoint::Kind::kEvaluation) {
        console_.Line(EvaluationLine(status, point.step));
      } else if (point.kind == CurvePoint::Kind::kMetrics) {
        for (const auto& [tag, value] : point.values)
          changed_metrics_.insert(tag.substr(tag.find('/') + 1));
      }
    }
    // A program may report them with each step.
    if (!changed_metrics_.empty() && (now >= next_metrics_at_ || HasEnded(status.state()))) {
      console_.Line(MetricsLine(status));
      changed_metrics_.clear();
      next_metrics_at_ = now + kLineInterval;
    }
    if (options_.connection.json || HasEnded(status.state())) return;
    const Progress progress = meter_.Update(status, now);
    if (console_.is_terminal()) {
      console_.Draw(FormatProgress(progress, console_.width()));
    } else if (status.state() != state_ || now >= next_line_at_) {
      console_.Line(FormatProgress(progress, console_.width()));
      next_line_at_ = now + kLineInterval;
    }
    state_ = status.state();
  }

  static std::string EvaluationLine(const GetStatusResponse& status, uint64_t step) {
    for (const EvaluationResult& result : status.evaluations()) {
      if (result.step() != step) continue;
      const std::string probabilities = ProbabilitiesText(result);
      return absl::StrCat("evaluation  ", EvaluationText(result), probabilities.empty() ? "" : "  ",
                          probabilities);
    }
    return "";
  }

  std::string MetricsLine(const GetStatusResponse& status) const {
    std::string line = "metrics    ";
    for (const UserMetric& metric : status.metrics()) {
      if (!changed_metrics_.contains(metric.name())) continue;
      absl::StrAppend(&line, " ", metric.name(), " ", FormatValue(metric.value()), " (step ",
                      FormatCount(metric.step()), ")");
    }
    return line;
  }

  int End(const GetStatusResponse& status) {
    if (options_.connection.json) return status.state() == COMPLETED ? kExitDone : kExitFailed;
    console_.Line(absl::StrCat("job ", status.job().name(), ": ", JobState_Name(status.state()),
                               " after ", FormatCount(status.steps()), " steps and ",
                               FormatSeconds(status.train_s()), " of training",
                               status.failure().empty() ? "" : ": ", status.failure()));
    return status.state() == COMPLETED ? kExitDone : kExitFailed;
  }

  const WatchOptions& options_;
  Console console_;
  ProgressMeter meter_;
  std::optional<Curve> curve_;
  // Without a terminal: the state in the last line, and when the next one is due.
  JobState state_ = JOB_STATE_UNSPECIFIED;
  MonotonicTime next_line_at_;
  // The names of metrics that have changed since their last line, and when the next one is due.
  std::set<std::string> changed_metrics_;
  MonotonicTime next_metrics_at_;
};

}  // namespace

void AddWatchCommand(CommandLine& line) {
  const auto options = std::make_shared<WatchOptions>();
  CLI::App& command = line.AddCommand(
      "watch", "a running job's progress and evaluations as they happen",
      "On a terminal, keeps a line of progress at the bottom, and prints each evaluation above\n"
      "it; elsewhere prints a line of progress every ten seconds. The program's own metrics are\n"
      "printed every ten seconds if they have changed. --json prints the learning\n"
      "curve from now on as JSON lines, like curve.jsonl of pawlctl run, after the evaluations\n"
      "so far. Waits up to a minute for a scheduler that restarts. Exits with 0 when the job has\n"
      "completed and with 1 if it failed or was stopped.\n"
      "\n"
      "  pawlctl watch --scheduler=10.0.0.1:7000\n"
      "  PAWL_SCHEDULER=$(cat out/flights/scheduler.addr) pawlctl watch --json > curve.jsonl",
      [options] { return Watch(*options).Run(); });
  AddFlag(command, "--interval", "DURATION", options->interval,
          "How often to ask the scheduler; default: 200ms.");
  AddConnectionFlags(command, options->connection);
}

}  // namespace pawl
