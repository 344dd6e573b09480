// Reads a job file (proto/job.proto as protobuf text) and overrides single fields.
//
//   PAWL_ASSIGN_OR_RETURN(Job job, ReadJobFile("flights.job"));
//   PAWL_RETURN_IF_ERROR(ApplyOverride(job, "optimizer.adagrad.learning_rate=0.1"));
//   ResolvePaths(job, current_folder);
//   FillDefaults(job, workers);
//   PAWL_RETURN_IF_ERROR(ValidateJob(job, {}));  // client_lib/job/job_validation.h
#ifndef PAWL_CLIENT_LIB_JOB_JOB_FILE_H_
#define PAWL_CLIENT_LIB_JOB_JOB_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace pawl {

// A longer file is refused.
inline constexpr size_t kMaxJobFileBytes = 1 << 20;
// The bounds of what `partitions: 0` means; see DefaultPartitions.
inline constexpr uint32_t kMinDefaultPartitions = 16;
inline constexpr uint32_t kMaxDefaultPartitions = 256;
// The lower bound for batches of at least kLargeBatch samples: many servers may share their work.
inline constexpr uint32_t kMinPartitionsOfLargeBatches = 64;
inline constexpr uint32_t kLargeBatch = 2048;

// Parses `text`. INVALID_ARGUMENT with a line "name:line:column: reason" for each mistake.
absl::StatusOr<Job> ParseJob(absl::string_view text, const std::string& name);

// The same for protobuf's JSON: fields by their names in proto/job.proto, enums as text.
absl::StatusOr<Job> ParseJsonJob(absl::string_view text, const std::string& name);

// Reads and parses the file (as JSON if its name ends in .json), and resolves its paths against its
// folder. Neither fills in defaults nor validates values. NOT_FOUND if the file does not exist.
absl::StatusOr<Job> ReadJobFile(const std::string& path);

// Makes relative paths of the job absolute: they are relative to `folder`, which is made absolute
// first.
void ResolvePaths(Job& job, const std::string& folder);

// Sets one field: "batch_size=8192", "consistency.mode=ASYNC", "model.deepfm.hidden=[64, 32]",
// "data.train=other.libsvm". Strings need no quotes; a relative path stays relative (see
// ResolvePaths). A list is replaced as a whole, and cleared by "data.eval=" or "data.eval=[]"; one
// of messages is written "[{name: \"a\"}, {name: \"b\"}]". Setting another member of a oneof
// replaces the current one. INVALID_ARGUMENT if the path or the value is wrong: the message names
// the wrong part and, for a field, the fields that exist. The job is then unchanged.
absl::Status ApplyOverride(Job& job, absl::string_view override_text);

// The number of partitions for a job that does not say: one for each 16 samples of a rank's share
// of a batch, rounded down to a power of two and to the bounds above. With fewer keys in a segment,
// the cost of segments exceeds that of the rows. Without a batch size: the upper bound. REQUIRES:
// logical_workers is set.
uint32_t DefaultPartitions(const Job& job);

// Replaces 0 and unset fields with their defaults: logical_workers (one per worker, at least 1),
// partitions, consistency.mode SYNC, dense_path SERVER, all_reduce.write_back_steps 100,
// micro_batches 1, replicas 1, min_in_sync 1, durability LOG, checkpoint.keep 3, epochs 1, the
// model's loss, the metric and patience of early stopping. Idempotent.
void FillDefaults(Job& job, uint32_t workers);

// The job as text that ParseJob reads.
std::string JobText(const Job& job);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_JOB_FILE_H_
