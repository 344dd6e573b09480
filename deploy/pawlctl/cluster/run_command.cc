#include "deploy/pawlctl/cluster/run_command.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client_lib/job/job_file.h"
#include "client_lib/process/signal_waiter.h"
#include "deploy/pawlctl/cluster/local_cluster.h"
#include "deploy/pawlctl/cluster/local_job.h"
#include "deploy/pawlctl/cluster/local_node.h"
#include "deploy/pawlctl/cluster/local_run.h"
#include "deploy/pawlctl/cluster/out_folder.h"
#include "deploy/pawlctl/console.h"

namespace pawl {
namespace {

// Prints what makes the run impossible. Nothing was started.
int Refuse(const absl::Status& error) {
  Console().Error(error.message());
  return kExitUsage;
}

int RunJob(const RunOptions& options) {
  absl::StatusOr<LocalJob> job = PrepareJob(options);
  if (!job.ok()) return Refuse(job.status());
  absl::StatusOr<Programs> programs = FindOwnPrograms();
  if (!programs.ok()) return Refuse(programs.status());
  if (!job->worker_program.empty()) {
    programs->worker = job->worker_program;
    programs->is_own_worker = true;
  }
  const absl::StatusOr<std::unique_ptr<OutFolder>> out =
      OutFolder::Open(options.out.empty() ? absl::StrCat("out/", job->job.name()) : options.out);
  if (!out.ok()) return Refuse(out.status());
  const absl::Status written = (*out)->Write((*out)->job_file(), JobText(job->job));
  if (!written.ok()) return Refuse(written);
  if (Data* const data = job->job.mutable_data();
      data->window_samples() > 0 && data->data_id().empty()) {
    const absl::StatusOr<std::string> id = MakeDataIndex(*programs, **out, options.index_dir);
    if (!id.ok()) return Refuse(id.status());
    data->set_data_id(*id);
    if (const absl::Status again = (*out)->Write((*out)->job_file(), JobText(job->job));
        !again.ok())
      return Refuse(again);
  }
  if (options.tls) {
    if (const absl::Status made = MakeCertificates(*programs, **out, job->job.name()); !made.ok())
      return Refuse(made);
  }
  SignalWaiter signals;
  return RunLocalJob(*job, options, *std::move(programs), **out, signals);
}

struct NodeFlags {
  LocalNodeOptions node;
  std::vector<std::string> worker_program;
};

absl::Status CheckNode(NodeFlags& flags) {
  LocalNodeOptions& node = flags.node;
  if (node.scheduler.empty()) {
    return absl::InvalidArgumentError(
        "--scheduler=HOST:PORT is missing (or PAWL_SCHEDULER in the environment)");
  }
  if (node.servers + node.workers == 0 || node.servers > kMaxLocalNodes ||
      node.workers > kMaxLocalNodes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--servers=", node.servers, " --workers=", node.workers,
        " is not possible: on one machine up to ", kMaxLocalNodes, " of each, and one in all"));
  }
  if (node.insecure && !node.tls_dir.empty())
    return absl::InvalidArgumentError("--insecure and --tls_dir exclude each other");
  return CheckDevices(node.devices);
}

int RunNode(NodeFlags flags) {
  absl::StatusOr<Programs> programs = FindOwnPrograms();
  if (!programs.ok()) return Refuse(programs.status());
  if (!flags.worker_program.empty()) {
    absl::StatusOr<std::string> program = FindWorkerProgram(flags.worker_program.front());
    if (!program.ok()) return Refuse(program.status());
    programs->worker = *std::move(program);
    programs->is_own_worker = true;
    flags.node.worker_flags.assign(flags.worker_program.begin() + 1, flags.worker_program.end());
  }
  SignalWaiter signals;
  return RunLocalNode(flags.node, *programs, signals);
}

