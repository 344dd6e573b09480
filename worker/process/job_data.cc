#include "worker/process/job_data.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "spdlog/spdlog.h"
#include "worker/model/loss_function.h"

namespace pawl {
namespace {

// Refuses labels that the loss does not accept, before training starts. `field` is the field of the
// job file.
absl::Status CheckLabels(const Job& job, const Dataset& data, absl::string_view field,
                         const std::string& path) {
  PAWL_ASSIGN_OR_RETURN(
      const LossFunction loss,
      LossFunction::Create(job.model(), std::max(job.model().mlp().classes(), 1u)));
  return loss.CheckLabels(data.labels(), absl::StrCat(field, ": the labels of ", path));
}

}  // namespace

uint64_t MachineMemoryBytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

absl::StatusOr<JobData> LoadJobData(const Job& job, uint64_t max_bytes) {
  const MonotonicTime begin = Clock::Real().Now();
  JobData data;
  DatasetOptions options{.max_bytes = max_bytes};
  PAWL_ASSIGN_OR_RETURN(data.train, Dataset::Load(job.data(), job.data().train(), options));
  PAWL_RETURN_IF_ERROR(CheckLabels(job, *data.train, "data.train", job.data().train()));
  if (!job.data().eval().empty()) {
    options.max_bytes -= data.train->memory_bytes();
    options.shape = data.train->shape();
    PAWL_ASSIGN_OR_RETURN(data.eval, Dataset::Load(job.data(), job.data().eval(), options));
    PAWL_RETURN_IF_ERROR(CheckLabels(job, *data.eval, "data.eval", job.data().eval()));
  }
  spdlog::info("read {} training and {} evaluation samples with {} distinct keys in {:.1f} s",
               data.train->size(), data.eval == nullptr ? 0 : data.eval->size(),
               data.train->distinct_keys(), Seconds(Clock::Real().Now() - begin));
  return data;
}

}  // namespace pawl
