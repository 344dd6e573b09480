// pawl-server: holds a share of a job's parameters and serves pushes and pulls.
//
//   pawl-server --scheduler=10.0.0.1:7000 --data_dir=/var/lib/pawl
//
// The server registers with the scheduler, which assigns its partitions, and serves until the job
// ends. It may join and leave while the job runs. Exit codes: 0: the job has completed or was
// stopped, or the process was asked to end (SIGTERM, Ctrl-C, pawlctl drain); 1: the job has failed,
// the scheduler cannot be reached, --data_dir is in use or does not answer, or other servers that
// have the data of a damaged log are absent; 2: wrong usage, or a file in --data_dir is damaged and
// cannot be replaced from other servers.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/daemon/daemon.h"
#include "client_lib/process/malloc_tuning.h"
#include "client_lib/process/process_description.h"
#include "client_lib/security/security_options.h"
#include "server/server_daemon.h"

ABSL_FLAG(std::string, scheduler, "",
          "host:port of the scheduler, or of it and its standbys (IP addresses, separated by "
          "commas); default: PAWL_SCHEDULER in the environment");
ABSL_FLAG(
    std::string, listen, "",
    "host:port to listen on for workers, other servers and the scheduler; port 0 takes a free "
    "one. Default: a free port of the address by which this machine reaches the scheduler");
ABSL_FLAG(std::string, advertise, "",
          "host:port at which others reach this server, if it differs from the one it listens on "
          "(as with 0.0.0.0)");
ABSL_FLAG(std::string, tls_dir, "", pawl::kTlsDirHelp);
ABSL_FLAG(bool, insecure, false, pawl::kInsecureHelp);
ABSL_FLAG(
    std::string, data_dir, "",
    "folder for the log of this server only; created if missing. Required unless the job has "
    "durability: MEMORY. A server restarted with the same folder keeps its identity and data");
ABSL_FLAG(
    std::vector<std::string>, checkpoint_roots, {},
    "folders, separated by commas, in which checkpoints may be read and written; requests for "
    "other folders are refused. Default: everywhere");
ABSL_FLAG(std::string, zone, "",
          "failure domain of this server, such as a rack; replicas of a partition are placed in "
          "different zones");
ABSL_FLAG(
    bool, discard_other_job, false,
    "if the scheduler runs another job, delete the data of the previous one from --data_dir "
    "even if that job is not known to have ended; without it, the server does not start then");
ABSL_FLAG(uint64_t, log_bytes, uint64_t{1} << 30,
          "size of the log, which a start has to read, at which snapshots replace it; twice the "
          "size of the server's partitions if that is more");
ABSL_FLAG(
    uint64_t, scrub_bytes_per_s, uint64_t{8} << 20,
    "rate at which the log and the snapshots in --data_dir are read again in the background to "
    "find bit rot; a damaged file is rewritten from memory. 0: never");
ABSL_FLAG(int, register_timeout_s, 60, "how long to try to reach the scheduler at startup");
ABSL_FLAG(int, scheduler_timeout_s, 600,
          "how long to keep running without contact with the scheduler, which may come back; "
          "parameters are served meanwhile");
ABSL_FLAG(int, drain_timeout_s, 20,
          "when asked to end: how long to wait for other servers to take over the replicas");
ABSL_FLAG(uint64_t, repair_bytes_per_s, uint64_t{1} << 30,
          "upper limit on the rate at which this server sends data to new replicas. Below it the "
          "rate adapts to idle network, processors and disks; while processors are scarce it is at "
          "most 64 MiB/s. SIGTERM lifts the limit");
ABSL_FLAG(
    int64_t, max_bytes_in_flight, int64_t{2} << 30,
    "limit on the memory of requests and answers, and of pushes until the log and every backup "
    "have taken them; beyond it clients are told to retry later");
ABSL_FLAG(
    int, step_threads, -1,
    "threads that help to close a SYNC step, a partition each, and to compute digests and keep "
    "the best parameters. They do not change the results. -1: one less than the number of "
    "processors; 0: every call works alone, which is right if several servers share a "
    "machine's processors");
ABSL_FLAG(int64_t, max_rows_per_partition, int64_t{1} << 26,
          "limit on the rows of all tables in one partition");

