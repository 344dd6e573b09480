// pawlctl: runs jobs on this machine, and asks and tells running ones.
//
//   pawlctl run --job=deploy/jobs/flights-deepfm.pbtxt --servers=2 --workers=2
//   pawlctl status --scheduler=10.0.0.1:7000
//
// `pawlctl --help` lists the commands, `pawlctl COMMAND --help` teaches one.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/version.h"
#include "deploy/pawlctl/cluster/run_command.h"
#include "deploy/pawlctl/command_line.h"
#include "deploy/pawlctl/commands/checkpoint_commands.h"
#include "deploy/pawlctl/commands/export_command.h"
#include "deploy/pawlctl/commands/scale_commands.h"
#include "deploy/pawlctl/commands/status_commands.h"
#include "deploy/pawlctl/commands/table_commands.h"
#include "deploy/pawlctl/commands/verify_command.h"
#include "deploy/pawlctl/exit_code.h"

ABSL_FLAG(std::string, job, "",
          "The job file: what to train, on what, and how (README.md, \"The job file\").");
ABSL_FLAG(uint32_t, servers, 1, "How many servers.");
ABSL_FLAG(int32_t, workers, -1,
          "How many workers; -1 means 1, and 0 for a job that only serves tables.");
ABSL_FLAG(std::vector<std::string>, device, {"cpu"},
          "What the workers compute on: cpu, or cuda:N for the N-th GPU of this machine. Several "
          "with commas between them\n"
          "are given out in turn: --workers=4 --device=cuda:0,cuda:1 puts two workers on each.");
ABSL_FLAG(std::string, collectives, "",
          "pawl-worker's --collectives: auto, gloo or nccl; default: auto. nccl also between "
          "workers on one GPU: for tests.");
ABSL_FLAG(bool, cuda_graphs, false,
          "pawl-worker's --cuda_graphs: on a GPU the steps of models without categorical fields "
          "are launched as a whole.");
ABSL_FLAG(uint32_t, replicas, 0,
          "Replicas of each partition, each on another server; 0 means what the job says, or 1. "
          "With r of them the job\n"
          "goes on though r - 1 servers are lost.");
ABSL_FLAG(std::string, durability, "",
          "What a server has done with a push before it acknowledges it: MEMORY (nothing more), "
          "LOG (written: survives\n"
          "the death of the process) or FSYNC (and synced: survives the loss of power); default: "
          "what the job says, or\n"
          "LOG.");
ABSL_FLAG(uint32_t, max_restarts, 10,
          "How many restarts of processes that die there may be, all together. metrics.json says "
          "how often each was.");
ABSL_FLAG(std::string, set, "",
          "Changes a field of the job: --set=path=value, such as --set=batch_size=8192,\n"
          "--set=consistency.mode=ASYNC or --set=data.train=other.csv; a message as "
          "--set='model={fm{dim:8}}'. May be\n"
          "repeated. Relative paths are from the current folder, those in the job file from the "
          "file's own.");
ABSL_FLAG(std::string, out, "",
          "The folder for logs, the scheduler's address and metrics.json; default: out/NAME in the "
          "current\n"
          "folder, after the job. What an earlier run left there is removed.");
ABSL_FLAG(std::string, scheduler, "",
          "host:port of the scheduler; default: the environment's PAWL_SCHEDULER.");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(5), "How long to wait for the answer.");
ABSL_FLAG(bool, json, false, "Print JSON for programs in place of text for people.");
ABSL_FLAG(std::string, reason, "stopped by pawlctl stop", "What the nodes' logs will say.");

ABSL_FLAG(std::string, restore, "",
          "Begin from a checkpoint: its folder, or a folder of checkpoints, of which this job's "
          "newest is taken. It may have\n"
          "been made with another number of servers, workers and replicas.");
ABSL_FLAG(std::string, dir, "", "A folder of checkpoints.");
ABSL_FLAG(
    std::string, checkpoint, "",
    "A checkpoint's own folder, or one with checkpoints of one job, of which the newest is taken.");
ABSL_FLAG(bool, with_checkpoint, false, "Have a checkpoint made first.");
ABSL_FLAG(absl::Duration, wait, absl::Minutes(10), "How long to wait until it is done.");
ABSL_FLAG(std::string, node, "", "The node (pawlctl nodes lists them).");
ABSL_FLAG(bool, force, false,
          "Even if the job then has too few replicas of each partition, or no worker. The last "
          "server cannot leave.");
