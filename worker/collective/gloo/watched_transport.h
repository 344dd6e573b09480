// What stands between Gloo's algorithms and its TCP transport.
#ifndef PAWL_WORKER_COLLECTIVE_GLOO_WATCHED_TRANSPORT_H_
#define PAWL_WORKER_COLLECTIVE_GLOO_WATCHED_TRANSPORT_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "gloo/transport/context.h"

namespace pawl {

// Gloo's algorithms give each single wait the whole timeout, and nothing that runs in them can be
// told to end: to close a pair wakes nobody who waits for it. All their waits go through here
// instead, where they have one deadline and can be interrupted, and what they send is counted.
//
// For one thread, apart from what is said to be thread-safe. Buffers that it has created must not
// outlive it.
class WatchedTransport final : public gloo::transport::Context {
 public:
  explicit WatchedTransport(std::shared_ptr<gloo::transport::Context> inner);
  ~WatchedTransport() override;

  // Of all waits from now on: later they throw gloo::IoException. Reading it is thread-safe.
  void SetDeadline(MonotonicTime deadline) { deadline_ = deadline; }
  MonotonicTime deadline() const { return deadline_; }

  // Returns when the connection with this member is broken, or after Interrupt. Gloo tells only
  // whoever waits for something from there. Thread-safe.
  void AwaitBreak(int place) PAWL_EXCLUDES(mu_);

  // Whoever waits, and all that is sent, received or waited for later, gets gloo::IoException.
  // Thread-safe.
  void Interrupt() PAWL_EXCLUDES(mu_);
  bool interrupted() const PAWL_EXCLUDES(mu_);

  // What was given to the connections to send, without their headers (some 50 bytes for each piece
  // of up to 1 MiB). Thread-safe.
  uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

  std::unique_ptr<gloo::transport::Pair>& getPair(int place) override;
  std::unique_ptr<gloo::transport::Pair>& createPair(int place) override;
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* data,
                                                                      size_t bytes) override;

 private:
  class Buffer;

  void ThrowIfInterrupted() const PAWL_EXCLUDES(mu_);

  const std::shared_ptr<gloo::transport::Context> inner_;
  std::atomic<MonotonicTime> deadline_ = MonotonicTime::max();
  std::atomic<uint64_t> bytes_sent_{0};

  mutable Mutex mu_;
  bool interrupted_ PAWL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<Buffer*> buffers_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_GLOO_WATCHED_TRANSPORT_H_