namespace pawl {
namespace {

// Rows have 32-bit numbers, and the largest stands for no row (server/shard/row_index.h).
constexpr int64_t kMaxRowsPerPartition = (int64_t{1} << 32) - 2;

absl::Status CheckFlags() {
  const auto at_least = [](const char* flag, int64_t value, int64_t min) {
    if (value >= min) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("--", flag, " must be at least ", min));
  };
  absl::Status status = CheckSchedulerAddress(SchedulerAddress(absl::GetFlag(FLAGS_scheduler)));
  status.Update(at_least("max_bytes_in_flight", absl::GetFlag(FLAGS_max_bytes_in_flight), 1));
  if (const int64_t rows = absl::GetFlag(FLAGS_max_rows_per_partition);
      rows < 1 || rows > kMaxRowsPerPartition) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("--max_rows_per_partition must be 1 to ", kMaxRowsPerPartition)));
  }
  if (const int threads = absl::GetFlag(FLAGS_step_threads);
      threads < -1 || threads > kMaxStepThreads) {
    status.Update(
        absl::InvalidArgumentError(absl::StrCat("--step_threads must be -1 to ", kMaxStepThreads)));
  }
  status.Update(at_least("register_timeout_s", absl::GetFlag(FLAGS_register_timeout_s), 0));
  status.Update(at_least("scheduler_timeout_s", absl::GetFlag(FLAGS_scheduler_timeout_s), 1));
  status.Update(at_least("drain_timeout_s", absl::GetFlag(FLAGS_drain_timeout_s), 0));
  if (absl::GetFlag(FLAGS_repair_bytes_per_s) < 1)
    status.Update(absl::InvalidArgumentError("--repair_bytes_per_s must be at least 1"));
  if (absl::GetFlag(FLAGS_log_bytes) < 1)
    status.Update(absl::InvalidArgumentError("--log_bytes must be at least 1"));
  return status;
}

// REQUIRES: CheckFlags returned OK.
ServerDaemonOptions OptionsFromFlags() {
  ServerDaemonOptions options;
  options.listen = absl::GetFlag(FLAGS_listen);
  options.advertise = absl::GetFlag(FLAGS_advertise);
  options.security = WithEnvironment({absl::GetFlag(FLAGS_tls_dir), absl::GetFlag(FLAGS_insecure)});
  options.data_dir = absl::GetFlag(FLAGS_data_dir);
  options.checkpoint_roots = absl::GetFlag(FLAGS_checkpoint_roots);
  options.log_bytes = absl::GetFlag(FLAGS_log_bytes);
  options.scrub_bytes_per_s = absl::GetFlag(FLAGS_scrub_bytes_per_s);
  const int step_threads = absl::GetFlag(FLAGS_step_threads);
  options.step_threads =
      step_threads >= 0
          ? static_cast<size_t>(step_threads)
          : std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMaxStepThreads) - 1;
  options.node.scheduler = SchedulerAddress(absl::GetFlag(FLAGS_scheduler));
  options.node.description = ProcessDescription();
  options.node.zone = absl::GetFlag(FLAGS_zone);
  options.node.discard_other_job = absl::GetFlag(FLAGS_discard_other_job);
  options.node.register_timeout = std::chrono::seconds(absl::GetFlag(FLAGS_register_timeout_s));
  options.node.scheduler_timeout = std::chrono::seconds(absl::GetFlag(FLAGS_scheduler_timeout_s));
  options.node.drain_timeout = std::chrono::seconds(absl::GetFlag(FLAGS_drain_timeout_s));
  options.data_plane.max_bytes_in_flight = absl::GetFlag(FLAGS_max_bytes_in_flight);
  options.data_plane.max_bytes_waiting_for_step =
      MaxBytesWaitingForStep(options.data_plane.max_bytes_in_flight);
  options.data_plane.max_rows_per_partition = absl::GetFlag(FLAGS_max_rows_per_partition);
  options.data_plane.replication.repair_bytes_per_s = absl::GetFlag(FLAGS_repair_bytes_per_s);
  return options;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  pawl::RestartWithHugePages(argv);
  pawl::SetUpDaemon(
      "pawl-server",
      "holds a share of a job's parameters and serves pushes and pulls.\n\n"
      "  pawl-server --tls_dir=tls/server --scheduler=10.0.0.1:7000 --data_dir=/var/lib/pawl\n\n"
      "The server may join and leave while the job runs. On SIGTERM it hands its partitions over\n"
      "first. After a crash, a restart with the same --data_dir continues as the same server.\n\n"
      "Exit codes: 0: the job has completed or was stopped, or the process was asked to end; 1:\n"
      "the job has failed, the scheduler cannot be reached, --data_dir is in use or does not\n"
      "answer, or other servers that have the data of a damaged log are absent; 2: wrong usage, "
      "or\n"
      "a file in --data_dir is damaged and cannot be replaced from other servers.",
      argc, argv);
  if (pawl::SchedulerAddress(absl::GetFlag(FLAGS_scheduler)).empty())
    return pawl::UsageError("--scheduler=host:port is missing, and PAWL_SCHEDULER is not set");
  if (const absl::Status status = pawl::CheckFlags(); !status.ok())
    return pawl::UsageError(status.message());
  // Keep the memory of large requests for reuse, instead of returning it to the kernel, which would
  // zero it again.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  pawl::EndSignal signal;
  return pawl::RunServer(pawl::OptionsFromFlags(), signal);
}
