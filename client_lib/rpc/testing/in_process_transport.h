// A transport for tests that calls request handlers in the same process.
#ifndef PAWL_CLIENT_LIB_RPC_TESTING_IN_PROCESS_TRANSPORT_H_
#define PAWL_CLIENT_LIB_RPC_TESTING_IN_PROCESS_TRANSPORT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/request_handler.h"
#include "client_lib/rpc/transport.h"

namespace pawl {

// Runs actions at given times on its own threads. Thread-safe.
class ActionThreads {
 public:
  explicit ActionThreads(int threads);
  // Runs the remaining actions and joins the threads.
  ~ActionThreads();

  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action);
  // From now on every action runs as soon as a thread is free.
  void Hurry();

 private:
  void Run();

  Mutex mu_;
  CondVar changed_;
  bool hurry_ PAWL_GUARDED_BY(mu_) = false;
  bool ending_ PAWL_GUARDED_BY(mu_) = false;
  uint64_t next_ PAWL_GUARDED_BY(mu_) = 0;
  std::map<std::pair<MonotonicTime, uint64_t>, absl::AnyInvocable<void()>> actions_
      PAWL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

// Copies every message, as a socket would, into fragments split at random positions (by the seed),
// and calls the handler of the address on its own thread. Uses real time. Thread-safe.
class InProcessTransport final : public Transport {
 public:
  explicit InProcessTransport(uint64_t seed = 1, int threads = 2);
  ~InProcessTransport() override;

  // Sets the handler of an address; null removes it. Calls to an address without a handler get
  // UNAVAILABLE. The handler must exist until it is removed and its last call is answered.
  void SetHandler(const std::string& address, RequestHandler* handler);

  void Call(const std::string& address, Method method, OutgoingMessage request,
            MonotonicDuration timeout, Done done) override;
  void CancelCalls(const std::string& address) override;
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override;
  void Shutdown() override;

 private:
  struct Pending;

  IncomingMessage Copy(const ByteView& bytes);
  void End(const std::shared_ptr<Pending>& pending, absl::Status status, IncomingMessage answer);

  Mutex mu_;
  std::mt19937_64 random_ PAWL_GUARDED_BY(mu_);
  bool shut_down_ PAWL_GUARDED_BY(mu_) = false;
  std::map<std::string, RequestHandler*> handlers_ PAWL_GUARDED_BY(mu_);
  std::map<uint64_t, std::shared_ptr<Pending>> pending_ PAWL_GUARDED_BY(mu_);
  uint64_t next_ PAWL_GUARDED_BY(mu_) = 0;
  // Last: its threads use the members above.
  ActionThreads threads_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_TESTING_IN_PROCESS_TRANSPORT_H_
