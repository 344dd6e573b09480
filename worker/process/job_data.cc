#include "worker/process/job_data.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/data_files.h"
#include "spdlog/spdlog.h"
#include "worker/model/loss_function.h"

namespace pawl {
namespace {

// The files of a field, for messages.
std::string Describe(const std::vector<std::string>& files) {
  if (files.size() == 1) return files.front();
  return absl::StrCat(files.front(), " and ", files.size() - 1, " more");
}

// Refuses labels that the loss does not accept, before training starts. `field` is the field of the
// job file.
absl::Status CheckLabels(const Job& job, const LabelSummary& labels, absl::string_view field,
                         const std::vector<std::string>& files) {
  PAWL_ASSIGN_OR_RETURN(
      const LossFunction loss,
      LossFunction::Create(job.model(), std::max(job.model().mlp().classes(), 1u)));
  return loss.CheckLabels(labels, absl::StrCat(field, ": the labels of ", Describe(files)));
}

void LogBadSamples(const BadSamples& bad) {
  if (bad.count() == 0) return;
  spdlog::warn("skipped {} malformed training samples (data.max_bad_samples), such as:",
               bad.count());
  for (const std::string& example : bad.shown()) spdlog::warn("  {}", example);
}

}  // namespace

uint64_t MachineMemoryBytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

absl::StatusOr<JobData> LoadJobData(const Job& job, uint64_t max_bytes) {
  const MonotonicTime begin = Clock::Real().Now();
  const Data& spec = job.data();
  JobData data;
  DatasetOptions options{.max_bytes = max_bytes, .max_bad_samples = spec.max_bad_samples()};
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                        ExpandDataFiles("data.train", spec.train(), spec.format()));
  PAWL_ASSIGN_OR_RETURN(data.train, Dataset::Load(spec, files, options));
  PAWL_RETURN_IF_ERROR(CheckLabels(job, data.train->labels(), "data.train", files));
  LogBadSamples(data.train->bad_samples());
  if (!spec.eval().empty()) {
    options = {.max_bytes = max_bytes - data.train->memory_bytes(), .shape = data.train->shape()};
    PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> eval_files,
                          ExpandDataFiles("data.eval", spec.eval(), spec.format()));
    PAWL_ASSIGN_OR_RETURN(data.eval, Dataset::Load(spec, eval_files, options));
    PAWL_RETURN_IF_ERROR(CheckLabels(job, data.eval->labels(), "data.eval", eval_files));
  }
  spdlog::info("read {} training and {} evaluation samples with {} distinct keys in {:.1f} s",
               data.train->size(), data.eval == nullptr ? 0 : data.eval->size(),
               data.train->distinct_keys(), Seconds(Clock::Real().Now() - begin));
  return data;
}

}  // namespace pawl