void AddNodeCommand(CommandLine& line) {
  const auto flags = std::make_shared<NodeFlags>();
  CLI::App& command = line.AddCommand(
      "node", "run servers and workers of a job on this machine, and restart those that die",
      "Starts servers and workers on this machine for a job whose scheduler may run elsewhere,\n"
      "restarts those that die, and ends when all have left: with the job, or on SIGTERM, which\n"
      "lets them hand over what they have. For Slurm, Ray, Kubernetes or a shell on each machine.\n"
      "\n"
      "  pawlctl node --scheduler=10.0.0.1:7000 --tls_dir=tls --servers=2 --workers=2\n"
      "  pawlctl node --scheduler=10.0.0.1:7000 --tls_dir=tls --workers=4 -- python3 train.py\n"
      "\n"
      "Start it again with the same --data_dir after the machine has restarted.",
      [flags] { return RunNode(*flags); },
      "Exit codes: 0: all processes have left with success; 1: one has failed; 2: wrong command\n"
      "line.");
  line.PrintsProgress(command);
  LocalNodeOptions& node = flags->node;
  node.data_dir = "out/node";
  node.max_restarts = 10;
  node.leave_timeout = std::chrono::seconds(120);
  AddFlag(command, "--scheduler", "HOST:PORT", node.scheduler,
          "The scheduler, or it and its standbys, separated by commas.",
          {.environment = "PAWL_SCHEDULER"});
  AddFlag(command, "--servers", "N", node.servers, "How many servers; default: 0.");
  AddFlag(command, "--workers", "N", node.workers, "How many workers; default: 0.");
  AddFlag(
      command, "--data_dir", "FOLDER", node.data_dir,
      "The folder of the processes' own folders and of logs/NAME.log; default: out/node in the\n"
      "current folder.");
  AddFlag(
      command, "--tls_dir", "FOLDER", node.tls_dir,
      "A folder with the certificates in server/ and worker/, as make_certificates makes them.");
  AddSwitch(command, "--insecure", node.insecure,
            "Without TLS, also to other machines; see pawl-server --help.");
  AddFlag(command, "--device", "DEVICE,...", node.devices,
          "What the workers compute on, in turn; as in pawlctl run.");
  AddFlag(command, "--max_restarts", "N", node.max_restarts,
          "How often processes that die are restarted, all together; default: 10.");
  AddFlag(
      command, "--leave_timeout", "DURATION", node.leave_timeout,
      "How long the processes may take to leave on SIGTERM; then they are killed. Default: 2m.");
  line.AddProgram(command, "PROGRAM", flags->worker_program,
                  "After --: a program and its arguments, which run as each worker instead of\n"
                  "pawl-worker, as in pawlctl run.");
  SetCheck(command, [flags] { return CheckNode(*flags); });
}

void AddJobFlags(CommandLine& line, CLI::App& command, RunOptions& options) {
  AddFlag(
      command, "--job", "FILE", options.job,
      "The job file: what to train, on which data, and how (deploy/reference/job.md). Required\n"
      "unless PROGRAM follows.");
  AddProcessFlags(
      command, options,
      "How many workers; default: -1, which means 1, and 0 for a job that only serves tables.");
  AddFlag(command, "--collectives", "KIND", options.collectives,
          "pawl-worker's --collectives: auto, gloo or nccl; default: auto. nccl also connects\n"
          "workers on one GPU, for tests.");
  AddSwitch(command, "--cuda_graphs", options.cuda_graphs,
            "pawl-worker's --cuda_graphs: on a GPU, launch whole steps of models without\n"
            "categorical fields.");
  AddFlag(command, "--straggler", "KIND:SETTINGS", options.straggler,
          "pawl-worker's --straggler, for experiments: slows ranks down, such as\n"
          "pareto:shape=1.5,scale_ms=5 or constant:ms=20,ranks=0; default: none.");
  AddFlag(command, "--replicas", "R", options.replicas,
          "Replicas of each partition, each on another server; default: 0, which means what the\n"
          "job says, or 1. With R of them the job survives the loss of R - 1 servers.");
  AddFlag(command, "--durability", "LEVEL", options.durability,
          "What a server does with a push before it acknowledges it: MEMORY (nothing more), LOG\n"
          "(write it: survives the death of the process) or FSYNC (sync it: survives power loss);\n"
          "default: what the job says, or LOG.");
  AddSwitch(
      command, "--tls", options.tls,
      "All connections use mutual TLS, with certificates made for this run in --out/tls. Other\n"
      "commands then need --tls_dir=OUT/tls/operator, or a token that pawlctl token makes with "
      "it.");
  AddFlag(command, "--max_restarts", "N", options.max_restarts,
          "How often processes that die are restarted, all together; default: 10. metrics.json\n"
          "says how often each was.");
  AddRepeatedFlag(
      command, "--set", "PATH=VALUE", options.set,
      "Changes a field of the job, such as --set=batch_size=8192,\n"
      "--set=consistency.mode=ASYNC or --set=data.train=other.csv; a message as\n"
      "--set='model={fm{dim:8}}', an empty list as --set=data.eval=. May be repeated.\n"
      "Relative paths are relative to the current folder, those in the job file to the\n"
      "file's own.");
  line.AddProgram(
      command, "PROGRAM", options.worker_program,
      "After --: a program and its arguments, which run as each worker instead of\n"
      "pawl-worker. It joins the job by PAWL_SCHEDULER, as pawl.init() of the Python package\n"
      "does; PAWL_DEVICE is its --device. Without --job its job is SYNC, named after it; --set\n"
      "changes that.");
  AddSwitch(command, "--until_stdin_ends", options.until_stdin_ends,
            "End as on SIGTERM when stdin reaches its end, for programs that start pawlctl by a\n"
            "pipe: the cluster then does not outlive them.");
  AddFlag(
      command, "--out", "FOLDER", options.out,
      "The folder for logs, the scheduler's address and metrics.json; default: out/NAME in the\n"
      "current folder, NAME being the job's. The results of an earlier run are removed.");
}

