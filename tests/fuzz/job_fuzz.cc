// Job files as users write them: protobuf text or, if it begins with '{', JSON. Lines after one
// that holds only "--" are overrides, as of --set. Mistakes must be refused with INVALID_ARGUMENT
// and change nothing; what is accepted must be the same job after it is written and read again.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client_lib/job/job_file.h"
#include "client_lib/job/job_validation.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/fuzz/fuzz_check.h"

namespace pawl {
namespace {

using google::protobuf::util::MessageDifferencer;

void CheckRefusal(const absl::Status& status) {
  FuzzCheck(absl::IsInvalidArgument(status) && !status.message().empty(),
            "refused as INVALID_ARGUMENT with a reason");
}

absl::Status Validate(const Job& job) {
  return ValidateJob(job, {.check_files = false, .workers = 2, .servers = 2});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(input, absl::MaxSplits("\n--\n", 1));
  const absl::string_view text = parts.first;
  absl::StatusOr<Job> job =
      absl::StartsWith(text, "{") ? ParseJsonJob(text, "job.json") : ParseJob(text, "job");
  if (!job.ok()) {
    CheckRefusal(job.status());
    return 0;
  }
  for (const absl::string_view line : absl::StrSplit(parts.second, '\n')) {
    const Job before = *job;
    const absl::Status status = ApplyOverride(*job, line);
    if (status.ok()) continue;
    CheckRefusal(status);
    FuzzCheck(MessageDifferencer::Equals(*job, before), "a refused override changes nothing");
  }
  const absl::StatusOr<Job> again = ParseJob(JobText(*job), "again");
  FuzzCheck(again.ok(), "the job's text is a job");
  FuzzCheck(JobText(*again) == JobText(*job), "the same job");

  Job filled = *job;
  FillDefaults(filled, 2);
  Job twice = filled;
  FillDefaults(twice, 2);
  FuzzCheck(JobText(twice) == JobText(filled), "defaults are filled in once");
  const absl::Status valid = Validate(filled);
  if (!valid.ok()) CheckRefusal(valid);
  FuzzCheck(Validate(*job).ok() == valid.ok(), "valid with and without its defaults");
  return 0;
}

}  // namespace pawl
