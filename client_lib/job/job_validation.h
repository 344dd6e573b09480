// Whether a job is possible: everything that can be said before anything runs.
#ifndef PAWL_CLIENT_LIB_JOB_JOB_VALIDATION_H_
#define PAWL_CLIENT_LIB_JOB_JOB_VALIDATION_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace pawl {

inline constexpr size_t kMaxJobNameBytes = 64;
// A partition costs a lock and some KiB on its server; placement is a list of this length in every routing table.
inline constexpr uint32_t kMaxPartitions = 65536;
// Every partition keeps a clock and a push window for each.
inline constexpr uint32_t kMaxLogicalWorkers = 1024;
inline constexpr uint32_t kMaxBatchSize = 1u << 24;
inline constexpr uint32_t kMaxEpochs = 1000000;
inline constexpr uint32_t kMaxStaleness = 1u << 20;
// Of all_reduce.bucket_bytes: below, messages cost more than what is in them; above, nothing overlaps.
inline constexpr uint64_t kMinBucketBytes = 1024;
inline constexpr uint64_t kMaxBucketBytes = uint64_t{1} << 30;
// Of all_reduce.write_back_steps: what is lost with all workers.
inline constexpr uint64_t kMaxWriteBackSteps = 1000000;
inline constexpr uint32_t kMaxMicroBatches = 65536;
// Of precision.loss_scale: 2^24.
inline constexpr float kMaxLossScale = 16777216;
inline constexpr int kMaxHiddenLayers = 32;
inline constexpr uint32_t kMaxLayerWidth = 65536;
// One less than a row's greatest width: models keep a bias beside the factors.
inline constexpr uint32_t kMaxEmbeddingDim = 4095;
inline constexpr uint32_t kMaxClasses = 65536;
inline constexpr int kMaxCsvColumns = 4096;
// Every push goes to each replica.
inline constexpr uint32_t kMaxReplicas = 16;
inline constexpr uint32_t kMaxCheckpointsKept = 1024;
// A year: in any unit of time its count is far from 2^63.
inline constexpr uint64_t kMaxCheckpointIntervalS = uint64_t{365} * 24 * 3600;

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
// missing data file; UNIMPLEMENTED for what Pawl cannot do yet. Accepts a job with and without its defaults filled in.
absl::Status ValidateJob(const Job& job, const JobValidationOptions& options);

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_JOB_VALIDATION_H_
