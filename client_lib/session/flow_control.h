// Limits the requests in flight, by number and by bytes.
#ifndef PAWL_CLIENT_LIB_SESSION_FLOW_CONTROL_H_
#define PAWL_CLIENT_LIB_SESSION_FLOW_CONTROL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/deadline_queue.h"

namespace pawl {

// Grants bytes up to a limit. Requests that do not fit wait in order.
//
// A granted request may itself wait on a server for an earlier step to end (a pending pull), and
// must not delay what ends that step. Hence every request belongs to a step, and a request of step
// s waits only for requests of step s or earlier:
// 1. A request is granted if everything in flight for steps <= s leaves room for it, or if there is
//    nothing of those steps in flight.
// 2. Requests are granted in the order of (step, arrival).
//
// The total in flight is at most the limit times the number of steps in progress, two or three.
// Thread-safe. Owned by shared_ptr.
class FlowControl : public std::enable_shared_from_this<FlowControl> {
 public:
  // OK: granted. DEADLINE_EXCEEDED: not granted in time.
  using Run = absl::AnyInvocable<void(absl::Status)>;

  FlowControl(size_t limit, size_t max_waiting, std::shared_ptr<DeadlineQueue> deadlines,
              size_t max_requests = SIZE_MAX)
      : limit_(limit),
        max_requests_(max_requests),
        max_waiting_(max_waiting),
        deadlines_(std::move(deadlines)) {}

  // Returns true if the request is granted at once; `run` is dropped. Otherwise `run` is called
  // later, once, on any thread; or, if more than max_waiting requests wait, with RESOURCE_EXHAUSTED
  // before this returns.
  bool Acquire(uint64_t step, size_t bytes, MonotonicTime deadline, Run run);

  // Returns a grant.
  void Release(uint64_t step, size_t bytes);

  // Grants everything from now on: for a shutdown, in which every granted request fails by itself.
  void Open();

  size_t bytes_in_flight() const;

 private:
  struct Waiter {
    size_t bytes;
    Run run;
    DeadlineQueue::Id deadline;
  };

  bool Fits(uint64_t step, size_t bytes) const PAWL_REQUIRES(mu_);
  void Grant(uint64_t step, size_t bytes) PAWL_REQUIRES(mu_);
  // Runs the waiters that fit. Only one thread does so at a time, so that a waiter that ends at
  // once does not grow the stack.
  void Drain();
  void Expire(uint64_t step, uint64_t id);

  struct Granted {
    size_t bytes = 0;
    size_t requests = 0;
  };

  const size_t limit_;
  const size_t max_requests_;
  const size_t max_waiting_;
  const std::shared_ptr<DeadlineQueue> deadlines_;

  mutable Mutex mu_;
  bool open_ PAWL_GUARDED_BY(mu_) = false;
  bool draining_ PAWL_GUARDED_BY(mu_) = false;
  uint64_t next_id_ PAWL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Granted> in_flight_ PAWL_GUARDED_BY(mu_);  // by step
  std::map<std::pair<uint64_t, uint64_t>, Waiter> waiting_
      PAWL_GUARDED_BY(mu_);  // by (step, arrival)
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_FLOW_CONTROL_H_
