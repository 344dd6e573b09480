// A storm: a cluster under load with faults injected until the time is up.
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
  // 1: a dead server recovers only from its log.
  uint32_t replicas = 2;
  // DURABILITY_UNSPECIFIED omits the field from the job.
  Durability durability = LOG;
  uint32_t partitions = 16;
  // SYNC and BOUNDED: the senders are ranks of the job; ASYNC: free-running clients.
  ConsistencyMode mode = ASYNC;
  // SYNC: steps close in two rounds, as with clip_global_norm. The bound is above every gradient,
  // so that the ledger's rows stay exact.
  bool clips = false;
  uint32_t senders = 3;
  double pushes_per_second = 100;
  // Small enough to fit the memory in a long storm.
  uint32_t row_width = 64;
  // The rows of a bulk table with the same width, written before the storm and read after it.
  uint64_t bulk_rows = 0;
  // Empty: every kind that the cluster must survive with its replicas, durability and mode.
  std::vector<FaultKind> kinds;
  // Failpoint names for FaultKind::kServerCrashAtFailpoint.
  std::vector<std::string> failpoints;
  // Certificates for all processes.
  bool tls = false;
  uint32_t heartbeat_interval_ms = 200;
  uint32_t lease_ms = 1000;
  MonotonicDuration max_scheduler_away = std::chrono::seconds(60);
  MonotonicDuration max_silence = std::chrono::seconds(5);
  // Gives each server a disk of its own (LoopDisk), as kDiskFull and kDiskHang require.
  bool disks = false;
  MonotonicDuration max_disk_trouble = std::chrono::seconds(10);
  // The limit on the recovery after the end of a fault.
  MonotonicDuration max_recovery = std::chrono::seconds(60);
  // Receives each progress message as a whole line.
  std::function<void(const std::string&)> progress = [](const std::string&) {};
};

// The kinds that a cluster with these options must survive.
std::vector<FaultKind> SurvivableFaults(const StormOptions& options);

// Fails only if the cluster cannot start or be read; everything else that goes wrong is a violation
// in the report. Call it on the main thread (see ChildProcess). Logs and notes stay in `folder`.
absl::StatusOr<StormReport> RunStorm(const StormOptions& options, std::string* folder);

}  // namespace pawl

#endif  // PAWL_TESTS_CHAOS_STORM_STORM_H_
