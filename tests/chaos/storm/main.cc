// storm: injects seeded faults into a cluster under load and checks the outcome of every push.
// `deploy/chaos` runs it.
//
//   storm --minutes=10 --seed=7 --out=storm
//
// Prints each fault and a final report, and writes report.json and report.txt to --out. The
// cluster's logs and the senders' notes stay in a folder that it prints. Exit codes: 0: all
// promises were kept, 1: a promise was broken, 2: wrong usage, 3: the cluster cannot start.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client_lib/daemon/daemon.h"
#include "tests/chaos/storm/storm.h"
#include "tests/harness/loop_disk.h"

ABSL_FLAG(double, minutes, 1, "duration");
ABSL_FLAG(uint64_t, seed, 0, "seed of the faults; 0: random");
ABSL_FLAG(std::string, out, "", "folder for report.json and report.txt; created if missing");
ABSL_FLAG(uint32_t, servers, 3, "number of servers");
ABSL_FLAG(
    uint32_t, replicas, 2,
    "replicas of each partition; 0: the job does not set them, and no fault hits stored data");
ABSL_FLAG(std::string, durability, "LOG", "MEMORY, LOG or FSYNC; empty: the job does not set it");
ABSL_FLAG(std::string, mode, "ASYNC",
          "ASYNC: free-running senders; BOUNDED, SYNC: each sender is a rank");
ABSL_FLAG(bool, clips, false, "SYNC: steps close in two rounds, as with clip_global_norm");
ABSL_FLAG(uint32_t, senders, 3, "number of senders");
ABSL_FLAG(uint32_t, partitions, 16, "number of partitions");
ABSL_FLAG(double, pushes_per_second, 50, "rate of each sender");
ABSL_FLAG(uint32_t, row_width, 64, "floats per row; a push has one row in each partition");
ABSL_FLAG(uint64_t, rows, 0,
          "rows of an additional table, written before the storm and read after it, so that the "
          "servers hold gigabytes");
ABSL_FLAG(std::string, faults, "",
          "comma-separated kinds of faults; default: all that such a cluster must survive");
ABSL_FLAG(std::string, failpoints, "", "comma-separated failpoints at which servers crash");
ABSL_FLAG(bool, tls, false, "all connections use mutual TLS");
ABSL_FLAG(uint32_t, heartbeat_interval_ms, 200, "heartbeat interval of the cluster");
ABSL_FLAG(uint32_t, lease_ms, 1000, "lease of the cluster");
ABSL_FLAG(uint32_t, max_scheduler_away_s, 60, "longest absence of the scheduler");
ABSL_FLAG(uint32_t, max_silence_ms, 5000, "longest cut of a link");
ABSL_FLAG(uint32_t, max_disk_trouble_s, 10, "longest time that a disk is full or hangs");
ABSL_FLAG(uint32_t, max_recovery_s, 60, "longest recovery after the end of a fault");

namespace pawl {
namespace {

constexpr int kExitNoCluster = 3;

int Run() {
  StormOptions options;
  options.seed = absl::GetFlag(FLAGS_seed);
  if (options.seed == 0) options.seed = std::random_device{}();
  options.duration = std::chrono::duration_cast<MonotonicDuration>(
      std::chrono::duration<double, std::ratio<60>>(absl::GetFlag(FLAGS_minutes)));
  options.servers = absl::GetFlag(FLAGS_servers);
  options.replicas = absl::GetFlag(FLAGS_replicas);
  if (const std::string name = absl::GetFlag(FLAGS_durability); name.empty()) {
    options.durability = DURABILITY_UNSPECIFIED;
  } else if (!Durability_Parse(name, &options.durability)) {
    return UsageError(absl::StrCat("--durability=", name, " must be MEMORY, LOG or FSYNC"));
  }
  if (const std::string name = absl::GetFlag(FLAGS_mode);
      !ConsistencyMode_Parse(name, &options.mode)) {
    return UsageError(absl::StrCat("--mode=", name, " must be ASYNC, BOUNDED or SYNC"));
  }
  options.clips = absl::GetFlag(FLAGS_clips);
  if (options.clips && options.mode != SYNC) return UsageError("--clips needs --mode=SYNC");
  options.senders = absl::GetFlag(FLAGS_senders);
  options.partitions = absl::GetFlag(FLAGS_partitions);
  options.pushes_per_second = absl::GetFlag(FLAGS_pushes_per_second);
  options.row_width = absl::GetFlag(FLAGS_row_width);
  const absl::StatusOr<std::vector<FaultKind>> kinds = ParseFaultKinds(absl::GetFlag(FLAGS_faults));
  if (!kinds.ok()) return UsageError(absl::StrCat("--faults: ", kinds.status().message()));
  options.kinds = *kinds;
  options.failpoints = absl::StrSplit(absl::GetFlag(FLAGS_failpoints), ',', absl::SkipEmpty());
  options.tls = absl::GetFlag(FLAGS_tls);
  options.heartbeat_interval_ms = absl::GetFlag(FLAGS_heartbeat_interval_ms);
  options.lease_ms = absl::GetFlag(FLAGS_lease_ms);
  options.max_scheduler_away = std::chrono::seconds(absl::GetFlag(FLAGS_max_scheduler_away_s));
  options.max_silence = std::chrono::milliseconds(absl::GetFlag(FLAGS_max_silence_ms));
  options.bulk_rows = absl::GetFlag(FLAGS_rows);
  options.max_disk_trouble = std::chrono::seconds(absl::GetFlag(FLAGS_max_disk_trouble_s));
  const absl::Status mounts = LoopDisk::EnterPrivateMounts();
  options.disks = mounts.ok();
  options.max_recovery = std::chrono::seconds(absl::GetFlag(FLAGS_max_recovery_s));
  options.progress = [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  };
  const std::string out = absl::GetFlag(FLAGS_out);
  if (std::error_code error;
      !out.empty() && (std::filesystem::create_directories(out, error), error)) {
    return UsageError(absl::StrCat("--out=", out, ": ", error.message()));
  }

  options.progress(absl::StrCat("seed ", options.seed));
  if (!mounts.ok())
    options.progress(
        absl::StrCat("without disk-full and disk-hang, which need root: ", mounts.message()));
  std::string folder;
  const absl::StatusOr<StormReport> report = RunStorm(options, &folder);
  if (!report.ok()) {
    std::fprintf(stderr, "storm: %s\n", report.status().ToString().c_str());
    return absl::IsInvalidArgument(report.status()) ? kExitUsage : kExitNoCluster;
  }
  std::printf("\n%slogs and notes: %s\n", report->ToText().c_str(), folder.c_str());
  if (!out.empty()) {
    std::ofstream(absl::StrCat(out, "/report.txt")) << report->ToText();
    std::ofstream(absl::StrCat(out, "/report.json")) << report->ToJson().dump(2) << "\n";
  }
  return report->ok() ? kExitDone : kExitFailed;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  pawl::SetUpDaemon(
      "storm",
      "injects seeded faults into a cluster under load and checks the outcome of every push.\n\n"
      "  storm --minutes=10 --seed=7 --out=storm\n\n"
      "Exit codes: 0: all promises were kept, 1: a promise was broken, 2: wrong usage, 3: the "
      "cluster\ncannot start.",
      argc, argv);
  return pawl::Run();
}
