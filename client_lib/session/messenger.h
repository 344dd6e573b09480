// Delivers messages to the servers that they belong to.
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

// Bytes of keys and values in flight to one server, for pushes and pulls separately.
inline constexpr size_t kMaxBytesInFlightPerServer = size_t{32} << 20;
// Messages in flight to one server for one step or earlier ones, for pushes and pulls separately.
// Messages of a later step may be pending there until others on the same connection have arrived,
// so a connection must accept more (kMaxStreamsPerConnection in
// client_lib/rpc/grpc/grpc_settings.h).
inline constexpr size_t kMaxMessagesPerServer = 128;
// The time allowed for a message in addition to TransferTime.
inline constexpr std::chrono::milliseconds kBulkDeadline{1000};
// How long one attempt of a logical worker's pull (or, in SYNC mode, of its push) may wait on the
// server. It is then sent again, until the call's own deadline.
inline constexpr std::chrono::milliseconds kPendingDeadline{10000};

struct MessengerCounters {
  // Messages sent, repetitions included.
  std::atomic<uint64_t> messages{0};
  // Failed messages that had to be repeated.
  std::atomic<uint64_t> retries{0};
  std::atomic<uint64_t> routing_changes{0};
};

// Sends messages: chooses the server, limits the bytes in flight, sets deadlines, retries, and
// re-routes. Messages that wait for their next attempt, or for a partition to have a primary,
// proceed as soon as there is newer routing. Thread-safe. Owned by shared_ptr, which calls in
// flight share.
class Messenger : public std::enable_shared_from_this<Messenger> {
 public:
  Messenger(Transport& transport, const Clock& clock, std::shared_ptr<Router> router,
            std::shared_ptr<DeadlineQueue> deadlines)
      : transport_(transport),
        clock_(clock),
        router_(std::move(router)),
        deadlines_(std::move(deadlines)) {}

  // Divides the message by server, sends the parts, and calls call->MessageDone for each. REQUIRES:
  // the message has segments, and message->call counts one message for it.
  void Send(std::shared_ptr<Message> message);
  // Sends a message whose segments all belong to `server` of `routing`, or, with kNoServer, have no
  // primary there. REQUIRES: as above.
  void SendTo(const Routing& routing, size_t server, std::shared_ptr<Message> message);

  // Adopts the table if it is newer than the current one, and wakes what waits for that. Cancels
  // calls in flight to servers that are no longer primaries; they are sent again by the new table.
  // Drops what is kept for addresses that the table does not name.
  absl::Status Adopt(const RoutingTable& table);

  // From now on nothing is sent and everything ends with `why`. Later calls have no effect.
  void Fail(const absl::Status& why);
  // OK until Fail is called.
  absl::Status failure() const;

  const MessengerCounters& counters() const { return counters_; }

 private:
  struct Flows {
    std::shared_ptr<FlowControl> push;
    std::shared_ptr<FlowControl> pull;
  };

  // Sends the message again when newer routing may name its primary.
  void WaitForPrimary(uint64_t epoch, std::shared_ptr<Message> message);
  void Transmit(const std::string& address, uint64_t epoch, std::shared_ptr<FlowControl> flow,
                std::shared_ptr<Message> message);
  // `sent` is the start of the attempt.
  void OnAnswer(uint64_t epoch, MonotonicTime sent, std::shared_ptr<Message> message,
                absl::Status status, IncomingMessage answer);
  // Adopts the routing attached to `error`. Returns whether the current routing is newer than
  // `epoch`.
  bool AdoptRouting(const absl::Status& error, uint64_t epoch);
  // Runs `again` at `until`, or as soon as there is routing newer than `epoch` or the messenger has
  // failed. `again` itself checks the deadline and failure().
  void WaitForRouting(MonotonicTime until, uint64_t epoch, absl::AnyInvocable<void()> again);
  // Wakes every waiter whose epoch is below `epoch`.
  void WakeWaiting(uint64_t epoch);
  std::shared_ptr<FlowControl> FlowTo(const std::string& address, Method method);
  // Drops the addresses that `now` no longer names.
  void ForgetServers(const Routing& before, const Routing& now);

  Transport& transport_;
  const Clock& clock_;
  // Shared: a thread may leave Transmit after the client.
  const std::shared_ptr<Router> router_;
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
  // Waiters belong to calls, whose number is bounded.
  uint64_t next_waiting_ PAWL_GUARDED_BY(mu_) = 0;
  // Woken in the order of arrival.
  absl::btree_map<uint64_t, Waiting> waiting_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_MESSENGER_H_
