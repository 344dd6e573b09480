// Calls to a scheduler by a program that is not a node of its job.
#ifndef PAWL_DEPLOY_PAWLCTL_SCHEDULER_CONNECTION_H_
#define PAWL_DEPLOY_PAWLCTL_SCHEDULER_CONNECTION_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/security/security.h"
#include "proto/scheduler.grpc.pb.h"

namespace pawl {

// Whether the job is COMPLETED, FAILED or STOPPED.
bool HasEnded(JobState state);

// A scheduler that restarts, or a standby that takes over, answers again by then.
inline constexpr std::chrono::seconds kMaxSilence{60};

// Whether to wait for a scheduler that does not answer.
class SilenceLimit {
 public:
  explicit SilenceLimit(MonotonicDuration max_silence = kMaxSilence) : max_silence_(max_silence) {}

  // Takes the outcome of each call. False: the scheduler has refused it, has never answered or
  // has been silent for too long.
  bool Allows(const absl::Status& outcome, MonotonicTime now);

 private:
  const MonotonicDuration max_silence_;
  std::optional<MonotonicTime> heard_at_;
};

// Connects on the first call. Each call blocks for at most `timeout`, and for up to two seconds
// more if a change fails. An error names the address and, if the scheduler does not answer, what to
// check. A scheduler that refuses to change anything for now, as when its job is ending:
// FAILED_PRECONDITION. An idempotent change whose connection breaks, as when the scheduler
// restarts, is sent once more.
// Thread-safe.
class SchedulerConnection {
 public:
  // `address`: "HOST:PORT".
  // `security` outlives this.
  SchedulerConnection(const std::string& address, const Security& security);

  absl::StatusOr<GetStatusResponse> GetStatus(MonotonicDuration timeout);
  absl::StatusOr<ListTablesResponse> ListTables(MonotonicDuration timeout);
  absl::StatusOr<RoutingTable> GetRouting(MonotonicDuration timeout);
  // Waits for the end of the job: DEADLINE_EXCEEDED if it has not ended in that time. Any other
  // error means that it has, or that the call failed.
  absl::Status AwaitEnd(MonotonicDuration timeout);
  // UNAVAILABLE if the connection breaks: a repeated call would make another checkpoint.
  absl::StatusOr<CheckpointResponse> Checkpoint(const std::string& dir, MonotonicDuration timeout);
  absl::StatusOr<ScaleResponse> Scale(const ScaleRequest& request, MonotonicDuration timeout);
  absl::Status Drain(const DrainRequest& request, MonotonicDuration timeout);
  absl::StatusOr<ReleaseRetainedResponse> ReleaseRetained(const ReleaseRetainedRequest& request,
                                                          MonotonicDuration timeout);
  absl::StatusOr<ListEventsResponse> ListEvents(uint64_t after, MonotonicDuration timeout);
  absl::Status StopJob(const std::string& reason, MonotonicDuration timeout);

 private:
  // Makes an idempotent change. `send` makes the call, each time with another context.
  absl::Status Change(MonotonicDuration timeout,
                      absl::FunctionRef<grpc::Status(grpc::ClientContext&)> send);
  // Whether the scheduler answers within kProbeTimeout.
  bool Answers();
  absl::Status ToStatus(const grpc::Status& status) const;
  // The same for a call that changes something. A scheduler's own UNAVAILABLE is no silence.
  absl::Status ToStatusOfChange(const grpc::Status& status);

  const std::string address_;
  const std::unique_ptr<Scheduler::Stub> stub_;
};

}  // namespace pawl

#endif  // PAWL_DEPLOY_PAWLCTL_SCHEDULER_CONNECTION_H_
