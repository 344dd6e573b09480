// The group of workers for collective operations, with the calls that wait for it.
#ifndef PAWL_SCHEDULER_JOB_GROUP_DIRECTOR_H_
#define PAWL_SCHEDULER_JOB_GROUP_DIRECTOR_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "scheduler/membership/worker_group.h"
#include "scheduler/rpc/deferred_actions.h"
#include "scheduler/rpc/pending_calls.h"
#include "scheduler/rpc/pending_rpcs.h"

namespace pawl {

// Forms and ends the group (WorkerGroup decides) and answers the pending joins, exchanges and
// watches that need not wait any longer. Not saved: a restarted scheduler forms another group. Not
// thread-safe.
class GroupDirector {
 public:
  // `pending` outlives this. Its owner suspends the calls.
  explicit GroupDirector(PendingRpcs& pending) : pending_(pending) {}

  // OK: the caller suspends the call under the worker's name and calls Update. Otherwise earlier
  // joins of the worker get the error too.
  absl::Status Join(const JoinGroupRequest& request, const WorkerGroup::Hosts& hosts,
                    DeferredActions& actions);
  // OK: the caller suspends the call and calls AnswerExchange.
  absl::Status Exchange(const ExchangeInGroupRequest& request) { return group_.Exchange(request); }
  // Answers all members once the last one has stored its value.
  void AnswerExchange(const PendingRpcs::GroupExchange& exchange, DeferredActions& actions);
  // The answer; nullopt: the group still exists and the caller suspends the call.
  absl::StatusOr<std::optional<WatchGroupResponse>> Watch(const WatchGroupRequest& request);

  // Ranks may have moved, or workers joined or left: ends or forms a group and answers the calls
  // that need not wait any longer. `next_generation` returns a number that no group of the job ever
  // had. Returns whether a group was formed, so that the number must be saved.
  bool Update(const WorkerGroup::Hosts& hosts, const std::function<uint64_t()>& next_generation,
              DeferredActions& actions);
  // `how` describes how the worker left. The caller calls Update afterwards.
  void OnWorkerGone(const std::string& worker, const std::string& how, DeferredActions& actions);
  // Answers a pending join and returns true. False: the ticket is not that of a join.
  bool CancelJoin(Ticket ticket, const absl::Status& status, DeferredActions& actions);

 private:
  // For the calls of a group that has ended.
  void AnswerEnded(DeferredActions& actions);
  void AnswerJoined(DeferredActions& actions);

  PendingRpcs& pending_;
  WorkerGroup group_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_JOB_GROUP_DIRECTOR_H_
