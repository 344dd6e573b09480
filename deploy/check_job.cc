// check_job: checks job files, but not whether the files that they name exist. For
// documentation_test.py.
//
//   check_job FILE [PART...]     each PART has fields of a job and is checked at the end of FILE
//
// Prints a line for each invalid one. Exit codes: 0: all are valid; 1: some are not; 2: wrong
// usage.
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "absl/status/statusor.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/job_file.h"
#include "client_lib/job/job_validation.h"

namespace pawl {
namespace {

absl::StatusOr<Job> Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(path);
  return ParseJob(
      std::string{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}, path);
}

absl::Status Check(const std::string& path, const char* part) {
  PAWL_ASSIGN_OR_RETURN(Job job, Read(path));
  if (part != nullptr) {
    PAWL_ASSIGN_OR_RETURN(const Job fields, Read(part));
    job.MergeFrom(fields);
  }
  FillDefaults(job, /*workers=*/1);
  return ValidateJob(job, {.check_files = false});
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "Usage: check_job FILE [PART...]\n";
    return 2;
  }
  int code = 0;
  for (int i = 1; i < argc; ++i) {
    const absl::Status status = pawl::Check(argv[1], i == 1 ? nullptr : argv[i]);
    if (status.ok()) continue;
    std::cout << argv[i] << ": " << status.message() << "\n";
    code = 1;
  }
  return code;
}
