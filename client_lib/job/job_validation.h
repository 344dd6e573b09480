// Validation of a job: every check that is possible before anything runs.
#ifndef PAWL_CLIENT_LIB_JOB_JOB_VALIDATION_H_
#define PAWL_CLIENT_LIB_JOB_JOB_VALIDATION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "client_lib/base/limits.h"
#include "proto/job.pb.h"

namespace pawl {

struct JobValidationOptions {
  // Check that the data files can be opened.
  bool check_files = true;
  // The number of physical workers; 0: unknown.
  uint32_t workers = 0;
  // The number of servers; 0: unknown.
  uint32_t servers = 0;
};

// Whether the job only serves tables, without data and model.
bool IsServeOnly(const Job& job);

// INVALID_ARGUMENT naming the first impossible field, its value and a remedy; NOT_FOUND naming a
// missing data file. Accepts a job with or without its defaults filled in.
absl::Status ValidateJob(const Job& job, const JobValidationOptions& options);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_JOB_VALIDATION_H_
