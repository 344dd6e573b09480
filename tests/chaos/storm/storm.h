// A storm: a cluster under load, and faults against it until the time is over.
#ifndef PAWL_TESTS_CHAOS_STORM_STORM_H_
#define PAWL_TESTS_CHAOS_STORM_STORM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "proto/job.pb.h"
#include "proto/types.pb.h"
#include "tests/chaos/storm/storm_plan.h"
#include "tests/chaos/storm/storm_report.h"

namespace pawl {

struct StormOptions {
  uint64_t seed = 0;
  MonotonicDuration duration = std::chrono::minutes(1);
  uint32_t servers = 3;
  // 1: what dies is back only by its log.
  uint32_t replicas = 2;
  // DURABILITY_UNSPECIFIED leaves the line out of the job.
  Durability durability = LOG;
  uint32_t partitions = 16;
  // SYNC and BOUNDED: the senders are ranks of the job; ASYNC: free-running clients.
  ConsistencyMode mode = ASYNC;
  uint32_t senders = 3;
  double pushes_per_second = 100;
  // Small enough for the memory of a long storm.
  uint32_t row_width = 64;
  // Of a table beside the ledger, of the same width, that is written before the storm and read
  // after it.
  uint64_t bulk_rows = 0;
  // Empty: all that the cluster is to survive by its replicas, durability and mode.
  std::vector<FaultKind> kinds;
  // Names for FaultKind::kServerCrashAtFailpoint.
  std::vector<std::string> failpoints;
  uint32_t heartbeat_interval_ms = 200;
  uint32_t lease_ms = 1000;
  MonotonicDuration max_scheduler_away = std::chrono::seconds(60);
  MonotonicDuration max_silence = std::chrono::seconds(5);
  // Each server has a disk of its own (LoopDisk), as kDiskFull and kDiskHang need.
  bool disks = false;
  MonotonicDuration max_disk_trouble = std::chrono::seconds(10);
  // A cluster that has not recovered for so long after a fault has ended never will.
  MonotonicDuration max_recovery = std::chrono::seconds(60);
  // Told to each as a whole line as the storm goes on.
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

// The kinds that a cluster with these options is to survive.
std::vector<FaultKind> SurvivableFaults(const StormOptions& options);

// An error only if the cluster cannot even be started or read; everything else that goes wrong is a
// violation in the report. From the main thread (see ChildProcess). Logs and notes stay in the
// folder that `folder` is set to.
absl::StatusOr<StormReport> RunStorm(const StormOptions& options, std::string* folder);

}  // namespace pawl

#endif  // PAWL_TESTS_CHAOS_STORM_STORM_H_
