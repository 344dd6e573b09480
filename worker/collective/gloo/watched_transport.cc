#include "worker/collective/gloo/watched_transport.h"

#include <chrono>
#include <utility>
#include <vector>

#include "gloo/common/error.h"
#include "gloo/types.h"

namespace pawl {
namespace {

// Nothing is ever sent in this slot. Gloo's own prefixes are lower (gloo/types.h).
constexpr uint8_t kNothingSlotPrefix = 0x41;
// The timeout of a wait for something that may never come. The library adds it to the time of day.
constexpr std::chrono::hours kLongTime{24 * 365};

}  // namespace

// A buffer of the transport, with the watch around it. Gloo calls the buffer's own methods, so all
// are forwarded.
class WatchedTransport::Buffer final : public gloo::transport::UnboundBuffer {
 public:
  Buffer(WatchedTransport& transport, void* data, size_t bytes)
      : UnboundBuffer(data, bytes),
        transport_(transport),
        inner_(transport.inner_->createUnboundBuffer(data, bytes)) {
    MutexLock lock(transport_.mu_);
    transport_.buffers_.insert(this);
  }
  ~Buffer() override {
    MutexLock lock(transport_.mu_);
    transport_.buffers_.erase(this);
  }

  // Waits without a deadline.
  void WaitForLong() {
    transport_.ThrowIfInterrupted();
    Waited(inner_->waitRecv(nullptr, kLongTime));
  }

  // An interrupt between the check and the wait is not lost: it stays pending until a wait takes
  // it.
  bool waitRecv(int* place, std::chrono::milliseconds) override {
    return Waited(inner_->waitRecv(place, TimeLeft()));
  }
  bool waitSend(int* place, std::chrono::milliseconds) override {
    return Waited(inner_->waitSend(place, TimeLeft()));
  }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }

  void send(int place, uint64_t slot, size_t offset, size_t bytes) override {
    transport_.ThrowIfInterrupted();
    inner_->send(place, slot, offset, bytes);
    transport_.bytes_sent_.fetch_add(bytes == kUnspecifiedByteCount ? size - offset : bytes,
                                     std::memory_order_relaxed);
  }
  void recv(int place, uint64_t slot, size_t offset, size_t bytes) override {
    transport_.ThrowIfInterrupted();
    inner_->recv(place, slot, offset, bytes);
  }
  void recv(std::vector<int> places, uint64_t slot, size_t offset, size_t bytes) override {
    transport_.ThrowIfInterrupted();
    inner_->recv(std::move(places), slot, offset, bytes);
  }

 private:
  std::chrono::milliseconds TimeLeft() const {
    transport_.ThrowIfInterrupted();
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(transport_.deadline() - Clock::Real().Now());
    if (left <= std::chrono::milliseconds::zero())
      throw gloo::IoException("the deadline has passed");
    return left;
  }
  static bool Waited(bool done) {
    if (!done) throw gloo::IoException("interrupted");
    return true;
  }

  WatchedTransport& transport_;
  const std::unique_ptr<gloo::transport::UnboundBuffer> inner_;
};

WatchedTransport::WatchedTransport(std::shared_ptr<gloo::transport::Context> inner)
    : Context(inner->rank, inner->size), inner_(std::move(inner)) {}

WatchedTransport::~WatchedTransport() = default;

void WatchedTransport::AwaitBreak(int place) {
  char nothing = 0;
  try {
    Buffer buffer(*this, &nothing, sizeof(nothing));
    buffer.recv(place, gloo::Slot::build(kNothingSlotPrefix, 0), 0, sizeof(nothing));
    buffer.WaitForLong();
  } catch (const std::exception&) {
    // The break was the event to wait for.
  }
}

void WatchedTransport::Interrupt() {
  MutexLock lock(mu_);
  interrupted_ = true;
  for (Buffer* const buffer : buffers_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

bool WatchedTransport::interrupted() const {
  MutexLock lock(mu_);
  return interrupted_;
}

void WatchedTransport::ThrowIfInterrupted() const {
  if (interrupted()) throw gloo::IoException("interrupted");
}

std::unique_ptr<gloo::transport::Pair>& WatchedTransport::getPair(int place) {
  return inner_->getPair(place);
}

std::unique_ptr<gloo::transport::Pair>& WatchedTransport::createPair(int place) {
  return inner_->createPair(place);
}

std::unique_ptr<gloo::transport::UnboundBuffer> WatchedTransport::createUnboundBuffer(
    void* data, size_t bytes) {
  return std::make_unique<Buffer>(*this, data, bytes);
}

}  // namespace pawl
