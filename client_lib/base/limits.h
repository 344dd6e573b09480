// Limits that all processes of a job must agree on, and limits of a job file (proto/job.proto).
#ifndef PAWL_CLIENT_LIB_BASE_LIMITS_H_
#define PAWL_CLIENT_LIB_BASE_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace pawl {

// The limit on partitions of a job. Each takes a lock and some KiB on its server, and an entry in
// every routing table.
inline constexpr uint32_t kMaxPartitions = 65536;
// RoutingTable.primary of a partition that no server can serve.
inline constexpr uint32_t kNoPrimary = UINT32_MAX;
// Clients are numbered from 0 to kMaxClients - 1; servers keep a push window for each number.
inline constexpr uint32_t kMaxClients = 1024;
// The widest row of a sparse table, in elements.
inline constexpr uint32_t kMaxRowWidth = 4096;
// Elements of a dense table: 256 GiB of weights. The byte count stays far from 2^64.
inline constexpr uint64_t kMaxDenseElements = uint64_t{1} << 36;
// How far a push's ordinal may be ahead of the first missing one. Servers detect duplicates within
// this window.
inline constexpr size_t kPushWindow = 1024;
// Ranks that one process may host. Each has two threads (three during an evaluation) and its own
// gradients, and sends one message to each server at the end of a step.
inline constexpr size_t kMaxHostedRanks = 256;

// Limits of the fields of a job file.

inline constexpr size_t kMaxJobNameBytes = 64;
// Every partition keeps 32 bytes for each logical worker, and a push window while it pushes.
inline constexpr uint32_t kMaxLogicalWorkers = 16384;
inline constexpr uint32_t kMaxBatchSize = 1u << 24;
inline constexpr uint32_t kMaxEpochs = 1000000;
inline constexpr uint32_t kMaxStaleness = 1u << 20;
// all_reduce.bucket_bytes. Smaller buckets cost more than their content; larger ones do not overlap
// with the backward pass.
inline constexpr uint64_t kMinBucketBytes = 1024;
inline constexpr uint64_t kMaxBucketBytes = uint64_t{1} << 30;
// all_reduce.write_back_steps: at most this many steps are lost if all workers die.
inline constexpr uint64_t kMaxWriteBackSteps = 1000000;
inline constexpr uint32_t kMaxMicroBatches = 65536;
// precision.loss_scale: 2^24.
inline constexpr float kMaxLossScale = 16777216;
inline constexpr int kMaxHiddenLayers = 32;
inline constexpr uint32_t kMaxExperts = 64;
// Two tables each; a job has at most 1024.
inline constexpr uint64_t kMaxMmoeLayers = 400;
// Labels of a sample.
inline constexpr uint32_t kMaxLabels = 64;
// The position of a step is found by going through them.
inline constexpr int kMaxBatchSizeChanges = 100;
// The weight matrix between two layers of this width takes 1 GiB, too much to move in a step.
inline constexpr uint32_t kMaxLayerWidth = 16384;
// One less than the widest row: models keep a bias beside the factors.
inline constexpr uint32_t kMaxEmbeddingDim = kMaxRowWidth - 1;
// The classes are the outputs of a layer.
inline constexpr uint32_t kMaxClasses = kMaxLayerWidth;
// Columns of CSV data and of records.
inline constexpr int kMaxCsvColumns = 1024;
// Elements of a list that are used.
inline constexpr uint32_t kMaxListLength = 1024;
// data.libsvm_fields, and the fields of a CSV file.
inline constexpr uint32_t kMaxFields = 4096;
// data.window_samples: a logical worker holds two windows.
inline constexpr uint64_t kMaxWindowSamples = uint64_t{1} << 24;
// data.block_bytes. A block is read, and verified, as a whole.
inline constexpr uint64_t kMinBlockBytes = 1024;
inline constexpr uint64_t kMaxBlockBytes = uint64_t{64} << 20;
// Every push is sent to each replica.
inline constexpr uint32_t kMaxReplicas = 16;
inline constexpr uint32_t kMaxCheckpointsKept = 1024;
// A year, whose count of nanoseconds is far below 2^63.
inline constexpr uint64_t kMaxCheckpointIntervalS = uint64_t{365} * 24 * 3600;

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_LIMITS_H_
