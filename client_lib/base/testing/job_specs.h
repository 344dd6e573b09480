// Jobs for tests of servers.
#ifndef PAWL_CLIENT_LIB_BASE_TESTING_JOB_SPECS_H_
#define PAWL_CLIENT_LIB_BASE_TESTING_JOB_SPECS_H_

#include <cstdint>

#include "proto/job.pb.h"

namespace pawl {

inline Consistency ConsistencyOf(ConsistencyMode mode, uint32_t staleness = 0,
                                 uint32_t backup_workers = 0) {
  Consistency consistency;
  consistency.set_mode(mode);
  consistency.set_staleness(staleness);
  consistency.set_backup_workers(backup_workers);
  return consistency;
}

// A job as servers receive it, without data and model.
inline Job ServerJob(ConsistencyMode mode, uint32_t partitions, uint32_t logical_workers) {
  Job job;
  job.set_name("job");
  job.set_seed(3);
  job.set_partitions(partitions);
  job.set_logical_workers(logical_workers);
  job.mutable_consistency()->set_mode(mode);
  return job;
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_TESTING_JOB_SPECS_H_
