// Runs actions at given times: deadlines, and pauses before retries.
#ifndef PAWL_CLIENT_LIB_RPC_DEADLINE_QUEUE_H_
#define PAWL_CLIENT_LIB_RPC_DEADLINE_QUEUE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/transport.h"

namespace pawl {

// Serves many actions with few timers; an action that is removed in time, as nearly all are, leaves
// no timer behind. Thread-safe. Owned by shared_ptr, which its timers share.
class DeadlineQueue : public std::enable_shared_from_this<DeadlineQueue> {
 public:
  using Id = std::pair<MonotonicTime, uint64_t>;

  // `transport` provides the timers and must outlive their use.
  DeadlineQueue(Transport& transport, const Clock& clock) : transport_(transport), clock_(clock) {}

  // Runs `expire` once `deadline` has passed, unless Remove comes first. REQUIRES: `deadline` is
  // years before MonotonicTime::max().
  Id Add(MonotonicTime deadline, absl::AnyInvocable<void()> expire);
  // Returns false if `expire` has run, or is about to.
  bool Remove(const Id& id);
  // Prevents all further expiry. An entry that is not removed then remains, with all that it refers
  // to. Call it before shutting down the transport, which runs all timers at once.
  void Close();

 private:
  void OnTimer(MonotonicTime armed);

  Transport& transport_;
  const Clock& clock_;
  Mutex mu_;
  bool closed_ PAWL_GUARDED_BY(mu_) = false;
  uint64_t next_ PAWL_GUARDED_BY(mu_) = 0;
  std::map<Id, absl::AnyInvocable<void()>> waiting_ PAWL_GUARDED_BY(mu_);
  // The earliest time for which a timer is set.
  MonotonicTime armed_ PAWL_GUARDED_BY(mu_) = MonotonicTime::max();
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_DEADLINE_QUEUE_H_
