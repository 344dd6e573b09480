// All pending rpcs of the scheduler.
#ifndef PAWL_SCHEDULER_RPC_PENDING_RPCS_H_
#define PAWL_SCHEDULER_RPC_PENDING_RPCS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"
#include "scheduler/routing/routing_tables.h"
#include "scheduler/rpc/deferred_actions.h"
#include "scheduler/rpc/pending_calls.h"

namespace pawl {

// The limit on pending rpcs of all kinds together. Each node waits for routing, and each worker
// also for its ranks.
inline constexpr size_t kMaxPendingCalls = 65536;

// The pending calls of every rpc. Not thread-safe.
//
// Invariant: a ticket is unique across all kinds.
class PendingRpcs {
 public:
  struct BarrierParty {
    std::string barrier;
    uint32_t party = 0;
    std::string node;
  };
  struct AssignmentWanted {
    std::string worker;
    uint64_t newer_than = 0;
  };
  struct EvaluationCall {
    uint64_t evaluation = 0;
    // Waits for the other ranks' arrival, and not for the result.
    bool arrives = false;
    bool operator==(const EvaluationCall&) const = default;
  };
  struct GroupExchange {
    uint64_t generation = 0;
    std::string name;
    bool operator==(const GroupExchange&) const = default;
  };

  PendingCalls<RoutingRequest, RoutingTable> routing;
  // Keyed by the table's id.
  PendingCalls<uint32_t, CreateTableResponse> tables;
  PendingCalls<BarrierParty, BarrierResponse> barriers;
  PendingCalls<AssignmentWanted, GetAssignmentResponse> assignments;
  // Keyed by the node.
  PendingCalls<std::string, JoinGroupResponse> joins;
  PendingCalls<GroupExchange, ExchangeInGroupResponse> exchanges;
  // Keyed by the generation.
  PendingCalls<uint64_t, WatchGroupResponse> watches;
  PendingCalls<EvaluationCall, ReportEvaluationResponse> evaluations;
  // Keyed by the folder.
  PendingCalls<std::string, CheckpointResponse> checkpoints;

  // The ticket of the next call to suspend.
  Ticket NewTicket() { return ++last_ticket_; }
  // RESOURCE_EXHAUSTED: kMaxPendingCalls wait already.
  absl::Status CheckRoom() const;

  // Answers the call if it is still pending, of any kind.
  void AnswerOne(Ticket ticket, const absl::Status& answer, DeferredActions& actions);
  void AnswerAll(const absl::Status& answer, DeferredActions& actions);

 private:
  // Must list every kind: calls of a missing one would never be answered.
  auto All() {
    return std::tie(routing, tables, barriers, assignments, joins, exchanges, watches, evaluations,
                    checkpoints);
  }
  auto All() const {
    return std::tie(routing, tables, barriers, assignments, joins, exchanges, watches, evaluations,
                    checkpoints);
  }

  Ticket last_ticket_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_RPC_PENDING_RPCS_H_
