// How the segments of a call become messages to servers.
#ifndef PAWL_CLIENT_LIB_OUTBOX_H_
#define PAWL_CLIENT_LIB_OUTBOX_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client_lib/messenger.h"

namespace pawl {

// Fills one message for each server and sends it when it is full. For one thread; the messenger outlives it.
class Outbox {
 public:
  Outbox(Messenger& messenger, std::shared_ptr<Call> call, std::shared_ptr<const Routing> routing)
      : messenger_(messenger), call_(std::move(call)), routing_(std::move(routing)), open_(routing_->servers() + 1) {}

  // A segment for the caller to fill in, before the next call.
  Segment& Add(uint32_t partition, size_t bytes) {
    std::shared_ptr<Messenger::Message>& message = open_[std::min(routing_->primary(partition), routing_->servers())];
    if (message != nullptr && (message->bytes + bytes > kMessageBytes || message->segments.size() == kMessageSegments)) {
      Flush(message);
    }
    if (message == nullptr) {
      message = std::make_shared<Messenger::Message>();
      message->call = call_;
    }
    message->bytes += bytes;
    Segment& segment = message->segments.emplace_back();
    segment.partition = partition;
    segment.bytes = bytes;
    return segment;
  }

  // Sends what is left; the call may be done after this.
  void Close() {
    for (std::shared_ptr<Messenger::Message>& message : open_) {
      if (message != nullptr) Flush(message);
    }
    call_->MessageDone(absl::OkStatus());
  }

 private:
  void Flush(std::shared_ptr<Messenger::Message>& message) {
    call_->AddMessages(1);
    messenger_.Send(std::exchange(message, nullptr));
  }

  Messenger& messenger_;
  const std::shared_ptr<Call> call_;
  const std::shared_ptr<const Routing> routing_;
  std::vector<std::shared_ptr<Messenger::Message>> open_;  // by server; the last is for partitions without a primary
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_OUTBOX_H_