ABSL_FLAG(bool, follow, false, "Go on until the job is over.");

ABSL_FLAG(std::string, table, "", "The table's name (pawlctl tables lists them).");
ABSL_FLAG(std::vector<std::string>, keys, {}, "The rows of a sparse table: --keys=1,2,3.");
ABSL_FLAG(std::string, key, "", "The row of a sparse table.");
ABSL_FLAG(std::string, block, "",
          "The block of 65,536 elements of a dense table, from 0; default: all of it.");
ABSL_FLAG(std::vector<std::string>, values, {},
          "The gradient: as many numbers as a row, or as the dense table, has: --values=0.5,-1.");

namespace pawl {
namespace {

// Of run and restore, which wait for a job's end; and of those that ask something of one.
constexpr char kJobExitCodes[] =
    "Exit codes: 0 the job has completed; 1 it failed, was stopped, or has no checkpoint of its "
    "end though it was to have\n"
    "one; 2 wrong command line or job file; 130 ended by Ctrl-C, 143 by SIGTERM.\n";
constexpr char kExitCodes[] =
    "Exit codes: 0 done; 1 refused, or it is not as it should be; 2 wrong command line; 3 the "
    "scheduler or a server does\n"
    "not answer; 130 ended by Ctrl-C, 143 by SIGTERM.\n";

bool RunsAJob(const CommandSpec& command) {
  return command.name == "run" || command.name == "restore";
}

const std::vector<CommandSpec>& Commands() {
  static const auto* const commands = new std::vector<CommandSpec>{
      {.name = "run",
       .summary = "run a job on a cluster of processes on this machine, and wait for its end",
       .help = "Starts one scheduler, servers and workers on this machine, trains, shows how it "
               "goes, and ends with the "
               "job.\n"
               "Leaves in --out: scheduler.addr (as soon as it listens; for the other commands), "
               "logs/NODE.log, job.pbtxt\n"
               "(the job as it ran) and metrics.json (the result).\n"
               "\n"
               "  pawlctl run --job=deploy/jobs/flights-deepfm.pbtxt --servers=2 --workers=2\n"
               "  pawlctl run --job=job.pbtxt --set=epochs=1 "
               "--set=optimizer.adagrad.learning_rate=0.1 --out=try-1\n"
               "\n"
               "A process that dies is started again by the same command and goes on from its "
               "folder in --out/data, up to\n"
               "--max_restarts times.\n"
               "\n"
               "Ctrl-C or SIGTERM stops the job and its processes, a second one kills them. None "
               "outlives pawlctl.\n"
               "The daemons are taken from the folder of pawlctl, from where Bazel built them, or "
               "from PAWL_BIN_DIR.\n"
               "\n"
               "Exit code 0 only if the job completed, with a checkpoint of its end if it has a "
               "folder for one.",
       .flags = {"job", "servers", "workers", "device", "collectives", "cuda_graphs", "replicas",
                 "durability", "max_restarts", "set", "out", "restore"},
       .repeated_flags = {"set"}},
      {.name = "restore",
       .summary = "run a job on this machine from where a checkpoint was made",
       .help = "Runs a job as `pawlctl run` does, with all processes on this machine, from where a "
               "checkpoint was made. (On a\n"
               "cluster: pawl-scheduler --restore.) The whole checkpoint is read and checked "
               "first; a damaged one is refused,\n"
               "with the name of the one before it that is whole.\n"
               "\n"
               "  pawlctl restore --restore=checkpoints --job=job.pbtxt --servers=4",
       .flags = {"restore", "job", "servers", "workers", "device", "collectives", "cuda_graphs",
                 "replicas", "durability", "max_restarts", "set", "out"},
       .repeated_flags = {"set"}},
      {.name = "checkpoint",
       .summary = "have a checkpoint made of a running job",
       .help = "Waits until there is a complete checkpoint, made while training goes on, and "
               "prints its folder. --dir is a\n"
               "folder that the scheduler and all servers see under this path; default: the job's "
               "checkpoint.dir. Ctrl-C, or\n"
               "the end of --wait, cancels the request unless the checkpoint has begun.\n"
               "\n"
               "  pawlctl checkpoint --scheduler=10.0.0.1:7000 --dir=/shared/checkpoints",
       .flags = {"dir", "wait", "scheduler", "json"}},
      {.name = "checkpoints",
       .summary = "the checkpoints in a folder, and whether they are whole",
       .help = "Reads and checks all of each. Exits with 1 if one is damaged.\n"
               "\n"
               "  pawlctl checkpoints --dir=/shared/checkpoints",
       .flags = {"dir", "json"}},
      {.name = "export",
       .summary = "write the trained model of a checkpoint as NumPy files",
       .help = "Reads a checkpoint, without any server, and writes its parameters so that programs "
               "without Pawl can read them:\n"
               "TABLE.npy for each dense table, TABLE.keys.npy (ascending) and TABLE.rows.npy for "
               "each sparse one, and\n"
               "model.json, which names them (server/export/model_format.md). The optimizer's "
               "state is left out. All of the\n"
               "checkpoint is checked before, and --out is there whole or not at all. It needs a "
               "few times the memory\n"
               "of the largest partition, and disk space for two copies of the model. Exits with 1 "
               "if the checkpoint is "
               "damaged, or is\n"
               "deleted meanwhile.\n"
               "\n"
               "  pawlctl export --checkpoint=/shared/checkpoints --out=model",
       .flags = {"checkpoint", "out", "json"},
       .flag_help = {{"out", "The folder for the model, which must not be there yet."}}},
      {.name = "status",
       .summary = "progress, loss and counters of a running job",
       .help = "Shows state, replicas, steps, samples, loss, the latest evaluation and the "
               "servers' counters.\n"
               "\n"
               "  pawlctl status --scheduler=10.0.0.1:7000\n"
               "  PAWL_SCHEDULER=$(cat out/flights/scheduler.addr) pawlctl status --json",
       .flags = {"scheduler", "timeout", "json"}},
      {.name = "nodes",
       .summary = "servers, workers and clients of the job",
       .help = "Shows each node with how long it has been silent, of how many partitions a server "
               "is the primary, an\n"
               "in-sync backup or a learner (a replica that is catching up), and what a worker has "
               "done.\n"
               "\n"
               "  pawlctl nodes --scheduler=10.0.0.1:7000",
       .flags = {"scheduler", "timeout", "json"}},
      {.name = "scale",
       .summary = "change the number of servers and workers of a running job",
       .help = "Surplus nodes leave once the others have taken over; training goes on, and no "
               "update is lost. Nodes that are\n"
               "missing are started by pawlctl run for its own cluster; elsewhere start them "
               "yourself: scale says what is\n"
               "missing. --wait: until all are there and all partitions are where they are to be.\n"
               "\n"
               "  pawlctl scale --servers=5 --wait\n"
               "  pawlctl scale --workers=1",
       .flags = {"servers", "workers", "wait", "scheduler", "timeout", "json"},
       .bare_flags = {{"wait", "10m"}},
       .flag_help = {{"servers", "How many servers; left out: as many as now."},
                     {"workers", "How many workers; left out: as many as now."}}},
      {.name = "drain",
       .summary = "have a node leave a running job",
       .help = "A server hands all of its partitions over, a worker ends its step; then it exits "
               "with 0. Refused if the\n"
               "servers that stay could not hold all replicas, but for --force. --wait: until it "
               "is gone.\n"
               "While a job is FINISHING a server hands nothing over: it waits for the end, and so "
               "for its checkpoint.\n"
               "\n"
               "  pawlctl drain server-1 --wait",
       .flags = {"node", "force", "wait", "scheduler", "timeout", "json"},
       .argument = "node",
       .bare_flags = {{"wait", "10m"}}},
      {.name = "release_kept",
       .summary = "have a server delete the replicas that it keeps",
       .help = "A server that is not in sync any more keeps its replicas until their partitions "
               "have as many others as the\n"
               "job wants (pawlctl status shows them). This gives them up sooner, for room on its "
               "disk; the server may be\n"
               "gone. Refused where no other server is known to have every acknowledged push, but "
               "for --force, which loses\n"
               "those pushes and ends the job.\n"
               "\n"
               "  pawlctl release_kept server-1",
       .flags = {"node", "force", "scheduler", "timeout", "json"},
       .argument = "node"},
      {.name = "events",
       .summary = "what has happened: who came and went, and which partitions moved",
       .help = "Prints the last events, the oldest first. --json: one JSON object a line.\n"
               "\n"
               "  pawlctl events --follow --scheduler=10.0.0.1:7000",
       .flags = {"follow", "scheduler", "timeout", "json"}},
      {.name = "verify",
       .summary = "compare the replicas of each partition",
       .help = "Compares the states of the replicas of each partition, to the bit, where they have "
               "seen the same changes.\n"
               "While the job trains, replicas differ for moments: it asks until each partition "
               "was equal once, for --timeout\n"
               "at most. Servers read all of their parameters for it. Exits with 0 if all are "
               "equal, with 1 if some differ or "
               "could not be compared.\n"
               "\n"
               "  pawlctl verify --scheduler=10.0.0.1:7000 --timeout=1m",
       .flags = {"scheduler", "timeout", "json"}},
      {.name = "tables",
       .summary = "the job's tables",
       .help = "Shows each table with its kind, its shape and its optimizer.\n"
               "\n"
               "  pawlctl tables --scheduler=10.0.0.1:7000",
       .flags = {"scheduler", "timeout", "json"}},
      {.name = "stop",
       .summary = "end a running job before its end",
       .help = "Asks the scheduler to end the job; all nodes are told and end. The job's state is "
               "then STOPPED.\n"
               "A stopped job has no final checkpoint, even if it was stopped while FINISHING.\n"
               "\n"
               "--with_checkpoint: has a checkpoint made first, in --dir or the job's own folder, "
               "as pawlctl checkpoint\n"
               "does; if there is none within --wait, the job goes on.\n"
               "\n"
               "  pawlctl stop --scheduler=10.0.0.1:7000 --reason=\"wrong learning rate\"\n"
               "  pawlctl stop --with_checkpoint",
       .flags = {"scheduler", "timeout", "json", "reason", "with_checkpoint", "dir", "wait"}},
      {.name = "pull",
       .summary = "print parameters",
       .help = "Prints rows of a sparse table or (a block of) a dense one. A row that no push has "
               "created reads as its\n"
               "initial value. Changes nothing.\n"
               "\n"
               "  pawlctl pull --table=embeddings --keys=7,42\n"
               "  pawlctl pull --table=hidden/weights --block=0 --json",
       .flags = {"table", "keys", "block", "scheduler", "timeout", "json"}},
      {.name = "push",
       .summary = "apply one gradient",
       .help = "Pushes a gradient, which the table's optimizer applies at once, in every "
               "consistency mode. It changes\n"
               "the model: for trying things out.\n"
               "\n"
               "  pawlctl push --table=embeddings --key=7 --values=0.5,-1,0,0.25",
       .flags = {"table", "key", "values", "scheduler", "timeout", "json"}},
      {.name = "digest",
       .summary = "the identity of the parameters",
       .help = "Prints the CRC32C over all tables: two jobs with the same digest have the same "
               "parameters, to the bit.\n"
               "That of a completed job is in metrics.json too. While a job trains its parameters "
               "change under the "
               "reader.\n"
               "\n"
               "  pawlctl digest --scheduler=10.0.0.1:7000",
       .flags = {"scheduler", "timeout", "json"}},
  };
  return *commands;
}

std::string Help() {
  std::string text = "Usage: pawlctl COMMAND [FLAGS]\n\nCommands:\n";
  for (const CommandSpec& command : Commands()) {
    absl::StrAppend(&text, "  ", command.name, std::string(13 - command.name.size(), ' '),
                    command.summary, "\n");
  }
  absl::StrAppend(
      &text,
      "\npawlctl COMMAND --help says more about one, pawlctl --version which Pawl this is.\n");
  return text;
}

int UsageError(absl::string_view message) {
  std::cerr << "pawlctl: " << message << "\n";
  return kExitUsage;
}

// The number that a flag holds, if it holds one.
absl::StatusOr<std::optional<uint64_t>> OptionalNumber(absl::string_view flag,
                                                       const std::string& value) {
  if (value.empty()) return std::nullopt;
  PAWL_ASSIGN_OR_RETURN(const std::vector<uint64_t> numbers, ParseKeys(flag, {value}));
  return numbers[0];
}

int DispatchTableCommand(const std::string& command, const ConnectionOptions& connection) {
  const std::string table = absl::GetFlag(FLAGS_table);
  if (table.empty())
    return UsageError(
        absl::StrCat(command, ": --table=NAME is missing (pawlctl tables lists them)"));
  if (command == "pull") {
    const absl::StatusOr<std::vector<uint64_t>> keys = ParseKeys("keys", absl::GetFlag(FLAGS_keys));
    if (!keys.ok()) return UsageError(keys.status().message());
    const absl::StatusOr<std::optional<uint64_t>> block =
        OptionalNumber("block", absl::GetFlag(FLAGS_block));
    if (!block.ok()) return UsageError(block.status().message());
    return PullCommand({.connection = connection, .table = table, .keys = *keys, .block = *block});
  }
  const absl::StatusOr<std::optional<uint64_t>> key =
      OptionalNumber("key", absl::GetFlag(FLAGS_key));
  if (!key.ok()) return UsageError(key.status().message());
  const absl::StatusOr<std::vector<float>> values =
      ParseValues("values", absl::GetFlag(FLAGS_values));
  if (!values.ok()) return UsageError(values.status().message());
  return PushCommand({.connection = connection, .table = table, .key = *key, .values = *values});
}

int Dispatch(const std::string& command, const CommandLine& line) {
  if (command == "checkpoints") {
    if (absl::GetFlag(FLAGS_dir).empty()) return UsageError("checkpoints: --dir=FOLDER is missing");
    return ListCheckpointsCommand(absl::GetFlag(FLAGS_dir), absl::GetFlag(FLAGS_json));
  }
  if (command == "export") {
    if (absl::GetFlag(FLAGS_checkpoint).empty())
      return UsageError("export: --checkpoint=FOLDER is missing: which model?");
    if (absl::GetFlag(FLAGS_out).empty()) return UsageError("export: --out=FOLDER is missing");
    return ExportCommand(absl::GetFlag(FLAGS_checkpoint), absl::GetFlag(FLAGS_out),
                         absl::GetFlag(FLAGS_json));
  }
  if (command == "restore" && absl::GetFlag(FLAGS_restore).empty()) {
    return UsageError("restore: --restore=FOLDER is missing: from which checkpoint?");
  }
  if (command == "run" || command == "restore") {
    RunOptions options;
    options.job = absl::GetFlag(FLAGS_job);
    options.servers = absl::GetFlag(FLAGS_servers);
    options.workers = absl::GetFlag(FLAGS_workers);
    options.devices = absl::GetFlag(FLAGS_device);
    options.collectives = absl::GetFlag(FLAGS_collectives);
    options.cuda_graphs = absl::GetFlag(FLAGS_cuda_graphs);
    options.replicas = absl::GetFlag(FLAGS_replicas);
    options.durability = absl::GetFlag(FLAGS_durability);
    options.max_restarts = absl::GetFlag(FLAGS_max_restarts);
    if (const auto set = line.repeated.find("set"); set != line.repeated.end())
      options.set = set->second;
    options.out = absl::GetFlag(FLAGS_out);
    options.restore = absl::GetFlag(FLAGS_restore);
    std::error_code error;
    options.own_program = std::filesystem::read_symlink("/proc/self/exe", error).string();
    if (const char* folder = std::getenv("PAWL_BIN_DIR")) options.bin_folder = folder;
    return RunCommand(options);
  }
  ConnectionOptions options;
  options.scheduler = absl::GetFlag(FLAGS_scheduler);
  if (const char* address = std::getenv("PAWL_SCHEDULER");
      options.scheduler.empty() && address != nullptr) {
    options.scheduler = address;
  }
  if (options.scheduler.empty()) {
    return UsageError(
        absl::StrCat(command, ": which job? Give --scheduler=HOST:PORT or set PAWL_SCHEDULER; ",
                     "pawlctl run writes the address to scheduler.addr in its --out"));
  }
  if (!absl::StrContains(options.scheduler, ':')) {
    return UsageError(
        absl::StrCat("--scheduler=", options.scheduler, " has no port: HOST:PORT is needed"));
  }
  const auto given = [&line](const char* flag) { return line.given.contains(flag); };
  const absl::Duration wait = absl::GetFlag(FLAGS_wait);
  if ((command == "scale" || command == "drain" || command == "stop") &&
      (wait <= absl::ZeroDuration() || wait > absl::Hours(24))) {
    return UsageError(absl::StrCat("--wait=", absl::FormatDuration(wait),
                                   " is not possible: more than 0 and at most 24h"));
  }
  const bool is_checkpoint = command == "checkpoint";
  const absl::Duration timeout =
      is_checkpoint ? absl::GetFlag(FLAGS_wait) : absl::GetFlag(FLAGS_timeout);
  if (timeout <= absl::ZeroDuration() || timeout > absl::Hours(24)) {
    return UsageError(
        absl::StrCat(is_checkpoint ? "--wait=" : "--timeout=", absl::FormatDuration(timeout),
                     " is not possible: more than 0 and at most 24h, such as 500ms or 10s"));
  }
  options.timeout =
      std::chrono::duration_cast<MonotonicDuration>(absl::ToChronoNanoseconds(timeout));
  options.json = absl::GetFlag(FLAGS_json);
  if (is_checkpoint) return CheckpointCommand(options, absl::GetFlag(FLAGS_dir));
  std::optional<MonotonicDuration> until_done;
  if (given("wait"))
    until_done = std::chrono::duration_cast<MonotonicDuration>(absl::ToChronoNanoseconds(wait));
  if (command == "scale") {
    if (!given("servers") && !given("workers"))
      return UsageError("scale: to how many? Give --servers=N or --workers=N");
    if (given("workers") && absl::GetFlag(FLAGS_workers) < 0)
      return UsageError("scale: --workers must be at least 0");
    return ScaleCommand(
        options, given("servers") ? std::optional(absl::GetFlag(FLAGS_servers)) : std::nullopt,
        given("workers") ? std::optional(static_cast<uint32_t>(absl::GetFlag(FLAGS_workers)))
                         : std::nullopt,
        until_done);
  }
  if (command == "drain") {
    if (absl::GetFlag(FLAGS_node).empty())
      return UsageError("drain: which node? pawlctl drain server-1");
    return DrainCommand(options, absl::GetFlag(FLAGS_node), absl::GetFlag(FLAGS_force), until_done);
  }
  if (command == "release_kept") {
    if (absl::GetFlag(FLAGS_node).empty())
      return UsageError("release_kept: which server? pawlctl release_kept server-1");
    return ReleaseKeptCommand(options, absl::GetFlag(FLAGS_node), absl::GetFlag(FLAGS_force));
  }
  if (command == "events") return EventsCommand(options, absl::GetFlag(FLAGS_follow));
  if (command == "status") return StatusCommand(options);
  if (command == "nodes") return NodesCommand(options);
  if (command == "verify") return VerifyCommand(options);
  if (command == "tables") return TablesCommand(options);
  if (command == "stop") {
    const std::string reason = absl::GetFlag(FLAGS_reason);
    if (absl::GetFlag(FLAGS_with_checkpoint)) {
      return StopWithCheckpointCommand(
          options, absl::GetFlag(FLAGS_dir),
          std::chrono::duration_cast<MonotonicDuration>(absl::ToChronoNanoseconds(wait)), reason);
    }
    // Whoever says where a checkpoint is to be wants one.
    if (given("dir") || given("wait"))
      return UsageError("stop: --dir and --wait are for --with_checkpoint");
    return StopCommand(options, reason);
  }
  if (command == "digest") return DigestCommand(options);
  return DispatchTableCommand(command, options);
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
      arguments[0] == "help") {
    (arguments.empty() ? std::cerr : std::cout) << Help();
    return arguments.empty() ? kExitUsage : kExitDone;
  }
  if (arguments[0] == "--version" || arguments[0] == "version") {
    std::cout << "pawlctl " << kVersion << "\n";
    return kExitDone;
  }
  for (const CommandSpec& command : Commands()) {
    if (command.name != arguments[0]) continue;
    const absl::StatusOr<CommandLine> line =
        ParseCommandLine(command, absl::MakeConstSpan(arguments).subspan(1));
    if (!line.ok())
      return UsageError(
          absl::StrCat(line.status().message(), " (pawlctl ", command.name, " --help)"));
    if (line->help) {
      std::cout << CommandHelp("pawlctl", command) << "\n"
                << (RunsAJob(command) ? kJobExitCodes : kExitCodes);
      return kExitDone;
    }
    return Dispatch(command.name, *line);
  }
  return UsageError(
      absl::StrCat("there is no command '", arguments[0], "'; pawlctl --help lists them"));
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  return pawl::Main(std::vector<std::string>(argv + 1, argv + argc));
}
