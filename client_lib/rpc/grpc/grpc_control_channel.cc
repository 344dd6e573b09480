#include "client_lib/rpc/grpc/grpc_control_channel.h"

#include <cstdlib>
#include <utility>

#include "client_lib/rpc/byte_buffer.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "grpcpp/alarm.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// After Shutdown everything ends at once. If something does not, it is a bug, and continuing would
// free memory in use.
constexpr std::chrono::seconds kShutdownLimit{30};

}  // namespace

// Cancel and the caller of Start both hold the channel's lock, so neither runs too early or too
// late for the other.
class GrpcControlChannel::Event {
 public:
  virtual ~Event() = default;
  virtual void Cancel() = 0;
  // Runs on the channel's thread.
  virtual void Finish() = 0;
};

class GrpcControlChannel::OneCall final : public Event {
 public:
  explicit OneCall(Transport::Done done) : done_(std::move(done)) {}

  void Start(GrpcControlChannel& channel, const std::string& method, OutgoingMessage request,
             MonotonicDuration timeout) PAWL_REQUIRES(channel.mu_) {
    SetDeadline(context_, timeout);
    if (!channel.node_ticket_.empty())
      context_.AddMetadata(kNodeTicketMetadata, channel.node_ticket_);
    reader_ = channel.stub_.PrepareUnaryCall(&context_, method, ToByteBuffer(std::move(request)),
                                             &channel.queue_);
    reader_->StartCall();
    reader_->Finish(&response_, &status_, static_cast<Event*>(this));
  }
  void Cancel() override { context_.TryCancel(); }
  void Finish() override {
    absl::Status status = FromGrpcStatus(status_, &context_);
    IncomingMessage answer = status.ok() ? FromByteBuffer(response_) : IncomingMessage();
    done_(std::move(status), std::move(answer));
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader_;
  grpc::ByteBuffer response_;
  grpc::Status status_;
  Transport::Done done_;
};

class GrpcControlChannel::Timer final : public Event {
 public:
  explicit Timer(absl::AnyInvocable<void()> action) : action_(std::move(action)) {}

  void Start(GrpcControlChannel& channel, MonotonicDuration delay) {
    alarm_.Set(&channel.queue_, FromNow(delay), static_cast<Event*>(this));
  }
  void Cancel() override { alarm_.Cancel(); }
  void Finish() override { action_(); }

 private:
  grpc::Alarm alarm_;
  absl::AnyInvocable<void()> action_;
};

GrpcControlChannel::GrpcControlChannel(const std::string& address,
                                       std::shared_ptr<grpc::ChannelCredentials> credentials)
    : stub_(grpc::CreateCustomChannel(ChannelTarget(address), credentials,
                                      ChannelSettings(ChannelKind::kControl))),
      thread_([this] { Run(); }) {}

GrpcControlChannel::~GrpcControlChannel() {
  Shutdown();
  {
    MutexLock lock(mu_);
    const MonotonicTime limit = Clock::Real().Now() + kShutdownLimit;
    while (!events_.empty()) {
      if (!idle_.WaitUntil(mu_, limit) && !events_.empty()) {
        spdlog::critical("{} control calls have not ended {} s after they were cancelled",
                         events_.size(), kShutdownLimit.count());
        std::abort();
      }
    }
  }
  queue_.Shutdown();
  thread_.join();
}

void GrpcControlChannel::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    auto* const event = static_cast<Event*>(tag);
    event->Finish();
    {
      MutexLock lock(mu_);
      events_.erase(event);
      if (events_.empty()) idle_.NotifyAll();
    }
    delete event;
  }
}

void GrpcControlChannel::Call(const std::string& method, OutgoingMessage request,
                              MonotonicDuration timeout, Transport::Done done) {
  {
    MutexLock lock(mu_);
    if (!shut_down_) {
      auto* const call = new OneCall(std::move(done));
      events_.insert(call);
      call->Start(*this, method, std::move(request), timeout);
      return;
    }
  }
  request.owner.reset();
  done(absl::CancelledError("the channel is shut down"), IncomingMessage());
}

void GrpcControlChannel::SetNodeTicket(const std::string& ticket) {
  MutexLock lock(mu_);
  node_ticket_ = ticket;
}

void GrpcControlChannel::After(MonotonicDuration delay, absl::AnyInvocable<void()> action) {
  auto* const timer = new Timer(std::move(action));
  MutexLock lock(mu_);
  events_.insert(timer);
  timer->Start(*this, shut_down_ ? MonotonicDuration::zero() : delay);
}

void GrpcControlChannel::Shutdown() {
  MutexLock lock(mu_);
  if (std::exchange(shut_down_, true)) return;
  for (Event* const event : events_) event->Cancel();
}

}  // namespace pawl
