// How large the numbers of a job file may be (proto/job.proto).
#ifndef PAWL_CLIENT_LIB_JOB_JOB_LIMITS_H_
#define PAWL_CLIENT_LIB_JOB_JOB_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "client_lib/base/limits.h"

namespace pawl {

inline constexpr size_t kMaxJobNameBytes = 64;
// Every partition keeps 32 bytes for each, and a push window while it pushes.
inline constexpr uint32_t kMaxLogicalWorkers = 16384;
inline constexpr uint32_t kMaxBatchSize = 1u << 24;
inline constexpr uint32_t kMaxEpochs = 1000000;
inline constexpr uint32_t kMaxStaleness = 1u << 20;
// Of all_reduce.bucket_bytes: below, messages cost more than what is in them; above, nothing
// overlaps.
inline constexpr uint64_t kMinBucketBytes = 1024;
inline constexpr uint64_t kMaxBucketBytes = uint64_t{1} << 30;
// Of all_reduce.write_back_steps: what is lost with all workers.
inline constexpr uint64_t kMaxWriteBackSteps = 1000000;
inline constexpr uint32_t kMaxMicroBatches = 65536;
// Of precision.loss_scale: 2^24.
inline constexpr float kMaxLossScale = 16777216;
inline constexpr int kMaxHiddenLayers = 32;
// A weight matrix of two such layers is 1 GiB, which no step could move.
inline constexpr uint32_t kMaxLayerWidth = 16384;
// One less than a row's greatest width: models keep a bias beside the factors.
inline constexpr uint32_t kMaxEmbeddingDim = kMaxRowWidth - 1;
// They are a layer.
inline constexpr uint32_t kMaxClasses = kMaxLayerWidth;
inline constexpr int kMaxCsvColumns = 1024;
// Of data.libsvm_fields; a CSV file cannot have more either.
inline constexpr uint32_t kMaxFields = 4096;
// Every push goes to each replica.
inline constexpr uint32_t kMaxReplicas = 16;
inline constexpr uint32_t kMaxCheckpointsKept = 1024;
// A year: in any unit of time its count is far from 2^63.
inline constexpr uint64_t kMaxCheckpointIntervalS = uint64_t{365} * 24 * 3600;

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_JOB_JOB_LIMITS_H_
