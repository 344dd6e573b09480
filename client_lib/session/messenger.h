// Gets messages to the servers that they belong to, whatever it takes.
#ifndef PAWL_CLIENT_LIB_SESSION_MESSENGER_H_
#define PAWL_CLIENT_LIB_SESSION_MESSENGER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/call.h"
#include "client_lib/rpc/deadline_queue.h"
#include "client_lib/rpc/retry.h"
#include "client_lib/rpc/transport.h"
#include "client_lib/session/flow_control.h"
#include "client_lib/session/routing.h"

namespace pawl {

// Keys and values under way to one server, in pushes and likewise in pulls.
inline constexpr size_t kMaxBytesInFlightPerServer = size_t{32} << 20;
// Messages under way to one server for the same step or earlier ones, in pushes and likewise in
// pulls. Those of a later step may be pending there, until others that go by the same connection
// have arrived: so it must take more than that (kMaxStreamsPerConnection in
// client_lib/rpc/grpc/grpc_settings.h).
inline constexpr size_t kMaxMessagesPerServer = 128;
// What a deadline allows besides TransferTime.
inline constexpr std::chrono::milliseconds kBulkDeadline{1000};
// How long one attempt of a logical worker's pull, or in SYNC of its push, may wait on the server;
// it is then sent again, until the call's own deadline.
inline constexpr std::chrono::milliseconds kPendingDeadline{10000};

struct MessengerCounters {
  // Each time that one was sent.
  std::atomic<uint64_t> messages{0};
  // Of failed ones: those that were to be sent again.
  std::atomic<uint64_t> retries{0};
  std::atomic<uint64_t> routing_changes{0};
};

// Sends messages: chooses the server, keeps the bounds on bytes under way, sets
// deadlines, retries, and re-routes. What waits for its next attempt, or for a partition to have a
// primary again, goes on as soon as there is newer routing. Thread-safe. Owned by shared_ptr, which
// what is under way shares.
class Messenger : public std::enable_shared_from_this<Messenger> {
 public:
  Messenger(Transport& transport, const Clock& clock, Router& router,
            std::shared_ptr<DeadlineQueue> deadlines)
      : transport_(transport), clock_(clock), router_(router), deadlines_(std::move(deadlines)) {}

  // Sends what is for the message's partitions, by as many messages as there are servers to go to,
  // and calls call->MessageDone for each. REQUIRES: it has partitions, and message->call counts one
  // message for this one.
  void Send(std::shared_ptr<Message> message);

  // Takes the table if it is newer than the current one, and lets what waits for that go on. Calls
  // under way to servers that are no primaries any more are given up, and sent by the new table;
  // what is kept for addresses that it does not name is given up too.
  absl::Status Adopt(const RoutingTable& table);

  // From now on nothing is sent and everything ends with `why`. The first call counts.
  void Fail(const absl::Status& why);
  // OK before that.
  absl::Status failure() const;

  const MessengerCounters& counters() const { return counters_; }

 private:
  struct Flows {
    std::shared_ptr<FlowControl> push;
    std::shared_ptr<FlowControl> pull;
  };

  void SendTo(const std::string& address, uint64_t epoch, std::shared_ptr<Message> message);
  void Transmit(const std::string& address, uint64_t epoch, std::shared_ptr<FlowControl> flow,
                std::shared_ptr<Message> message);
  // `sent`: when the attempt began.
  void OnAnswer(uint64_t epoch, MonotonicTime sent, std::shared_ptr<Message> message,
                absl::Status status, IncomingMessage answer);
  // Adopts the routing that came with `error`; true if what is current now is newer than `epoch`.
  bool AdoptRouting(const absl::Status& error, uint64_t epoch);
  // Runs `again`, which looks for the deadline and for failure() itself: at `until`, or as soon as
  // there is routing newer than `epoch`, or the messenger has failed.
  void WaitForRouting(MonotonicTime until, uint64_t epoch, absl::AnyInvocable<void()> again);
  // Those that wait for something newer than an epoch below this one.
  void WakeWaiting(uint64_t epoch);
  std::shared_ptr<FlowControl> FlowTo(const std::string& address, Method method);
  // Those that `now` does not name any more.
  void ForgetServers(const Routing& before, const Routing& now);

  // By the routing of that epoch. Leaves no connection to a server that has gone meanwhile.
  void CallServer(std::string address, uint64_t epoch, Method method, OutgoingMessage request,
                  MonotonicDuration timeout, Transport::Done done);

  Transport& transport_;
  const Clock& clock_;
  Router& router_;
  const std::shared_ptr<DeadlineQueue> deadlines_;
  RetryBudget budget_;
  MessengerCounters counters_;

  mutable Mutex mu_;
  absl::Status failure_ PAWL_GUARDED_BY(mu_);
  absl::btree_map<std::string, Flows> flows_ PAWL_GUARDED_BY(mu_);  // by address
  struct Waiting {
    DeadlineQueue::Id timer;
    uint64_t epoch;
    absl::AnyInvocable<void()> again;
  };
  // Belong to calls, whose number is bounded.
  uint64_t next_waiting_ PAWL_GUARDED_BY(mu_) = 0;
  // Woken in the order in which they came.
  absl::btree_map<uint64_t, Waiting> waiting_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_MESSENGER_H_
