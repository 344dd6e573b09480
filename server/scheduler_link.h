// A server's membership in a job: registration, heartbeats and routing.
#ifndef PAWL_SERVER_SCHEDULER_LINK_H_
#define PAWL_SERVER_SCHEDULER_LINK_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "proto/scheduler.grpc.pb.h"

namespace pawl {

// A scheduler that has not answered for so long is taken for dead.
inline constexpr std::chrono::seconds kSchedulerSilence{5};

// Thread-safe. Owns the thread that heartbeats, on a channel of its own.
class SchedulerLink {
 public:
  struct Events {
    // What the next heartbeat reports.
    std::function<ServerCounters()> counters;
    // A newer routing table.
    std::function<void(const RoutingTable&)> routing;
    // The job has ended, or this node is out of it, or the scheduler is gone:
    // OK for COMPLETED, CANCELLED for STOPPED, else what happened. Called once; then the thread ends.
    std::function<void(absl::Status)> ended;
  };

  SchedulerLink(const std::string& scheduler, const Clock& clock);
  // Says good-bye, unless the link has ended by itself.
  ~SchedulerLink();

  // Registers this server as reachable at `address`, in one try. UNAVAILABLE or
  // DEADLINE_EXCEEDED while the scheduler cannot be reached: to be tried again.
  absl::StatusOr<RegisterResponse> Register(const std::string& address, const std::string& description);
  // Begins to heartbeat. REQUIRES: Register has succeeded.
  void Start(Events events);

 private:
  void Run();
  // False once the job has ended.
  bool Beat();
  void FetchRouting();

  const std::string scheduler_;
  const Clock& clock_;
  const std::unique_ptr<Scheduler::Stub> stub_;
  const uint64_t process_nonce_;
  RegisterResponse registration_;
  Events events_;
  uint64_t routing_epoch_ = 0;
  MonotonicTime last_answer_;

  Mutex mu_;
  CondVar wake_;
  bool stopping_ PAWL_GUARDED_BY(mu_) = false;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_SCHEDULER_LINK_H_
