// Whether a job is possible: everything that can be said before anything runs.
#ifndef PAWL_CLIENT_LIB_JOB_JOB_VALIDATION_H_
#define PAWL_CLIENT_LIB_JOB_JOB_VALIDATION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "client_lib/base/limits.h"
#include "proto/job.pb.h"

namespace pawl {

struct JobValidationOptions {
  // Look whether the data files can be opened.
  bool check_files = true;
  // Physical workers that the job will be given; 0: not known.
  uint32_t workers = 0;
  // Servers that it will be given; 0: not known.
  uint32_t servers = 0;
};

// True if the job only serves tables: neither data nor model.
bool IsServeOnly(const Job& job);

// INVALID_ARGUMENT naming the first impossible field, its value and the way out; NOT_FOUND naming a
// missing data file. Accepts a job with and without its defaults filled in.
absl::Status ValidateJob(const Job& job, const JobValidationOptions& options);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_JOB_VALIDATION_H_
