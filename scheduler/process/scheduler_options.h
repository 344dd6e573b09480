// The options of a scheduler: one field for each flag of pawl-scheduler.
#ifndef PAWL_SCHEDULER_PROCESS_SCHEDULER_OPTIONS_H_
#define PAWL_SCHEDULER_PROCESS_SCHEDULER_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client_lib/security/security_options.h"
#include "scheduler/job/coordinator_options.h"

namespace pawl {

// The values of the flags of the same names, unchecked. scheduler/main.cc explains each and has the
// defaults.
struct SchedulerOptions {
  std::string job;
  uint32_t servers = 1;
  int32_t workers = -1;
  uint32_t replicas = 0;

  std::string data_dir;
  std::string store;
  std::string listen;
  std::string advertise;
  std::string address_file;
  std::string metrics_listen;
  // Serves them over HTTP to everyone, although there are certificates.
  bool insecure_metrics = false;
  std::string tensorboard_dir;
  std::string curve_file;
  SecurityOptions security;
  std::string etcd_tls_dir;
  std::vector<std::string> checkpoint_roots;

  uint32_t heartbeat_interval_ms = 200;
  uint32_t lease_ms = 1000;
  uint32_t start_timeout_ms = 300000;
  uint32_t linger_ms = 5000;
  double worker_takeover_grace_s = 1;
  double worker_return_timeout_s = 60;
  double recovery_timeout_s = 60;

  std::string restore;
  bool restart_ended_job = false;
  bool rebuild = false;
  uint32_t rebuild_timeout_s = 30;
  std::vector<std::string> rebuild_without;
  uint64_t scrub_bytes_per_s = 0;
  bool stop_on_sigterm = true;
};

// Reads the job file and returns the job as it will run, defaults filled in, with the settings of
// the coordinator. Does not look at the job's data. INVALID_ARGUMENT names the flag, or the job
// file and its field.
absl::StatusOr<CoordinatorOptions> MakeCoordinatorOptions(const SchedulerOptions& options);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PROCESS_SCHEDULER_OPTIONS_H_
