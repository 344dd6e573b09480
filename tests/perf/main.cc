// Benchmarks of the data plane and the optimizers, each compared with its limit on this machine.
//
//   bazel run -c opt //tests/perf:bench
//   bazel run -c opt //tests/perf:bench -- --seconds=10 --rows=sparse --json=FILE
//
// Starts a scheduler and a server as processes and talks to them over loopback TCP. Prints a table,
// and writes the same as JSON to a file or to stdout.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "client_lib/process/child_process.h"
#include "tests/perf/bench_report.h"
#include "tests/perf/cluster_rows.h"
#include "tests/perf/kernel_rows.h"

ABSL_FLAG(double, seconds, 3, "duration of each row");
ABSL_FLAG(std::string, rows, "",
          "run only rows whose name contains this: 'dense', 'one-row', 'sparse', 'kernel', ...; "
          "'safety' and 'tls': the cost of replicas and logs, and of TLS, which other filters "
          "exclude");
ABSL_FLAG(std::string, json, "",
          "file for the JSON, relative to the folder of `bazel run`; empty: stdout");
ABSL_FLAG(uint64_t, sparse_rows, 10000000, "rows of the sparse table");
ABSL_FLAG(uint32_t, calls_in_flight, 4, "concurrent calls in throughput rows");
ABSL_FLAG(std::string, profile, "",
          "record both processes of each cluster row with Linux's perf (Debian's linux-perf); "
          "prefix of the files");

namespace {

// Records the server and this process during a row. The recorder ends by itself.
class Profiler {
 public:
  Profiler(std::string prefix, double seconds) : prefix_(std::move(prefix)), seconds_(seconds) {}

  void Begin(const std::string& row, int server_pid) {
    const std::string file = absl::StrCat(prefix_, absl::StrReplaceAll(row, {{" ", "-"}}), ".perf");
    recorder_.reset();
    auto started = pawl::ChildProcess::Start(
        {"perf",
         "/usr/bin/perf",
         {"record", "-g", "-o", file, "-p", absl::StrCat(server_pid, ",", getpid()), "--", "sleep",
          absl::StrCat(seconds_)},
         file + ".log"});
    if (started.ok()) {
      recorder_ = *std::move(started);
    } else {
      std::fprintf(stderr, "bench: no profile: %s\n", started.status().ToString().c_str());
    }
  }
  void End() {
    if (recorder_ != nullptr)
      recorder_->WaitUntil(pawl::Clock::Real().Now() + std::chrono::seconds(30));
  }

 private:
  const std::string prefix_;
  const double seconds_;
  std::unique_ptr<pawl::ChildProcess> recorder_;
};

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "measures Pawl's data plane and optimizers and compares each with its limit");
  absl::FlagsUsageConfig config;
  config.contains_help_flags = [](absl::string_view file) {
    return absl::EndsWith(file, "main.cc");
  };
  absl::SetFlagsUsageConfig(config);
  absl::ParseCommandLine(argc, argv);
  // As the daemons do (client_lib/daemon/daemon.cc).
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const std::string filter = absl::GetFlag(FLAGS_rows);
  std::vector<pawl::BenchRow> rows;
  int exit_code = 0;
  if (!absl::StartsWith(filter, "kernel")) {
    pawl::ClusterRowsOptions options;
    options.seconds_a_row = absl::GetFlag(FLAGS_seconds);
    options.sparse_rows = absl::GetFlag(FLAGS_sparse_rows);
    options.calls_in_flight = absl::GetFlag(FLAGS_calls_in_flight);
    options.filter = filter;
    Profiler profiler(absl::GetFlag(FLAGS_profile), options.seconds_a_row);
    if (!absl::GetFlag(FLAGS_profile).empty()) {
      options.before_row = [&](const std::string& row, int server_pid) {
        profiler.End();
        profiler.Begin(row, server_pid);
      };
    }
    auto measured = filter == "safety" ? pawl::RunSafetyRows(options)
                    : filter == "tls"  ? pawl::RunTlsRows(options)
                                       : pawl::RunClusterRows(options);
    profiler.End();
    if (measured.ok()) {
      rows = *std::move(measured);
    } else {
      std::fprintf(stderr, "bench: %s\n", measured.status().ToString().c_str());
      exit_code = 1;
    }
  }
  if (filter.empty() || absl::StartsWith(filter, "kernel")) {
    for (pawl::BenchRow& row : pawl::RunKernelRows(absl::GetFlag(FLAGS_seconds) / 3, filter)) {
      if (absl::StrContains(row.name, filter)) rows.push_back(std::move(row));
    }
  }
  std::fputs(pawl::BenchTable(rows).c_str(), stdout);
  const std::string json = pawl::BenchJson(rows);
  std::string path = absl::GetFlag(FLAGS_json);
  if (path.empty()) {
    std::printf("\n%s", json.c_str());
    return exit_code;
  }
  if (const char* folder = std::getenv("BUILD_WORKING_DIRECTORY");
      folder != nullptr && !absl::StartsWith(path, "/")) {
    path = absl::StrCat(folder, "/", path);
  }
  std::ofstream file(path);
  file << json << std::flush;
  if (!file) {
    std::fprintf(stderr, "bench: cannot write %s\n", path.c_str());
    return 1;
  }
  return exit_code;
}
