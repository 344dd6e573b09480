// A client's membership in its job, and the state that its sessions share.
#ifndef PAWL_CLIENT_LIB_SESSION_CLIENT_CORE_H_
#define PAWL_CLIENT_LIB_SESSION_CLIENT_CORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/client.h"
#include "client_lib/metrics/pending_metrics.h"
#include "client_lib/rpc/control_channel.h"
#include "client_lib/rpc/deadline_queue.h"
#include "client_lib/rpc/node_link.h"
#include "client_lib/rpc/transport.h"
#include "client_lib/session/flow_control.h"
#include "client_lib/session/messenger.h"
#include "client_lib/session/routing.h"
#include "client_lib/session/scheduler_calls.h"
#include "client_lib/session/segments.h"
#include "client_lib/session/step_calls.h"
#include "proto/parameter.pb.h"
#include "proto/scheduler.pb.h"

namespace pawl {

class SessionImpl;

// A client that has heard nothing from the scheduler, and has sent nothing to the servers, for this
// long fails at its next check, one in that time: the job has probably ended. Servers on Kubernetes
// wait as long for their scheduler.
inline constexpr std::chrono::hours kSchedulerTimeout{1};

// Counts the servers' answers to pushes.
struct SegmentCounters {
  std::atomic<uint64_t> accepted{0};
  std::atomic<uint64_t> deduplicated{0};
  std::atomic<uint64_t> late{0};

  void Add(const PushResponse& response) {
    accepted.fetch_add(response.accepted(), std::memory_order_relaxed);
    deduplicated.fetch_add(response.deduplicated(), std::memory_order_relaxed);
    late.fetch_add(response.late(), std::memory_order_relaxed);
  }
};

// Also holds the client's failure, after which nothing is sent, and the count of calls in flight.
// Thread-safe. Owned by shared_ptr, which calls in flight share.
class ClientCore : public std::enable_shared_from_this<ClientCore> {
 public:
  // All must outlive the core's use of them; Close shuts them down. `link` carries heartbeats and
  // routing. `control` carries the other calls to the scheduler; some wait there. They may be the
  // same.
  ClientCore(ClientOptions options, Transport& transport, ControlChannel& control,
             ControlChannel& link);
  ~ClientCore();

  // Registers, fetches the routing and starts heartbeats. Blocks.
  absl::Status Join();
  // The same without blocking. `done` runs once, on a thread of the link, unless Close comes first.
  void Join(Callback done);
  // Waits up to kLastMetricsTimeout until the scheduler has the logged metrics. Ends everything in
  // flight with CANCELLED, waits for it, and says goodbye. Blocks. Call it once, and not from a
  // callback.
  void Close();

  // From the first registration: identifies the client to servers and sessions.
  const RegisterResponse& registration() const { return registration_; }
  // From the latest registration: identifies the client to the scheduler.
  NodeLink::Identity newest_identity() const { return link_->identity(); }
  JobState job_state() const;
  absl::Status failure() const { return messenger_->failure(); }
  bool WaitForEnd(MonotonicDuration timeout) const;
  bool leave_requested() const;
  void SetProgress(const WorkerProgress& progress);
  absl::Status LogMetric(const std::string& name, uint64_t step, double value);
  // Adds the metrics that the scheduler has not acknowledged; and acknowledges those of a report.
  void AddMetrics(WorkerProgress& progress) const;
  void AcknowledgeMetrics(const WorkerProgress& progress);

  MonotonicTime Deadline(const CallOptions& options) const;

  // Every user call is counted, from before it starts until its callback has returned.
  Callback Count(Callback done);

  // The assignment of a rank that this process has named when it registered.
  LogicalWorkerAssignment OwnRank(uint32_t rank) const;
  // An incarnation of 0 stands for that of the process. The core owns the session until
  // CloseLogicalWorker or Close.
  absl::StatusOr<LogicalWorker*> OpenLogicalWorker(const LogicalWorkerAssignment& rank,
                                                   uint64_t first_step);
  void TakeOver(const LogicalWorkerAssignment& rank, const CallOptions& options,
                absl::AnyInvocable<void(absl::StatusOr<LogicalWorker*>)> done);
  void CloseLogicalWorker(uint32_t rank);
  Session& free_running();

  const ClientOptions& options() const { return options_; }
  // Whether the job's consistency mode is SYNC.
  bool is_sync() const;
  // Job.clip_global_norm; 0 outside SYNC.
  float clip_global_norm() const { return registration_.job().clip_global_norm(); }
  const Clock& clock() const { return clock_; }
  // The next three REQUIRE that the client has joined.
  SchedulerCalls& scheduler_calls() { return *scheduler_calls_; }
  Router& router() { return *router_; }
  Messenger& messenger() { return *messenger_; }
  DeadlineQueue& deadlines() { return *deadlines_; }
  // Limits the client's calls by the bytes of their keys and values.
  FlowControl& push_flow() { return *push_flow_; }
  FlowControl& pull_flow() { return *pull_flow_; }
  StepClosings& step_closings() { return *step_closings_; }
  SegmenterPool& segmenters() { return segmenters_; }
  SegmentCounters& segment_counters() { return segment_counters_; }

 private:
  // The scheduler has declared this client dead.
  void OnDisowned(const absl::Status& why);
  // Fails the client once the scheduler has been silent, and no message was sent to the servers,
  // for kSchedulerTimeout.
  void WatchScheduler();
  void DeliverMetrics();
  // No effect if Join has finished.
  void FinishJoin(const absl::Status& status);
  void Fail(const absl::Status& why, JobState state = JOB_STATE_UNSPECIFIED);
  void OnRouting(const RoutingTable& table);
  void OnJobState(JobState state, const std::string& failure);
  absl::Status CheckRank(uint32_t rank) const;
  void EndCall();

  const ClientOptions options_;
  const Clock& clock_;
  Transport& transport_;
  ControlChannel& control_;
  ControlChannel& link_channel_;

  // Constant after Join.
  RegisterResponse registration_;
  std::unique_ptr<NodeLink> link_;
  std::shared_ptr<Router> router_;
  std::shared_ptr<DeadlineQueue> deadlines_;
  std::shared_ptr<Messenger> messenger_;
  std::shared_ptr<SchedulerCalls> scheduler_calls_;
  std::shared_ptr<FlowControl> push_flow_;
  std::shared_ptr<FlowControl> pull_flow_;
  std::shared_ptr<StepClosings> step_closings_;
  SegmenterPool segmenters_;
  SegmentCounters segment_counters_;

  mutable Mutex mu_;
  mutable CondVar changed_;
  // Null before Join and once it has finished.
  Callback joining_ PAWL_GUARDED_BY(mu_);
  std::optional<DeadlineQueue::Id> join_timer_ PAWL_GUARDED_BY(mu_);
  JobState job_state_ PAWL_GUARDED_BY(mu_) = STARTING;
  bool failed_ PAWL_GUARDED_BY(mu_) = false;
  bool told_to_leave_ PAWL_GUARDED_BY(mu_) = false;
  WorkerProgress progress_ PAWL_GUARDED_BY(mu_);
  PendingMetrics metrics_ PAWL_GUARDED_BY(mu_);
  uint64_t calls_ PAWL_GUARDED_BY(mu_) = 0;
  absl::btree_map<uint32_t, std::shared_ptr<SessionImpl>> logical_workers_ PAWL_GUARDED_BY(mu_);
  std::shared_ptr<SessionImpl> free_running_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_CLIENT_CORE_H_
