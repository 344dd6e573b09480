#include "deploy/pawlctl/cluster/local_job.h"

#include <filesystem>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/job_file.h"
#include "client_lib/job/job_validation.h"
#include "deploy/pawlctl/cluster/local_cluster.h"

namespace pawl {
namespace {

// The values of pawl-worker's --collectives.
constexpr absl::string_view kCollectives[] = {"auto", "gloo", "nccl"};

std::vector<std::string> WorkerFlags(const RunOptions& options) {
  std::vector<std::string> flags;
  if (!options.collectives.empty())
    flags.push_back(absl::StrCat("--collectives=", options.collectives));
  if (options.cuda_graphs) flags.emplace_back("--cuda_graphs");
  return flags;
}

// Whether pawl-worker's --device takes it.
bool IsDeviceName(absl::string_view name) {
  if (name == "cpu") return true;
  return absl::ConsumePrefix(&name, "cuda:") && !name.empty() &&
         absl::c_all_of(name, absl::ascii_isdigit);
}

}  // namespace

absl::StatusOr<LocalJob> PrepareJob(const RunOptions& options) {
  if (options.job.empty()) {
    return absl::InvalidArgumentError("--job=FILE is missing; see pawlctl run --help");
  }
  if (options.servers < 1 || options.servers > kMaxLocalNodes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--servers=", options.servers, " is not possible: on one machine 1 to ", kMaxLocalNodes));
  }
  PAWL_ASSIGN_OR_RETURN(Job job, ReadJobFile(options.job));
  for (const std::string& setting : options.set) {
    PAWL_RETURN_IF_ERROR(Annotate(ApplyOverride(job, setting), absl::StrCat("--set=", setting)));
  }
  if (options.replicas != 0) job.set_replicas(options.replicas);
  if (options.replicas > options.servers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--replicas=", options.replicas, " is not possible with --servers=", options.servers,
        ": the replicas of a partition are on different servers"));
  }
  for (const std::string& device : options.devices) {
    if (!IsDeviceName(device)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--device=", device, " is not possible: cpu or cuda:N, such as cuda:0"));
    }
  }
  if (!options.collectives.empty() && !absl::c_linear_search(kCollectives, options.collectives)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--collectives=", options.collectives,
                     " is not possible: ", absl::StrJoin(kCollectives, ", ")));
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
  const int32_t workers = options.workers >= 0 ? options.workers : IsServeOnly(job) ? 0 : 1;
  if (IsServeOnly(job) && workers != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--workers=", workers, ": ", options.job,
        " has neither data nor model: its workers are your own programs; omit --workers"));
  }
  if (!IsServeOnly(job) && (workers < 1 || workers > static_cast<int32_t>(kMaxLocalNodes))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--workers=", workers, " is not possible: on one machine 1 to ", kMaxLocalNodes));
  }
  LocalJob prepared = {.job = std::move(job),
                       .workers = static_cast<uint32_t>(workers),
                       .worker_flags = WorkerFlags(options)};
  PAWL_RETURN_IF_ERROR(Annotate(
      ValidateJob(prepared.job,
                  {.check_files = true, .workers = prepared.workers, .servers = options.servers}),
      options.job));
  return prepared;
}

}  // namespace pawl
