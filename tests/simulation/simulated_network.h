// A network between simulated processes that delays, loses, duplicates and blocks messages, as a
// seed determines.
#ifndef PAWL_TESTS_SIMULATION_SIMULATED_NETWORK_H_
#define PAWL_TESTS_SIMULATION_SIMULATED_NETWORK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "client_lib/base/clock.h"
#include "client_lib/rpc/control_channel.h"
#include "client_lib/rpc/message.h"
#include "client_lib/rpc/request_handler.h"
#include "client_lib/rpc/transport.h"
#include "tests/simulation/event_loop.h"

namespace pawl {

struct NetworkFaults {
  MonotonicDuration min_delay = std::chrono::microseconds(50);
  MonotonicDuration max_delay = std::chrono::microseconds(500);
  // This share of messages takes up to this long.
  double slow = 0;
  MonotonicDuration slow_delay = std::chrono::milliseconds(1500);
  double lose_request = 0;
  double lose_reply = 0;
  // The receiver gets the request a second time, later; the answer is dropped.
  double duplicate = 0;
};

// The full rpc name of each method: "/pawl.Parameter/Push".
std::string_view RpcName(Method method);

// Calls outlive neither end. The calls of a dead process are forgotten, and its callers get
// UNAVAILABLE, as from a reset connection. Not thread-safe.
class SimulatedNetwork {
 public:
  using Done = Transport::Done;
  using Reply = RequestHandler::Reply;
  // Answers an rpc. `timeout` is the rest of the caller's deadline.
  using Receiver =
      std::function<void(const std::string& rpc, IncomingMessage request, MonotonicDuration timeout,
                         std::shared_ptr<const std::atomic<bool>> cancelled, Reply reply)>;
  using CallId = uint64_t;

  SimulatedNetwork(EventLoop& loop, SeededRandom& random) : loop_(loop), random_(random) {}

  NetworkFaults& faults() { return faults_; }
  // Repeats this share of messages to the scheduler, up to many seconds later.
  void SetLateControl(double probability) { late_control_ = probability; }

  // Until the incarnation ends; a later one takes over the address.
  void Listen(const std::string& address, std::shared_ptr<Incarnation> incarnation,
              Receiver receiver);
  // Blocks or unblocks messages from one site to the other.
  void SetBlocked(int from, int to, bool blocked);
  void HealAll() { blocked_.clear(); }
  bool AnyBlocked() const { return !blocked_.empty(); }
  bool IsBlocked(int from, int to) const { return blocked_.contains({from, to}); }

  // `done` runs later, in an event of the caller's incarnation.
  CallId Call(const std::shared_ptr<Incarnation>& from, const std::string& address,
              const std::string& rpc, const ByteView& request, MonotonicDuration timeout,
              Done done);
  // Ends the call soon with this status.
  void Cancel(CallId call, const absl::Status& status);
  // Takes back the call's completion; null if the call has ended.
  Done Forget(CallId call);
  const std::string* AddressOf(CallId call) const;

  // Cleans up after an incarnation. REQUIRES: incarnation->alive has just been set to false.
  void OnDeath(const std::shared_ptr<Incarnation>& incarnation);

  // Sees every arriving request and may change it, or answer it and return true. For sabotage.
  using Intercept = std::function<bool(const std::string& rpc, std::string& request,
                                       bool is_duplicate, Reply& reply)>;
  void SetIntercept(Intercept intercept) { intercept_ = std::move(intercept); }

 private:
  struct Pending {
    std::shared_ptr<Incarnation> from;
    std::string address;
    Done done;
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
    // The receiver of the request.
    std::shared_ptr<Incarnation> at;
  };
  struct Listener {
    std::shared_ptr<Incarnation> incarnation;
    Receiver receiver;
  };

  MonotonicDuration Delay();
  void Send(CallId call, const std::string& rpc, std::shared_ptr<const std::string> request,
            MonotonicTime deadline, MonotonicDuration delay, bool is_duplicate);
  void Arrive(CallId call, const std::shared_ptr<Incarnation>& from, const std::string& address,
              const std::string& rpc, const std::shared_ptr<const std::string>& request,
              MonotonicTime deadline, bool is_duplicate);
  void Answer(CallId call, const std::shared_ptr<Incarnation>& at, absl::Status status,
              OutgoingMessage answer);
  // Detects a dead connection some time later.
  void LoseConnection(CallId call);
  void EndLater(CallId call, MonotonicDuration delay, absl::Status status, std::string answer = "");
  void End(CallId call, absl::Status status, std::string answer);

  EventLoop& loop_;
  SeededRandom& random_;
  NetworkFaults faults_;
  double late_control_ = 0;
  std::map<std::string, Listener> listeners_;
  std::set<std::pair<int, int>> blocked_;
  Intercept intercept_;
  CallId next_ = 0;
  std::map<CallId, Pending> pending_;
};

// The calls and timers of one process through one channel.
class SimulatedCaller {
 public:
  SimulatedCaller(SimulatedNetwork& network, EventLoop& loop,
                  std::shared_ptr<Incarnation> incarnation)
      : network_(network), loop_(loop), incarnation_(std::move(incarnation)) {}
  ~SimulatedCaller();

  void Call(const std::string& address, const std::string& rpc, const ByteView& request,
            MonotonicDuration timeout, Transport::Done done);
  void CancelCalls(const std::string& address);
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action);
  // Ends the calls of a live process soon; ends those of a destroyed process before returning.
  void Shutdown();

 private:
  SimulatedNetwork& network_;
  EventLoop& loop_;
  const std::shared_ptr<Incarnation> incarnation_;
  bool shut_down_ = false;
  std::set<SimulatedNetwork::CallId> calls_;
  uint64_t next_timer_ = 0;
  // Shared with the events.
  struct Timers {
    std::map<uint64_t, absl::AnyInvocable<void()>> actions;
  };
  const std::shared_ptr<Timers> timers_ = std::make_shared<Timers>();
  const std::shared_ptr<bool> exists_ = std::make_shared<bool>(true);
};

class SimulatedTransport final : public Transport {
 public:
  SimulatedTransport(SimulatedNetwork& network, EventLoop& loop,
                     std::shared_ptr<Incarnation> incarnation)
      : caller_(network, loop, std::move(incarnation)) {}

  void Call(const std::string& address, Method method, OutgoingMessage request,
            MonotonicDuration timeout, Done done) override {
    caller_.Call(address, std::string(RpcName(method)), request.bytes, timeout, std::move(done));
  }
  void CancelCalls(const std::string& address) override { caller_.CancelCalls(address); }
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override {
    caller_.After(delay, std::move(action));
  }
  void Shutdown() override { caller_.Shutdown(); }

 private:
  SimulatedCaller caller_;
};

class SimulatedControlChannel final : public ControlChannel {
 public:
  SimulatedControlChannel(SimulatedNetwork& network, EventLoop& loop,
                          std::shared_ptr<Incarnation> incarnation, std::string address)
      : address_(std::move(address)), caller_(network, loop, std::move(incarnation)) {}

  void Call(const std::string& method, OutgoingMessage request, MonotonicDuration timeout,
            Transport::Done done) override {
    caller_.Call(address_, method, request.bytes, timeout, std::move(done));
  }
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override {
    caller_.After(delay, std::move(action));
  }
  void Shutdown() override { caller_.Shutdown(); }

 private:
  const std::string address_;
  SimulatedCaller caller_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SIMULATED_NETWORK_H_
