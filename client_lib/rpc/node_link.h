// A process's membership in its job, as servers, workers and clients all keep it.
//
//   GrpcControlChannel channel(scheduler);   // of the link's own: heartbeats wait behind nothing
//   NodeLink link(channel, Clock::Real(), scheduler, {.fill_heartbeat = ..., .routing = ..., ...});
//   link.Register(request, deadline, [&](absl::StatusOr<RegisterResponse> registered) {
//     ... begin to be what the answer says ...
//     link.Start();                                        // heartbeats and routing from here on
//   });
//   ...
//   link.Close();                                          // good-bye
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

// Registration, heartbeats, routing, the job's state and the good-bye.
//
// A scheduler that does not answer ends nothing: the link goes on trying, and logs when the silence
// begins and when it is over. A scheduler that answers that it does not know this incarnation of
// the node (ABORTED, NOT_FOUND) has taken its lease away: lease_until() is in the past from then
// on, heartbeats and routing stop, and Events::disowned is called, once; the owner then registers
// anew (Register and Start again, from within the event if it likes).
//
// New routing arrives by a call that the scheduler keeps until there is some (GetRouting), and
// which is under way all the time, so that it does not wait for a heartbeat. What comes may be what
// has changed since the table that the link has (client_lib/rpc/routing_changes.h); events get
// whole tables.
//
// Thread-safe. Owns no thread: works on the channels'. Events run there and must not call Close;
// they do not run after Close has returned. At most two run at one time: `routing`, which may take
// long where it has a channel of its own, and one of the others, which must not block. `disowned`
// and the answer to Register run beside no other event.
class NodeLink {
 public:
  struct Events {
    // Puts into the heartbeat what it is to say besides node and incarnation. May be null.
    std::function<void(HeartbeatRequest&)> fill_heartbeat;
    // A routing table newer than all before it in this incarnation. May be null.
    std::function<void(const RoutingTable&)> routing;
    // The job's state, whenever it is another one; `failure` is the scheduler's words if it is
    // FAILED. It only goes forward. Heartbeats go on after the job's end, until Close. May be null.
    std::function<void(JobState state, const std::string& failure)> job_state;
    // The scheduler wants this node to leave; once an incarnation. May be null.
    std::function<void()> told_to_leave = {};
    // See above; with the scheduler's answer.
    std::function<void(const absl::Status& why)> disowned;
  };
  using Registered = absl::AnyInvocable<void(absl::StatusOr<RegisterResponse>)>;

  // The channels and `clock` outlive the link; `scheduler` is what messages call the scheduler.
  // `routing_channel` carries the routing, so that no heartbeat waits until one is adopted; null:
  // `channel` does, for a `routing` that is quick.
  NodeLink(ControlChannel& channel, const Clock& clock, std::string scheduler, Events events,
           ControlChannel* routing_channel = nullptr);
  // Close.
  ~NodeLink();
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;

  // Registers: tries again, without pause for longer than a second, while the scheduler cannot be
  // reached, until `deadline` (MonotonicTime::max(): until Close). `request` says everything but
  // process_nonce, registration, version and protocols, which the link sets. The answer is
  // DEADLINE_EXCEEDED, CANCELLED by Close or another Register, or what the scheduler says. Ends the
  // incarnation before, if there was one. `done` runs once, as an event; with CANCELLED on the
  // thread of the Close or Register that is the reason.
  void Register(RegisterRequest request, MonotonicTime deadline, Registered done);

  // Begins to heartbeat (the first at once) and to wait for routing. REQUIRES: Register has
  // succeeded, and this was not called since.
  void Start();

  // Asks the scheduler to confirm that this node acts by the routing of `epoch`, once. `done` runs
  // as an event, unless the incarnation ends before. REQUIRES: Start was called.
  void ConfirmRouting(uint64_t epoch, absl::AnyInvocable<void(absl::Status)> done);

  // Stops, says good-bye unless the scheduler has disowned this node, and waits shortly for the
  // answer and as long as it takes for an event that is running. Not to be called by an event.
  // Idempotent. The owner shuts the channel down.
  void Close();

  // Who calls the scheduler: as registered last; empty before.
  struct Identity {
    std::string node;
    uint64_t incarnation = 0;
  };
  Identity identity() const;

  // Until when, by Clock::LeaseNow, this node is alive by the scheduler's word: the sending of the
  // last registration or heartbeat that was answered, plus HeldFor(lease_ms). MonotonicTime::min()
  // before that and once disowned. Lock-free.
  MonotonicTime lease_until() const;
  // HeartbeatResponse.begun of this incarnation's heartbeats. Lock-free.
  bool begun() const;
  // How long ago the last answer came; zero before the first registration.
  MonotonicDuration silence() const;

 private:
  class State;

  const std::shared_ptr<State> state_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_NODE_LINK_H_
