// All calls of a server that wait, and what they wait for.
#ifndef PAWL_SERVER_REPLICATION_WAITING_CALLS_H_
#define PAWL_SERVER_REPLICATION_WAITING_CALLS_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/request_handler.h"
#include "server/replication/replica.h"
#include "server/replication/replica_map.h"
#include "server/replication/waiting_call.h"

namespace pawl {

// A change of a replica, by its log index and the primary that gave it.
struct ChangeMark {
  std::shared_ptr<Replica> replica;
  uint64_t index = 0;
  uint64_t primary_since = 0;
};

// Keeps calls until their condition holds, their deadline passes, their partition moves or the
// server closes. Owns no thread: a call goes on, on the thread that brought what it waited for.
// Thread-safe. Its lock and a replica's are never held together.
class WaitingCalls {
 public:
  using Resume = absl::AnyInvocable<void(absl::Status)>;

  // `replica_map` says where a partition is that has moved away; it outlives this.
  WaitingCalls(size_t max_calls, const Clock& clock, const ReplicaMap& replica_map)
      : max_calls_(max_calls), clock_(clock), replica_map_(replica_map) {}

  // Runs `resume` once all `replicas` can answer a pull for `step`, or with an error:
  // FAILED_PRECONDITION with the new routing if one of them is not a primary any more.
  void ForStep(const std::vector<std::shared_ptr<Replica>>& replicas, uint64_t step,
               CallContext context, Resume resume);
  // The same once all changes of primaries are committed.
  void ForCommit(const std::vector<ChangeMark>& changes, CallContext context, Resume resume);
  // The same once all changes of backups and learners are durable here; those of a replica that has
  // got another role since are not waited for.
  void ForDurable(const std::vector<ChangeMark>& changes, CallContext context, Resume resume);

  // For what Replica::TakeReady and TakeAll give, without locks.
  static void GoOn(const std::vector<std::shared_ptr<WaitingCall>>& ready);
  void TellStale(const std::vector<std::shared_ptr<WaitingCall>>& stale) const;

  // Ends those whose deadline has passed or whose caller is gone. Waits for no replica.
  void Expire();
  // Ends all, and every call from now on.
  void Close(const absl::Status& status);
  size_t Count() const;

 private:
  // Keeps the call, or ends it with an error and returns false.
  bool Keep(const std::shared_ptr<WaitingCall>& call);

  const size_t max_calls_;
  const Clock& clock_;
  const ReplicaMap& replica_map_;
  // Some replica may still have calls that have ended.
  std::atomic<bool> finished_left_{false};

  mutable Mutex mu_;
  absl::Status closed_ PAWL_GUARDED_BY(mu_);
  std::list<std::shared_ptr<WaitingCall>> calls_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_SERVER_REPLICATION_WAITING_CALLS_H_