void AddRestoreFlag(CLI::App& command, RunOptions& options, bool required) {
  AddFlag(command, "--restore", "FOLDER", options.restore,
          "Start from a checkpoint: its folder, or a folder of checkpoints, whose newest of this\n"
          "job is taken. The numbers of servers, workers and replicas may differ from then.",
          {.required = required});
}

}  // namespace

void AddProcessFlags(CLI::App& command, RunOptions& options, const std::string& workers) {
  AddFlag(command, "--servers", "N", options.servers, "How many servers; default: 1.");
  AddFlag(command, "--workers", "N", options.workers, workers);
  AddFlag(command, "--device", "DEVICE,...", options.devices,
          "What the workers compute on: cpu, or cuda:N for the N-th GPU of this machine; default:\n"
          "cpu. Workers get several devices in turn: --workers=4 --device=cuda:0,cuda:1 puts two\n"
          "workers on each.");
  AddFlag(
      command, "--index_dir", "FOLDER", options.index_dir,
      "pawl-worker's --index_dir: where indexes of streamed data are; those that are missing or\n"
      "outdated are made. Default: beside the data.");
}

void AddRunCommands(CommandLine& line) {
  AddNodeCommand(line);
  const auto run_options = std::make_shared<RunOptions>();
  CLI::App& run = line.AddCommand(
      "run", "run a job on a cluster of processes on this machine, to its end",
      "Starts one scheduler, servers and workers on this machine, trains, shows progress, and\n"
      "ends with the job. Leaves in --out: scheduler.addr (as soon as the scheduler listens; for\n"
      "the other commands), logs/NODE.log, job.pbtxt (the job as it ran), curve.jsonl and\n"
      "tensorboard/ (the learning curve) and metrics.json (the result).\n"
      "\n"
      "  pawlctl run --job=deploy/jobs/flights-deepfm.pbtxt --servers=2 --workers=2\n"
      "  pawlctl run --job=job.pbtxt --set=epochs=1 --set=optimizer.adagrad.learning_rate=0.1 \\\n"
      "      --out=try-1\n"
      "  pawlctl run --servers=2 --workers=4 -- python3 train.py\n"
      "\n"
      "A process that dies is restarted with the same command and resumes from its folder in\n"
      "--out/data, up to --max_restarts times.\n"
      "\n"
      "Ctrl-C or SIGTERM stops the job and its processes, a second one kills them. No process\n"
      "outlives pawlctl, except that kill -9 of pawlctl leaves those that PROGRAM has started.\n"
      "The daemons are taken from pawlctl's own folder, from Bazel's output, or from\n"
      "PAWL_BIN_DIR.\n"
      "\n"
      "The exit code is 0 only if the job completed, with a final checkpoint if it has a folder\n"
      "for checkpoints.",
      [run_options] { return RunJob(*run_options); }, kJobExitCodesHelp);
  AddJobFlags(line, run, *run_options);
  AddRestoreFlag(run, *run_options, /*required=*/false);
  line.PrintsProgress(run);

  const auto restore_options = std::make_shared<RunOptions>();
  CLI::App& restore = line.AddCommand(
      "restore", "run a job on this machine from a checkpoint",
      "Runs a job as `pawlctl run` does, with all processes on this machine, from a checkpoint.\n"
      "(On a cluster: pawl-scheduler --restore.) The whole checkpoint is read and checked first.\n"
      "A damaged one is refused; the message names the newest intact one before it.\n"
      "\n"
      "  pawlctl restore --restore=checkpoints --job=job.pbtxt --servers=4",
      [restore_options] { return RunJob(*restore_options); }, kJobExitCodesHelp);
  AddRestoreFlag(restore, *restore_options, /*required=*/true);
  line.PrintsProgress(restore);
  AddJobFlags(line, restore, *restore_options);
}

}  // namespace pawl
