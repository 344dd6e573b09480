// What of a job its partitions depend on.
#ifndef PAWL_SERVER_SHARD_PARTITION_OPTIONS_H_
#define PAWL_SERVER_SHARD_PARTITION_OPTIONS_H_

#include <cstdint>

#include "proto/job.pb.h"
#include "server/shard/partition.h"

namespace pawl {

// `job` has its defaults filled in. The same for everybody who has its partitions, whether they are
// served or only read.
PartitionOptions PartitionOptionsOf(const Job& job, uint64_t max_rows);

}  // namespace pawl

#endif  // PAWL_SERVER_SHARD_PARTITION_OPTIONS_H_
