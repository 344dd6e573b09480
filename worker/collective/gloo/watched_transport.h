// Wraps Gloo's TCP transport to bound and interrupt its waits.
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

// Gloo's algorithms give each single wait the whole timeout and cannot be interrupted: closing a
// pair does not wake a thread that waits for it. This class forwards all their waits, gives them
// one deadline and makes them interruptible, and counts what they send.
//
// Used by one thread, except for methods marked thread-safe. Outlives the buffers that it creates.
class WatchedTransport final : public gloo::transport::Context {
 public:
  explicit WatchedTransport(std::shared_ptr<gloo::transport::Context> inner);
  ~WatchedTransport() override;

  // The deadline of all waits from now on; later they throw gloo::IoException. The getter is
  // thread-safe.
  void SetDeadline(MonotonicTime deadline) { deadline_ = deadline; }
  MonotonicTime deadline() const { return deadline_; }

  // Returns when the connection to this member is broken, or after Interrupt. Gloo reports a break
  // only to threads that wait for data from there. Thread-safe.
  void AwaitBreak(int place) PAWL_EXCLUDES(mu_);

  // Makes current waits and all later sends, receives and waits throw gloo::IoException.
  // Thread-safe.
  void Interrupt() PAWL_EXCLUDES(mu_);
  bool interrupted() const PAWL_EXCLUDES(mu_);

  // Payload given to the connections, without headers (about 50 bytes per piece of up to 1 MiB).
  // Thread-safe.
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
