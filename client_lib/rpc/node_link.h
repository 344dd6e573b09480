// A process's membership in its job: the link of a server, worker or client to the scheduler.
//
//   // The link's own channel, so that heartbeats wait behind nothing.
//   GrpcControlChannel channel(scheduler, credentials);
//   NodeLink link(channel, Clock::Real(), scheduler, {.fill_heartbeat = ..., .routing = ...});
//   link.Register(request, deadline, [&](absl::StatusOr<RegisterResponse> registered) {
//     ... set up the node that the answer describes ...
//     link.Start();  // heartbeats and routing from here on
//   });
//   ...
//   link.Close();  // goodbye
#ifndef PAWL_CLIENT_LIB_RPC_NODE_LINK_H_
#define PAWL_CLIENT_LIB_RPC_NODE_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/rpc/control_channel.h"
#include "proto/scheduler.pb.h"

namespace pawl {

// A process that looks for news this much later than it planned was stopped for a time, as by
// `docker pause`. Then a silence of its scheduler says nothing.
inline constexpr std::chrono::minutes kLateWatch{1};

// Handles registration, heartbeats, routing, the job's state and the goodbye.
//
// If the scheduler does not answer, the link retries forever, and logs the start and the end of the
// silence. If the scheduler answers that it does not know this incarnation of the node (ABORTED,
// NOT_FOUND), it has revoked the lease: from then on lease_until() is in the past, heartbeats and
// routing stop, and Events::disowned runs once. The owner then registers again (Register and
// Start), possibly from within that event.
//
// New routing arrives through a GetRouting call that the scheduler holds until the routing changes.
// One is always in flight, so routing does not wait for a heartbeat. The scheduler may send only
// the changes since the link's table (client_lib/rpc/routing_changes.h); events get whole tables.
//
// Thread-safe. The link has no thread: it uses those of the channels. Events run there. They must
// not call Close. No event runs after Close has returned. At most two events run at a time:
// `routing`, which may take long if it has a channel of its own, and one other, which must not
// block. `disowned` and the answer to Register run alone.
class NodeLink {
 public:
  struct Events {
    // Fills in the heartbeat except node and incarnation. May be null.
    std::function<void(HeartbeatRequest&)> fill_heartbeat;
    // The scheduler has this heartbeat. Answers may come in another order than heartbeats are sent.
    // May be null.
    std::function<void(const HeartbeatRequest&)> heartbeat_answered = {};
    // A routing table newer than all earlier ones of this incarnation. May be null.
    std::function<void(const RoutingTable&)> routing;
    // Whether the node acts by that routing table when `routing` returns, as part of that event.
    // Otherwise the scheduler learns it from ConfirmRouting or a heartbeat. Null: always.
    std::function<bool()> acts_by_routing = {};
    // The job's state has changed; it never goes back. `failure` is the scheduler's message if the
    // state is FAILED. Heartbeats continue after the end of the job, until Close. May be null.
    std::function<void(JobState state, const std::string& failure)> job_state;
    // The scheduler wants this node to leave; at most once per incarnation. May be null.
    std::function<void()> leave_requested = {};
    // See above. Gets the scheduler's answer.
    std::function<void(const absl::Status& why)> disowned;
  };
  using Registered = absl::AnyInvocable<void(absl::StatusOr<RegisterResponse>)>;

  // The channels and `clock` must outlive the link. `scheduler` is the scheduler's name in
  // messages. `routing_channel` carries the routing, so that no heartbeat waits while a table is
  // adopted. If it is null, `channel` carries it; `routing` must then be quick.
  NodeLink(ControlChannel& channel, const Clock& clock, std::string scheduler, Events events,
           ControlChannel* routing_channel = nullptr);
  // Calls Close.
  ~NodeLink();
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;

  // Registers. While the scheduler cannot be reached, retries at least once a second until
  // `deadline` (MonotonicTime::max(): until Close). The link sets process_nonce, registration,
  // version and protocols of `request`. The result is the scheduler's answer, DEADLINE_EXCEEDED, or
  // CANCELLED after Close or another Register. Ends an earlier incarnation. `done` runs once, as an
  // event; with CANCELLED, on the thread of the Close or Register that caused it.
  void Register(RegisterRequest request, MonotonicTime deadline, Registered done);

  // Starts heartbeats (the first at once) and the wait for routing. REQUIRES: Register has
  // succeeded, and Start has not been called since.
  void Start();

  // Asks the scheduler once to confirm that this node acts by the routing of `epoch`. `done` runs
  // as an event, unless the incarnation ends first. False: the incarnation has not started, and
  // nothing is asked.
  bool ConfirmRouting(uint64_t epoch, absl::AnyInvocable<void(absl::Status)> done);

  // Stops the link. Says goodbye unless the scheduler has disowned this node, waits briefly for the
  // answer, and waits for a running event to end. Must not be called from an event. Idempotent. The
  // owner shuts the channel down.
  void Close();

  // The node's name as registered last; empty before.
  struct Identity {
    std::string node;
    uint64_t incarnation = 0;
  };
  Identity identity() const;

  // When the node's lease expires, by Clock::LeaseNow: HeldFor(lease_ms) after the latest answered
  // registration or heartbeat was sent. MonotonicTime::min() before the first, and once disowned.
  // Lock-free.
  MonotonicTime lease_until() const;
  // Whether a heartbeat of this incarnation was answered with HeartbeatResponse.job_started.
  // Lock-free.
  bool job_started() const;
  // The time since the latest answer; zero before the first registration. Includes times in which
  // this process was stopped (kLateWatch).
  MonotonicDuration silence() const;

 private:
  class State;

  const std::shared_ptr<State> state_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_NODE_LINK_H_
