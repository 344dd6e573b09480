// pawl-scheduler: directs one job.
//
//   pawl-scheduler --listen=10.0.0.1:7000 --data_dir=/var/lib/pawl --job=flights.pbtxt --servers=2
//   --workers=2
//
// It waits for its servers and workers, assigns their work, notices deaths, and ends with the job,
// leaving metrics.json in --data_dir. Started again with the same command after a crash, it
// continues the job from its state in --data_dir, or where --store says. Nodes look for it at the
// address that they were given, so --listen needs a fixed port (with port 0 it tries its former
// one). A second scheduler with the same --store waits until the first is gone and takes over;
// nodes find it if both are behind one address.
//
// With --restore a new job starts from a checkpoint, on servers without data.
//
// Exit codes:
//   0  the job has completed, even if its final checkpoint could not be written (metrics.json says
//      so), or was stopped (SIGTERM, Ctrl-C, pawlctl)
//   1  the job has failed
//   2  wrong flags, files or job
//   3  the job continues without this process, which could not save its state, lost the job to
//      another scheduler, or was told to leave (--stop_on_sigterm=false)
// After the job has ended, the same command exits at once with the job's exit code.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "client_lib/daemon/daemon.h"
#include "client_lib/security/security_options.h"
#include "scheduler/process/scheduler_options.h"
#include "scheduler/process/scheduler_process.h"

ABSL_FLAG(std::string, job, "", "the job file");
ABSL_FLAG(uint32_t, servers, 1, "number of servers the job starts with");
ABSL_FLAG(int32_t, workers, -1,
          "number of workers the job starts with; any number may join and leave later. Default: 1, "
          "or 0 for a job that only serves tables");
ABSL_FLAG(uint32_t, replicas, 0,
          "replicas of each partition, each on a different server: an acknowledged push survives "
          "the loss of all but one of them. 0: the job's value, or 1");
ABSL_FLAG(
    std::string, data_dir, "",
    "folder for metrics.json, audit.jsonl (what operators did) and, without --store, the state; "
    "created if missing");
ABSL_FLAG(std::string, store, "",
          "where the state is kept for a restarted or standby scheduler: a folder, or "
          "etcd://host:port[,host:port...]/prefix for schedulers on several machines. Default: "
          "DATA_DIR/state");
ABSL_FLAG(std::string, listen, "127.0.0.1:7000",
          "host:port to listen on; port 0 takes a free one. Servers, workers and clients must be "
          "able to reach it");
ABSL_FLAG(std::string, advertise, "",
          "host:port to write to --address_file if it differs from --listen (as with 0.0.0.0)");
ABSL_FLAG(
    std::vector<std::string>, checkpoint_roots, {},
    "folders, separated by commas, in which checkpoints may be made with pawlctl; requests for "
    "other folders are refused. Default: everywhere");
ABSL_FLAG(std::string, address_file, "",
          "file that receives host:port as soon as the scheduler listens");
ABSL_FLAG(std::string, metrics_listen, "",
          "host:port that serves /metrics to Prometheus: with --tls_dir over HTTPS to clients with "
          "a certificate of the job, without it over HTTP to everyone. Port 0 takes a free one and "
          "logs it. Default: none");
ABSL_FLAG(bool, insecure_metrics, false,
          "with --tls_dir: serve --metrics_listen over HTTP to everyone nevertheless");
ABSL_FLAG(std::string, tensorboard_dir, "",
          "folder for event files of TensorBoard, written while the job runs: loss, samples per "
          "second, staleness, rows, and every evaluation. Default: none");
ABSL_FLAG(std::string, curve_file, "",
          "file for the learning curve as JSON lines, written while the job runs; a scheduler that "
          "continues its job appends to it. Default: none");
ABSL_FLAG(std::string, tls_dir, "", pawl::kTlsDirHelp);
ABSL_FLAG(bool, insecure, false, pawl::kInsecureHelp);
ABSL_FLAG(std::string, etcd_tls_dir, "",
          "folder with the authorities of etcd's certificates (ca.pem) and a certificate that etcd "
          "accepts (cert.pem, key.pem), for --store=etcd://...; default: none, which is possible "
          "only on one machine or with --insecure");
ABSL_FLAG(uint32_t, heartbeat_interval_ms, 200, "how often each node sends a heartbeat");
ABSL_FLAG(uint32_t, lease_ms, 1000,
          "a node that sends no heartbeat for this long is declared dead; use more (3000) in "
          "containers and on busy machines");
ABSL_FLAG(uint32_t, start_timeout_ms, 300000,
          "the job fails unless all servers and workers have joined by then");
ABSL_FLAG(uint32_t, linger_ms, 5000,
          "how long to wait for the nodes to leave after the job has ended, and at least two "
          "heartbeat intervals");
ABSL_FLAG(double, worker_takeover_grace_s, 1,
          "how long the ranks of a dead worker are reserved for its restart before other workers "
          "take them over");
ABSL_FLAG(double, worker_return_timeout_s, 60,
          "the job fails if the ranks of a worker that died or left have no host for this long, or "
          "if five hosts of a rank in a row die without ending a step, over more than this time");
ABSL_FLAG(double, recovery_timeout_s, 60,
          "how long to wait for a server that died with the last replica of a partition before the "
          "job fails. With durability: MEMORY such a server returns only if it was unreachable");
