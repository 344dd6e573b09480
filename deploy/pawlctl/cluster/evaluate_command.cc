#include "deploy/pawlctl/cluster/evaluate_command.h"

#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/job_file.h"
#include "client_lib/job/job_validation.h"
#include "client_lib/process/signal_waiter.h"
#include "deploy/pawlctl/cluster/local_cluster.h"
#include "deploy/pawlctl/cluster/local_job.h"
#include "deploy/pawlctl/cluster/local_run.h"
#include "deploy/pawlctl/cluster/out_folder.h"
#include "deploy/pawlctl/cluster/progress.h"
#include "deploy/pawlctl/cluster/run_command.h"
#include "deploy/pawlctl/commands/connection_flags.h"
#include "deploy/pawlctl/console.h"
#include "nlohmann/json.hpp"
#include "scheduler/checkpoint/restore.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {
namespace {

using Json = nlohmann::ordered_json;

struct EvaluateFlags {
  EvaluateOptions evaluate;
  RunOptions run;
  bool json = false;
};

int Refuse(const absl::Status& error) {
  Console().Error(absl::StrCat("evaluate: ", error.message()));
  return kExitUsage;
}

// A new folder for the run's files.
absl::StatusOr<std::string> MakeTemporaryFolder() {
  std::error_code error;
  std::string path =
      (std::filesystem::temp_directory_path(error) / "pawl-evaluate-XXXXXX").string();
  if (error || mkdtemp(path.data()) == nullptr)
    return absl::UnavailableError("cannot create a temporary folder; name one with --out");
  return path;
}

// Runs the job on processes of this machine. Returns what the scheduler says about the evaluation.
absl::StatusOr<Json> Evaluate(const EvaluatedCheckpoint& checkpoint, const RunOptions& options,
                              const std::string& out_path, int* exit_code) {
  PAWL_ASSIGN_OR_RETURN(Programs programs, FindOwnPrograms());
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<OutFolder> out, OutFolder::Open(out_path));
  PAWL_RETURN_IF_ERROR(out->Write(out->job_file(), JobText(checkpoint.job)));
  // The files may have other content than at an earlier evaluation.
  if (checkpoint.job.data().stream_eval())
    PAWL_RETURN_IF_ERROR(MakeDataIndex(programs, *out, options.index_dir).status());
  // A signal ends the making of an index at once.
  SignalWaiter signals;
  const LocalJob job = {.job = checkpoint.job,
                        .workers = static_cast<uint32_t>(options.workers),
                        .worker_flags = WorkerFlags(options),
                        .worker_program = {}};
  *exit_code = RunLocalJob(job, options, std::move(programs), *out, signals);
  if (*exit_code != kExitDone) return absl::UnknownError("the evaluation failed");
  std::ifstream file(out->metrics_file());
  const Json metrics = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  const auto eval = metrics.is_object() ? metrics.find("eval") : metrics.end();
  if (eval == metrics.end() || !eval->is_object() || eval->empty())
    return absl::InternalError(absl::StrCat(out->metrics_file(), " has no evaluation"));
  return *eval;
}

void Print(const EvaluatedCheckpoint& checkpoint, const Json& eval, bool as_json) {
  Console console;
  const auto& files = checkpoint.job.data().eval();
  if (as_json) {
    const Json result = {{"job", checkpoint.job.name()},
                         {"checkpoint", checkpoint.folder},
                         {"data", std::vector<std::string>(files.begin(), files.end())},
                         {"eval", eval}};
    console.Line(result.dump(2, ' ', false, Json::error_handler_t::replace));
    return;
  }
  console.Line(absl::StrCat("checkpoint ", checkpoint.folder, ", step ",
                            FormatCount(eval.value("step", uint64_t{0})), ", on ",
                            FormatCount(eval.value("samples", uint64_t{0})), " samples of ",
                            absl::StrJoin(files, ", "), ":"));
  // Counts, times and bins are in the JSON only.
  std::vector<std::string> scores;
  for (const char* const name : {"auc", "auc_error_max", "gauc", "ndcg", "logloss", "accuracy",
                                 "normalized_entropy", "calibration", "rmse", "mae"}) {
    const auto value = eval.find(name);
    if (value == eval.end()) continue;
    scores.push_back(absl::StrCat(
        name, " ", value->is_number() ? FormatValue(value->get<double>()) : value->dump()));
  }
  // Those of further labels.
  for (const auto& [name, value] : eval.items()) {
    if (absl::StrContains(name, '/') && value.is_number())
      scores.push_back(absl::StrCat(name, " ", FormatValue(value.get<double>())));
  }
  console.Line(absl::StrJoin(scores, "  "));
}

int RunEvaluation(EvaluateFlags flags) {
  const absl::StatusOr<EvaluatedCheckpoint> checkpoint =
      PrepareEvaluation(Env::Real(), flags.evaluate);
  if (!checkpoint.ok()) return Refuse(checkpoint.status());
  if (const absl::Status valid =
          ValidateJob(checkpoint->job, {.check_files = true,
                                        .workers = static_cast<uint32_t>(flags.run.workers),
                                        .servers = flags.run.servers});
      !valid.ok()) {
    return Refuse(valid);
  }
  const bool is_temporary = flags.run.out.empty();
  std::string out = flags.run.out;
  if (is_temporary) {
    absl::StatusOr<std::string> made = MakeTemporaryFolder();
    if (!made.ok()) return Refuse(made.status());
    out = *std::move(made);
  }
  flags.run.restore = checkpoint->folder;
  flags.run.is_quiet = true;
  int exit_code = kExitFailed;
  const absl::StatusOr<Json> eval = Evaluate(*checkpoint, flags.run, out, &exit_code);
  if (!eval.ok()) {
    Console().Error(absl::StrCat("evaluate: ", eval.status().message(), "; logs are in ", out));
    return exit_code == kExitDone ? kExitFailed : exit_code;
  }
  Print(*checkpoint, *eval, flags.json);
  std::error_code error;
  if (is_temporary) std::filesystem::remove_all(out, error);
  return kExitDone;
}

