#include "server/shard/partition_options.h"

namespace pawl {

PartitionOptions PartitionOptionsOf(const Job& job, uint64_t max_rows) {
  PartitionOptions options;
  options.job_seed = job.seed();
  options.partitions = job.partitions();
  options.logical_workers = job.logical_workers();
  options.consistency = job.consistency();
  options.clip_global_norm = job.clip_global_norm();
  options.max_rows = max_rows;
  return options;
}

}  // namespace pawl
