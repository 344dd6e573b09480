#include "deploy/pawlctl/cluster/local_job.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/job_file.h"
#include "client_lib/job/job_validation.h"
#include "client_lib/job/straggler.h"
#include "deploy/pawlctl/cluster/local_cluster.h"

namespace pawl {
namespace {

// The values of pawl-worker's --collectives.
constexpr absl::string_view kCollectives[] = {"auto", "gloo", "nccl"};

// Whether pawl-worker's --device takes it.
bool IsDeviceName(absl::string_view name) {
  if (name == "cpu") return true;
  return absl::ConsumePrefix(&name, "cuda:") && !name.empty() &&
         absl::c_all_of(name, absl::ascii_isdigit);
}

// The job of a program without a job file: it makes its own tables.
Job JobOfProgram(const std::vector<std::string>& program) {
  std::string name = program.front();
  for (const std::string& word : program) {
    if (absl::EndsWith(word, ".py")) {
      name = word;
      break;
    }
  }
  name = std::filesystem::path(name).stem().string();
  for (char& c : name) {
    if (!absl::ascii_isalnum(c) && c != '_' && c != '-' && c != '.') c = '_';
  }
  Job job;
  job.set_name(name.substr(0, kMaxJobNameBytes));
  return job;
}

absl::StatusOr<Job> ReadJob(const RunOptions& options) {
  if (!options.job.empty()) return ReadJobFile(options.job);
  if (!options.worker_program.empty()) return JobOfProgram(options.worker_program);
  return absl::InvalidArgumentError(
      "--job=FILE is missing, or after -- the program to run as workers; see pawlctl run --help");
}

}  // namespace

absl::Status CheckProcesses(const RunOptions& options) {
  if (options.servers < 1 || options.servers > kMaxLocalNodes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--servers=", options.servers, " is not possible: on one machine 1 to ", kMaxLocalNodes));
  }
  PAWL_RETURN_IF_ERROR(CheckDevices(options.devices));
  if (!options.collectives.empty() && !absl::c_linear_search(kCollectives, options.collectives)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--collectives=", options.collectives,
                     " is not possible: ", absl::StrJoin(kCollectives, ", ")));
  }
  return Annotate(ParseStraggler(options.straggler).status(),
                  absl::StrCat("--straggler=", options.straggler, " is not possible"));
}

absl::Status CheckWorkers(int32_t workers) {
  if (workers >= 1 && workers <= static_cast<int32_t>(kMaxLocalNodes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--workers=", workers, " is not possible: on one machine 1 to ", kMaxLocalNodes));
}

absl::Status CheckDevices(const std::vector<std::string>& devices) {
  for (const std::string& device : devices) {
    if (!IsDeviceName(device)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--device=", device, " is not possible: cpu or cuda:N, such as cuda:0"));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> WorkerFlags(const RunOptions& options) {
  std::vector<std::string> flags;
  if (!options.collectives.empty())
    flags.push_back(absl::StrCat("--collectives=", options.collectives));
  if (options.cuda_graphs) flags.emplace_back("--cuda_graphs");
  if (!options.index_dir.empty()) {
    flags.push_back(
        absl::StrCat("--index_dir=", std::filesystem::absolute(options.index_dir).string()));
  }
  if (!options.straggler.empty()) flags.push_back(absl::StrCat("--straggler=", options.straggler));
  return flags;
}

absl::StatusOr<LocalJob> PrepareJob(const RunOptions& options) {
  PAWL_RETURN_IF_ERROR(CheckProcesses(options));
  PAWL_ASSIGN_OR_RETURN(Job job, ReadJob(options));
  const bool has_program = !options.worker_program.empty();
  for (const std::string& setting : options.set) {
    PAWL_RETURN_IF_ERROR(Annotate(ApplyOverride(job, setting), absl::StrCat("--set=", setting)));
  }
  if (options.replicas != 0) job.set_replicas(options.replicas);
  if (options.replicas > options.servers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--replicas=", options.replicas, " is not possible with --servers=", options.servers,
        ": the replicas of a partition are on different servers"));
  }
  if (Durability durability; !options.durability.empty()) {
    if (!Durability_Parse(options.durability, &durability) ||
        durability == DURABILITY_UNSPECIFIED) {
      return absl::InvalidArgumentError(absl::StrCat("--durability=", options.durability,
                                                     " is not possible: MEMORY, LOG or FSYNC"));
    }
    job.set_durability(durability);
  }
  ResolvePaths(job, std::filesystem::current_path().string());
  const int32_t workers = options.workers >= 0               ? options.workers
                          : IsServeOnly(job) && !has_program ? 0
                                                             : 1;
  if (!has_program && IsServeOnly(job) && workers != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers=", workers, ": ", options.job,
                     " has neither data nor model: its workers are your own programs; give the "
                     "program after --, or omit --workers"));
  }
  if (has_program && !IsServeOnly(job)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.job, " has data or a model, which pawl-worker trains: omit '",
                     options.worker_program.front(), "', or data and model"));
  }
  std::vector<std::string> worker_flags = WorkerFlags(options);
  if (has_program && !worker_flags.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(worker_flags.front(), " is a flag of pawl-worker, but '",
                     options.worker_program.front(), "' runs instead: omit the flag"));
  }
  if (has_program || !IsServeOnly(job)) PAWL_RETURN_IF_ERROR(CheckWorkers(workers));
  LocalJob prepared = {.job = std::move(job),
                       .workers = static_cast<uint32_t>(workers),
                       .worker_flags = std::move(worker_flags),
                       .worker_program = {}};
  if (has_program) {
    PAWL_ASSIGN_OR_RETURN(prepared.worker_program,
                          FindWorkerProgram(options.worker_program.front()));
    prepared.worker_flags.assign(options.worker_program.begin() + 1, options.worker_program.end());
  }
  PAWL_RETURN_IF_ERROR(Annotate(
      ValidateJob(prepared.job,
                  {.check_files = true, .workers = prepared.workers, .servers = options.servers}),
      options.job.empty() ? "the job" : options.job));
  return prepared;
}

}  // namespace pawl
