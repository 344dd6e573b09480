// Runs actions at their time, unless they are taken back: deadlines, and pauses before the next
// attempt.
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

// Many of them on few timers: a wait that ends in time, as nearly all do, leaves no
// timer behind. Thread-safe. Owned by shared_ptr, which its timers share.
class DeadlineQueue : public std::enable_shared_from_this<DeadlineQueue> {
 public:
  using Id = std::pair<MonotonicTime, uint64_t>;

  // `transport` gives the timers and outlives their use.
  DeadlineQueue(Transport& transport, const Clock& clock) : transport_(transport), clock_(clock) {}

  // Runs `expire` once `deadline` has passed, unless Remove comes first. REQUIRES: `deadline` is
  // years before MonotonicTime::max().
  Id Add(MonotonicTime deadline, absl::AnyInvocable<void()> expire);
  // False if `expire` has run, or is about to.
  bool Remove(const Id& id);
  // Nothing expires from now on: whoever has added something, or still does, takes it back, or it
  // is kept with all that it refers to. To be called before the transport is shut down, which
  // hurries all timers.
  void Close();

 private:
  void OnTimer(MonotonicTime armed);

  Transport& transport_;
  const Clock& clock_;
  Mutex mu_;
  bool closed_ PAWL_GUARDED_BY(mu_) = false;
  uint64_t next_ PAWL_GUARDED_BY(mu_) = 0;
  std::map<Id, absl::AnyInvocable<void()>> waiting_ PAWL_GUARDED_BY(mu_);
  // The earliest time that a timer is set for.
  MonotonicTime armed_ PAWL_GUARDED_BY(mu_) = MonotonicTime::max();
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_DEADLINE_QUEUE_H_