absl::Status CheckFlags(const EvaluateFlags& flags) {
  PAWL_RETURN_IF_ERROR(CheckProcesses(flags.run));
  return CheckWorkers(flags.run.workers);
}

}  // namespace

absl::StatusOr<EvaluatedCheckpoint> PrepareEvaluation(Env& env, const EvaluateOptions& options) {
  std::string name;
  Job job;
  if (!options.job.empty()) {
    PAWL_ASSIGN_OR_RETURN(job, ReadJobFile(options.job));
    name = job.name();
  }
  const std::string flag = absl::StrCat("--checkpoint=", options.checkpoint);
  const absl::StatusOr<CheckpointPlace> place =
      CheckpointStore::Locate(env, options.checkpoint, name);
  PAWL_RETURN_IF_ERROR(Annotate(place.status(), flag));
  const absl::StatusOr<CheckpointManifest> manifest =
      CheckpointStore(env, place->dir).ReadManifest(place->name);
  PAWL_RETURN_IF_ERROR(Annotate(manifest.status(), flag));
  Job then;
  if (!then.ParseFromString(manifest->job()))
    return absl::DataLossError(absl::StrCat(flag, ": its manifest holds no job"));
  if (options.job.empty()) job = then;
  for (const std::string& setting : options.set)
    PAWL_RETURN_IF_ERROR(Annotate(ApplyOverride(job, setting), absl::StrCat("--set=", setting)));
  if (!job.has_model()) {
    return absl::InvalidArgumentError(
        "the job has no model, so only its own program can evaluate it");
  }

  // What only the training depends on is replaced, so that the training data may be elsewhere.
  Data& data = *job.mutable_data();
  if (!options.data.empty()) data.mutable_eval()->Assign(options.data.begin(), options.data.end());
  if (data.eval().empty())
    return absl::InvalidArgumentError("the job has no data.eval; name files with --data");
  *data.mutable_train() = data.eval();
  // The windows stay, because sums are divided by them.
  data.clear_data_id();
  data.clear_max_bad_samples();
  Evaluation& evaluation = *job.mutable_evaluation();
  evaluation.set_only(true);
  evaluation.clear_every_steps();
  evaluation.clear_early_stopping();
  job.clear_checkpoint();
  job.clear_max_steps();
  job.clear_replicas();
  job.clear_min_in_sync();
  job.set_durability(MEMORY);
  // A job file may leave them to their defaults, which depend on the run.
  if (job.logical_workers() == 0) job.set_logical_workers(then.logical_workers());
  if (job.partitions() == 0) job.set_partitions(then.partitions());
  ResolvePaths(job, std::filesystem::current_path().string());
  FillDefaults(job, /*workers=*/1);
  PAWL_RETURN_IF_ERROR(Annotate(CheckFits(job, *manifest), flag));
  return EvaluatedCheckpoint{JoinPath(place->dir, place->name), std::move(job)};
}

void AddEvaluateCommand(CommandLine& line) {
  const auto flags = std::make_shared<EvaluateFlags>();
  CLI::App& command = line.AddCommand(
      "evaluate", "evaluate a checkpoint on data",
      "Loads a checkpoint into processes on this machine that end with it, evaluates its\n"
      "parameters as the job's own workers do, and prints all scores. Trains and changes nothing;\n"
      "the job may be running, ended or gone. A category that has no row counts with its initial\n"
      "value, as in the job. The whole checkpoint is checked first.\n"
      "\n"
      "  pawlctl evaluate --checkpoint=/shared/checkpoints --job=job.pbtxt --data=new.libsvm\n"
      "  pawlctl evaluate --checkpoint=out/checkpoints/flights-000610-end --json\n"
      "\n"
      "On a cluster: pawl-scheduler --restore with evaluation.only in the job.",
      [flags] { return RunEvaluation(*flags); });
  EvaluateOptions& evaluate = flags->evaluate;
  RunOptions& run = flags->run;
  run.workers = 1;
  run.max_restarts = 0;
  AddFlag(command, "--checkpoint", "FOLDER", evaluate.checkpoint,
          "A checkpoint's own folder, or a folder with checkpoints; then the newest of the job.",
          {.required = true});
  AddFlag(command, "--job", "FILE", evaluate.job,
          "The job file; default: the job that is saved in the checkpoint. It must have the same\n"
          "model, optimizers, seed and columns; evaluation and data.eval may differ.");
  AddRepeatedFlag(command, "--data", "FILE", evaluate.data,
                  "What to evaluate on: a file, folder or glob in the job's format. May be\n"
                  "repeated. Default: data.eval of the job.");
  AddRepeatedFlag(
      command, "--set", "PATH=VALUE", evaluate.set,
      "Changes a field of the job, such as --set=evaluation.group_by=user, as in pawlctl\n"
      "run.");
  AddProcessFlags(command, run, "How many workers; default: 1.");
  AddFlag(command, "--out", "FOLDER", run.out,
          "A folder for logs and metrics.json; default: a temporary one, which is removed.");
  AddJsonFlag(command, flags->json);
  SetCheck(command, [flags] { return CheckFlags(*flags); });
}

}  // namespace pawl
