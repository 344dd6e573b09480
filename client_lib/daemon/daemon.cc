#include "client_lib/daemon/daemon.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "client_lib/base/host_port.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/daemon/floating_point_mode.h"
#include "client_lib/process/malloc_tuning.h"
#include "client_lib/rpc/version.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

std::string& BinaryName() {
  static std::string name;
  return name;
}

// Runs on a thread that a library started before main (OpenBLAS does) and that therefore does not
// block the signal. Blocks it for that thread, and sends it again, for EndSignal::Wait.
void PassOnSignal(int signal, siginfo_t*, void* context) {
  sigset_t& blocked = static_cast<ucontext_t*>(context)->uc_sigmask;
  sigaddset(&blocked, SIGTERM);
  sigaddset(&blocked, SIGINT);
  kill(getpid(), signal);
}

// The exit code while flags are parsed; -1 afterwards.
int parsing_exit_code = -1;

// Each connection takes a file descriptor, and gRPC 1.51 stops accepting permanently once a process
// has run out of them.
void AllowManyFiles() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

EndSignal::EndSignal() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = PassOnSignal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  // No signal may reach its thread.
  action.sa_mask = signals_;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

bool EndSignal::Wait(MonotonicDuration timeout) {
  if (seen_) {
    std::this_thread::sleep_for(timeout);
    return true;
  }
  const auto nanoseconds =
      std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(timeout).count());
  const timespec wait{static_cast<time_t>(nanoseconds / 1000000000),
                      static_cast<long>(nanoseconds % 1000000000)};
  const int signal = sigtimedwait(&signals_, nullptr, &wait);
  if (signal > 0) {
    seen_ = true;
    spdlog::info("shutting down on signal: {}", strsignal(signal));
  }
  return seen_;
}

void SetUpDaemon(const std::string& name, const std::string& usage, int argc, char** argv) {
  BinaryName() = name;
  // Debian's Abseil records every locking, also gRPC's, in a global graph that one lock guards.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  KeepFreedMemory();
  absl::SetProgramUsageMessage(usage);
  absl::FlagsUsageConfig config;
  // Excludes Abseil's own flags.
  config.contains_help_flags = [](absl::string_view file) {
    return !absl::StrContains(file, "absl/flags/");
  };
  config.contains_helpshort_flags = config.contains_help_flags;
  config.version_string = [name] { return absl::StrCat(name, " ", kVersion, "\n"); };
  absl::SetFlagsUsageConfig(config);
  const bool asks = std::any_of(argv, argv + argc, [](absl::string_view argument) {
    return absl::StartsWith(argument, "--help") || absl::StartsWith(argument, "-help") ||
           argument == "--version";
  });
  // Abseil exits with 1 for invalid flags and after --help, with 0 after --version.
  parsing_exit_code = asks ? kExitDone : kExitUsage;
  std::atexit([] {
    if (parsing_exit_code < 0) return;
    std::fflush(nullptr);
    _exit(parsing_exit_code);
  });
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  parsing_exit_code = -1;
  AllowManyFiles();
  // Logs, snapshots and checkpoints hold the model: other users of the machine cannot read them.
  umask(umask(0) | S_IRWXO);
  if (const absl::Status mode = CheckFloatingPointMode(); !mode.ok())
    std::exit(UsageError(mode.message()));
  if (rest.size() > 1) std::exit(UsageError(absl::StrCat("unexpected argument '", rest[1], "'")));
  spdlog::set_default_logger(spdlog::stderr_color_mt(name));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ " + name + " %v");
  spdlog::flush_on(spdlog::level::info);
}

int UsageError(absl::string_view problem) {
  std::fprintf(stderr, "%s: %s\nTry '%s --help'.\n", BinaryName().c_str(),
               std::string(problem).c_str(), BinaryName().c_str());
  return kExitUsage;
}

std::string SchedulerAddress(const std::string& flag) {
  if (!flag.empty()) return flag;
  const char* environment = std::getenv("PAWL_SCHEDULER");
  return environment == nullptr ? "" : environment;
}

absl::Status CheckAddressFlags(const std::string& listen, const std::string& advertise,
                               bool is_announced) {
  const absl::StatusOr<HostPort> at = ParseHostPort(listen);
  if (!at.ok()) return Annotate(at.status(), "--listen");
  if (advertise.empty()) {
    if (!is_announced || !at->IsWildcard()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--listen=", listen,
                     " is a wildcard address; set --advertise=HOST:PORT "
                     "to the address that others can reach"));
  }
  const absl::StatusOr<HostPort> told = ParseHostPort(advertise);
  if (!told.ok()) return Annotate(told.status(), "--advertise");
  if (told->port != 0 && !told->IsWildcard()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--advertise=", advertise, " is not an address that others can connect to"));
}

absl::Status CheckSchedulerAddress(const std::string& address) {
  for (const absl::string_view one : absl::StrSplit(address, ',')) {
    const absl::StatusOr<HostPort> parsed = ParseHostPort(one);
    if (!parsed.ok()) return Annotate(parsed.status(), "--scheduler");
    if (parsed->port == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--scheduler: ", one, " has port 0; use the port that the scheduler listens on"));
    }
  }
  return absl::OkStatus();
}

}  // namespace pawl
