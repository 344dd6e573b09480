// Derives the options of partitions from a job.
#ifndef PAWL_SERVER_SHARD_PARTITION_OPTIONS_H_
#define PAWL_SERVER_SHARD_PARTITION_OPTIONS_H_

#include <cstdint>

#include "proto/job.pb.h"
#include "server/shard/partition.h"

namespace pawl {

// Returns the options of the job's partitions; processes that only read partitions use the same.
// REQUIRES: the defaults of `job` are filled in.
PartitionOptions PartitionOptionsOf(const Job& job, uint64_t max_rows);

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_PARTITION_OPTIONS_H_
