// A transport for tests that loses, repeats and delays the messages of another transport.
#ifndef PAWL_CLIENT_LIB_RPC_TESTING_FAULTY_TRANSPORT_H_
#define PAWL_CLIENT_LIB_RPC_TESTING_FAULTY_TRANSPORT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "client_lib/base/mutex.h"
#include "client_lib/rpc/transport.h"

namespace pawl {

// Decides by a seeded generator. A lost message is reported as UNAVAILABLE or DEADLINE_EXCEEDED,
// without waiting for the deadline. A repeated message arrives again up to max_delay later,
// possibly after the call has ended and after later messages. Thread-safe.
class FaultyTransport final : public Transport {
 public:
  struct Options {
    uint64_t seed = 1;
    // Probabilities.
    double lose_request = 0;
    double lose_reply = 0;
    double repeat_request = 0;
    double delay_request = 0;
    MonotonicDuration max_delay = std::chrono::milliseconds(5);
  };
  struct Counters {
    std::atomic<uint64_t> calls{0};
    std::atomic<uint64_t> requests_lost{0};
    std::atomic<uint64_t> replies_lost{0};
    std::atomic<uint64_t> requests_repeated{0};
    std::atomic<uint64_t> requests_delayed{0};
  };

  FaultyTransport(std::shared_ptr<Transport> inner, const Options& options);

  const Counters& counters() const { return *counters_; }

  void Call(const std::string& address, Method method, OutgoingMessage request,
            MonotonicDuration timeout, Done done) override;
  void CancelCalls(const std::string& address) override { inner_->CancelCalls(address); }
  void Forget(const std::string& address) override { inner_->Forget(address); }
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override {
    inner_->After(delay, std::move(action));
  }
  void Shutdown() override { inner_->Shutdown(); }

 private:
  bool Happens(double probability);
  MonotonicDuration SomeDelay();
  absl::Status Loss(const char* what);

  const std::shared_ptr<Transport> inner_;
  const Options options_;
  const std::shared_ptr<Counters> counters_ = std::make_shared<Counters>();
  Mutex mu_;
  std::mt19937_64 random_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_TESTING_FAULTY_TRANSPORT_H_
