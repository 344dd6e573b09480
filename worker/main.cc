// pawl-worker: computes gradients for a job.
//
//   pawl-worker --scheduler=10.0.0.1:7000
//
// It joins the job that the scheduler runs, reads the job's data, and trains the
// logical workers that the scheduler assigns to it until the job ends.
//
// Exit codes:
//   0    the job has completed
//   1    the job has failed, or the scheduler cannot be reached
//   2    wrong usage, or this worker cannot do the job: its data, its model or the device is at fault
//   3    the job was stopped
//   130, 143   ended by Ctrl-C, SIGTERM
#include <signal.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"
#include "worker/interrupt.h"
#include "worker/worker.h"

ABSL_FLAG(std::string, scheduler, "", "host:port of the scheduler; default: the environment's PAWL_SCHEDULER");
ABSL_FLAG(std::string, device, "cpu", "what computes: cpu, or cuda:N for the N-th GPU");
ABSL_FLAG(int, connect_timeout_s, 60, "how long to try to reach the scheduler and to wait for the job's servers");
ABSL_FLAG(int, step_delay_ms, 0,
          "for tests and demonstrations: wait so long in each step before ending it, to play a slow worker");

namespace pawl {
namespace {

constexpr char kUsage[] =
    "computes gradients for a job.\n\n"
    "  pawl-worker --scheduler=HOST:PORT [--device=cpu|cuda:N]\n\n"
    "Joins the job that the scheduler runs, reads the job's data files (their paths must be valid on this machine), "
    "trains the logical workers that the scheduler assigns to it, and ends with the job. Start as many workers as "
    "pawl-scheduler's --workers says; `pawlctl run` does all of that on one machine.\n\n"
    "Exit codes: 0 the job has completed; 1 it has failed, or the scheduler cannot be reached; 2 wrong usage, or this "
    "worker cannot do the job (bad data, say); 3 the job was stopped; 130 or 143 ended by Ctrl-C or SIGTERM.";

// How long the process takes at most to end after a signal: something may be stuck.
constexpr std::chrono::seconds kSignalGrace{3};

int Usage(absl::string_view problem) {
  std::fprintf(stderr, "pawl-worker: %.*s\nTry 'pawl-worker --help'.\n", static_cast<int>(problem.size()), problem.data());
  return 2;
}

// Takes SIGINT and SIGTERM, which are blocked in all threads, and sets the interrupt. Ends the process
// itself if that is not enough.
class SignalWatcher {
 public:
  explicit SignalWatcher(Interrupt& interrupt) : interrupt_(interrupt) {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    thread_ = std::thread([this] { Watch(); });
  }
  ~SignalWatcher() {
    ending_ = true;
    thread_.join();
  }

  // The signal that came; 0: none.
  int signal() const { return signal_; }

 private:
  void Watch() {
    const timespec poll{0, 50'000'000};
    while (!ending_ && signal_ == 0) {
      if (const int signal = sigtimedwait(&signals_, nullptr, &poll); signal > 0) signal_ = signal;
    }
    if (signal_ == 0) return;
    interrupt_.Set(absl::CancelledError(signal_ == SIGINT ? "it was interrupted (SIGINT)" : "it was asked to end (SIGTERM)"));
    const MonotonicTime deadline = Clock::Real().Now() + kSignalGrace;
    while (!ending_ && Clock::Real().Now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (!ending_) std::_Exit(128 + signal_);
  }

  Interrupt& interrupt_;
  sigset_t signals_;
  std::atomic<int> signal_{0};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

int ExitCode(WorkerEnd end, int signal) {
  switch (end) {
    case WorkerEnd::kCompleted:
      return 0;
    case WorkerEnd::kFailed:
      return 1;
    case WorkerEnd::kUnable:
      return 2;
    case WorkerEnd::kStopped:
      return 3;
    case WorkerEnd::kInterrupted:
      return 128 + signal;
  }
  std::abort();
}

int Main(int argc, char** argv) {
  absl::SetProgramUsageMessage(kUsage);
  if (const auto rest = absl::ParseCommandLine(argc, argv); rest.size() > 1) {
    return Usage(absl::StrCat("unexpected argument '", rest[1], "'"));
  }
  WorkerOptions options;
  options.scheduler = absl::GetFlag(FLAGS_scheduler);
  if (const char* const address = std::getenv("PAWL_SCHEDULER"); options.scheduler.empty() && address != nullptr) {
    options.scheduler = address;
  }
  if (options.scheduler.empty()) return Usage("--scheduler is missing, and so is PAWL_SCHEDULER in the environment");
  options.device = absl::GetFlag(FLAGS_device);
  if (absl::GetFlag(FLAGS_connect_timeout_s) < 1) return Usage("--connect_timeout_s must be at least 1");
  options.connect_timeout = std::chrono::seconds(absl::GetFlag(FLAGS_connect_timeout_s));
  if (absl::GetFlag(FLAGS_step_delay_ms) < 0) return Usage("--step_delay_ms must not be negative");
  options.step_delay = std::chrono::milliseconds(absl::GetFlag(FLAGS_step_delay_ms));

  spdlog::set_default_logger(spdlog::stderr_color_mt("pawl-worker"));
  Interrupt interrupt;
  WorkerOutcome outcome;
  int signal = 0;
  {
    SignalWatcher watcher(interrupt);
    outcome = RunWorker(options, interrupt);
    signal = watcher.signal();
  }
  const std::string why(outcome.status.message());
  switch (outcome.end) {
    case WorkerEnd::kCompleted:
      spdlog::info("the job has completed");
      break;
    case WorkerEnd::kStopped:
      spdlog::info("the job was stopped: {}", why);
      break;
    case WorkerEnd::kFailed:
      spdlog::error("the job has failed: {}", why);
      break;
    case WorkerEnd::kUnable:
      spdlog::error("this worker cannot do its part: {}", why);
      break;
    case WorkerEnd::kInterrupted:
      spdlog::info("leaving the job: {}", why);
      break;
  }
  const int exit_code = ExitCode(outcome.end, signal);
  // A thread may still be reading data: what it uses must not be torn down under it.
  if (outcome.end == WorkerEnd::kInterrupted) {
    spdlog::default_logger()->flush();
    std::_Exit(exit_code);
  }
  return exit_code;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) { return pawl::Main(argc, argv); }
