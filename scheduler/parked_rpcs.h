// The rpcs that wait in the scheduler.
#ifndef PAWL_SCHEDULER_PARKED_RPCS_H_
#define PAWL_SCHEDULER_PARKED_RPCS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"
#include "scheduler/deferred_actions.h"
#include "scheduler/parked_calls.h"
#include "scheduler/routing_tables.h"

namespace pawl {

// Rpcs that wait at one time, all kinds together. Each node waits for routing, and each worker for its ranks besides.
inline constexpr size_t kMaxParkedCalls = 65536;

// The parked calls of every rpc, each kind with what it waits for. Not thread-safe.
//
// Invariant: tickets are of all kinds together, so that one names one call.
class ParkedRpcs {
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
  struct GroupExchange {
    uint64_t generation = 0;
    std::string name;
    bool operator==(const GroupExchange&) const = default;
  };

  ParkedCalls<RoutingWanted, RoutingTable> routing;
  // Keyed by the table's id.
  ParkedCalls<uint32_t, CreateTableResponse> tables;
  ParkedCalls<BarrierParty, BarrierResponse> barriers;
  ParkedCalls<AssignmentWanted, GetAssignmentResponse> assignments;
  // Keyed by the node.
  ParkedCalls<std::string, JoinGroupResponse> joins;
  ParkedCalls<GroupExchange, ExchangeInGroupResponse> exchanges;
  // Keyed by the generation.
  ParkedCalls<uint64_t, WatchGroupResponse> watches;
  // Keyed by the evaluation's number.
  ParkedCalls<uint64_t, ReportEvaluationResponse> evaluations;
  // Keyed by the folder.
  ParkedCalls<std::string, CheckpointResponse> checkpoints;

  // For the next call that is parked.
  Ticket NewTicket() { return ++last_ticket_; }
  // RESOURCE_EXHAUSTED: no more can wait.
  absl::Status CheckRoom() const;

  // If the call is parked (still), of whatever kind.
  void AnswerOne(Ticket ticket, const absl::Status& answer, DeferredActions& actions);
  void AnswerAll(const absl::Status& answer, DeferredActions& actions);

 private:
  // A kind that were missing here would wait for ever at the job's end.
  auto All() {
    return std::tie(routing, tables, barriers, assignments, joins, exchanges, watches, evaluations, checkpoints);
  }
  auto All() const {
    return std::tie(routing, tables, barriers, assignments, joins, exchanges, watches, evaluations, checkpoints);
  }

  Ticket last_ticket_ = 0;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PARKED_RPCS_H_
