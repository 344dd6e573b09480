// One run of pawl-scheduler, from the options to the exit code.
#ifndef PAWL_SCHEDULER_PROCESS_SCHEDULER_PROCESS_H_
#define PAWL_SCHEDULER_PROCESS_SCHEDULER_PROCESS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/host_port.h"
#include "client_lib/daemon/background_thread.h"
#include "client_lib/daemon/daemon.h"
#include "client_lib/security/audit_log.h"
#include "client_lib/security/security.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/checkpoint/checkpoint_scrubber.h"
#include "scheduler/checkpoint/checkpoint_writer.h"
#include "scheduler/curve/curve_recorder.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/process/scheduler_options.h"
#include "scheduler/rpc/grpc_server_caller.h"
#include "scheduler/rpc/listener.h"
#include "scheduler/rpc/service.h"
#include "scheduler/startup/startup.h"
#include "scheduler/status/metrics_endpoint.h"
#include "scheduler/store/leadership.h"
#include "scheduler/store/state_saver.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {

// Connects the parts of a scheduler (store, coordinator, gRPC service, checkpoint threads, metrics)
// and runs them. Used by one thread.
class SchedulerProcess {
 public:
  // `signal` outlives this.
  SchedulerProcess(SchedulerOptions options, EndSignal& signal);

  // Directs the job to its end and returns the exit code. Does not return where the process cannot
  // end cleanly: another scheduler leads, the state cannot be saved, or startup fails while rpcs
  // may be in progress. Call once.
  int Run();

 private:
  // The exit code of a process that must end; nullopt: it continues.
  using ExitCode = std::optional<int>;

  // Run's phases, in order. Errors are the operator's: wrong flags, files or job.
  absl::Status CheckOptions();
  // FAILED_PRECONDITION if --data_dir belongs to a server or worker.
  absl::Status CheckDataDir() const;
  void WarnOfOtherJob() const;
  absl::StatusOr<ExitCode> BecomeLeaderAndLoad();
  absl::Status StartListening();
  absl::Status StartCoordinator();
  void DirectUntilEnd();
  int ShutDown();

  // The exit code of a scheduler that a signal ends before it directs the job.
  int CodeOfSignal() const;
  // Stores the state that the living servers report.
  absl::Status RebuildAndStore();
  absl::Status WriteAddress();
  // PrepareCheckpoints, with its progress in the log. Exits if a signal arrives first.
  absl::Status PrepareCheckpointsOrExit();
  // A restored job continues in spite of this error, which is logged; a new one does not start.
  absl::Status Tolerate(const absl::Status& status) const;
  absl::Status StartMetrics();
  // Opens what may be on shared file systems, on a thread of its own. A restored job does not wait
  // for one that hangs; a new one waits until a signal comes.
  absl::Status OpenFiles();
  absl::Status StartCurve();
  absl::Status SetAsideLaterCheckpoints();
  void StartScrubber();
  // Writes the last points of the learning curve. False: the file hangs. REQUIRES: opened_.
  bool StopCurve();
  // The answer of GetStatus until the service begins: of a new job. UNAVAILABLE: the job continues.
  absl::StatusOr<GetStatusResponse> StatusBeforeServing() const;

  const SchedulerOptions options_;
  EndSignal& signal_;
  std::unique_ptr<AuditLog> audit_;
  // Apart, so that refused callers cannot displace what operators did.
  std::unique_ptr<AuditLog> refused_;
  // Declared before the users of its credentials.
  std::unique_ptr<Security> security_;
  HostPort listen_at_;
  std::string metrics_path_;
  std::string address_path_;
  std::string store_path_;
  // Given to the coordinator by StartCoordinator.
  CoordinatorOptions coordinator_options_;
  Job job_;
  uint64_t job_id_ = 0;
  Startup startup_;
  // True while the report of a completed job is being written. Other ends are already saved.
  std::atomic<bool> writing_report_ = false;

  std::unique_ptr<StateStore> store_;
  std::optional<StoredState> stored_;
  // The state of an earlier scheduler of this job; nullopt for a new job.
  std::optional<SchedulerState> restored_;
  VerifyProgress verified_;
  std::unique_ptr<SchedulerService> service_;
  Listener listener_;
  // Destroyed before the coordinator, which it calls.
  std::unique_ptr<CheckpointWriter> checkpoint_writer_;
  std::unique_ptr<GrpcServerCaller> servers_;
  // The checkpoint that the job starts from, if later ones may still have to be set aside.
  std::optional<StoredRestore> starts_from_;
  std::atomic<StateSaver*> notified_saver_ = nullptr;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<StateSaver> saver_;
  std::unique_ptr<MetricsEndpoint> metrics_;
  std::unique_ptr<CheckpointScrubber> scrubber_;
  std::unique_ptr<CurveRecorder> curve_;
  // open_status_, scrubber_ and curve_ are its own until opened_.
  std::atomic<bool> opened_ = false;
  absl::Status open_status_;
  // Last: its destructor waits for a thread that uses the other members.
  BackgroundThread opener_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PROCESS_SCHEDULER_PROCESS_H_