ABSL_FLAG(std::string, restore, "",
          "start from a checkpoint: its folder, or a folder of checkpoints, whose newest one of "
          "this job is used. The numbers of servers and workers may differ");
ABSL_FLAG(bool, restart_ended_job, false,
          "train the job again from its start although it has ended according to --data_dir or "
          "--store; without it the scheduler of an ended job exits at once with the job's exit "
          "code");
ABSL_FLAG(bool, rebuild, false,
          "rebuild the state from what the running servers hold, after the state in --data_dir or "
          "--store was lost");
ABSL_FLAG(uint32_t, rebuild_timeout_s, 30, "how long --rebuild waits for servers");
ABSL_FLAG(std::vector<std::string>, rebuild_without, {},
          "servers that will not return, separated by commas: --rebuild does not wait for them");
ABSL_FLAG(uint64_t, scrub_bytes_per_s, uint64_t{8} << 20,
          "how fast the checkpoints in the job's checkpoint.dir are read in the background to find "
          "bit rot; a damaged checkpoint is replaced by a new one. 0: never");
ABSL_FLAG(bool, stop_on_sigterm, true,
          "SIGTERM and Ctrl-C stop the job, as pawlctl stop does. With --stop_on_sigterm=false "
          "only this process ends, with exit code 3, and the job continues when a scheduler is "
          "started or a standby takes over");

namespace {

constexpr char kUsage[] =
    "directs one job.\n\n"
    "  pawl-scheduler --tls_dir=tls/scheduler --listen=10.0.0.1:7000 --data_dir=/var/lib/pawl \\\n"
    "      --job=flights.pbtxt --servers=2 --workers=2\n\n"
    "After a crash, start it again with the same command: it continues the job, and training does\n"
    "not stop meanwhile. Give --listen a fixed port, so that nodes find it again. A second one\n"
    "with the same --store stands by until the first is gone. SIGTERM and Ctrl-C stop the job\n"
    "(--stop_on_sigterm=false: only this process). After the job has ended, the same command\n"
    "exits at once.\n\n"
    "Exit codes: 0: the job has completed or was stopped; 1: it has failed; 2: wrong flags, files\n"
    "or job; 3: the job continues without this process: start it again, unless another scheduler\n"
    "has taken over. A job completes even if its final checkpoint could not be written; then\n"
    "metrics.json has an end_checkpoint_failure.";

pawl::SchedulerOptions OptionsFromFlags() {
  pawl::SchedulerOptions options;
  options.job = absl::GetFlag(FLAGS_job);
  options.servers = absl::GetFlag(FLAGS_servers);
  options.workers = absl::GetFlag(FLAGS_workers);
  options.replicas = absl::GetFlag(FLAGS_replicas);
  options.data_dir = absl::GetFlag(FLAGS_data_dir);
  options.store = absl::GetFlag(FLAGS_store);
  options.listen = absl::GetFlag(FLAGS_listen);
  options.advertise = absl::GetFlag(FLAGS_advertise);
  options.address_file = absl::GetFlag(FLAGS_address_file);
  options.metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  options.insecure_metrics = absl::GetFlag(FLAGS_insecure_metrics);
  options.tensorboard_dir = absl::GetFlag(FLAGS_tensorboard_dir);
  options.curve_file = absl::GetFlag(FLAGS_curve_file);
  options.security =
      pawl::WithEnvironment({absl::GetFlag(FLAGS_tls_dir), absl::GetFlag(FLAGS_insecure)});
  options.checkpoint_roots = absl::GetFlag(FLAGS_checkpoint_roots);
  options.etcd_tls_dir = absl::GetFlag(FLAGS_etcd_tls_dir);
  options.heartbeat_interval_ms = absl::GetFlag(FLAGS_heartbeat_interval_ms);
  options.lease_ms = absl::GetFlag(FLAGS_lease_ms);
  options.start_timeout_ms = absl::GetFlag(FLAGS_start_timeout_ms);
  options.linger_ms = absl::GetFlag(FLAGS_linger_ms);
  options.worker_takeover_grace_s = absl::GetFlag(FLAGS_worker_takeover_grace_s);
  options.worker_return_timeout_s = absl::GetFlag(FLAGS_worker_return_timeout_s);
  options.recovery_timeout_s = absl::GetFlag(FLAGS_recovery_timeout_s);
  options.restore = absl::GetFlag(FLAGS_restore);
  options.restart_ended_job = absl::GetFlag(FLAGS_restart_ended_job);
  options.rebuild = absl::GetFlag(FLAGS_rebuild);
  options.rebuild_timeout_s = absl::GetFlag(FLAGS_rebuild_timeout_s);
  options.rebuild_without = absl::GetFlag(FLAGS_rebuild_without);
  options.scrub_bytes_per_s = absl::GetFlag(FLAGS_scrub_bytes_per_s);
  options.stop_on_sigterm = absl::GetFlag(FLAGS_stop_on_sigterm);
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  pawl::SetUpDaemon("pawl-scheduler", kUsage, argc, argv);
  pawl::EndSignal signal;
  return pawl::SchedulerProcess(OptionsFromFlags(), signal).Run();
}
