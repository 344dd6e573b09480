// Batches the segments of a call into messages to servers.
#ifndef PAWL_CLIENT_LIB_SESSION_MESSAGE_BATCHER_H_
#define PAWL_CLIENT_LIB_SESSION_MESSAGE_BATCHER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client_lib/call.h"
#include "client_lib/session/messenger.h"

namespace pawl {

// The target size of a message's keys and values: large enough to make the cost per message small,
// small enough that encoding, sending and applying overlap.
inline constexpr size_t kMessageBytesAimedAt = size_t{4} << 20;
// The limit on segments in one message.
inline constexpr size_t kMaxMessageSegments = 4096;

// Fills one message for each server and sends it when it is full. For one thread; the messenger
// must outlive it.
class MessageBatcher {
 public:
  MessageBatcher(Messenger& messenger, std::shared_ptr<Call> call,
                 std::shared_ptr<const Routing> routing)
      : messenger_(messenger),
        call_(std::move(call)),
        routing_(std::move(routing)),
        open_(routing_->servers() + 1) {}

  // Returns a segment, which the caller fills in before the next call.
  Segment& Add(uint32_t partition, size_t bytes) {
    std::shared_ptr<Message>& message =
        open_[std::min(routing_->primary(partition), routing_->servers())];
    if (message != nullptr && (message->bytes + bytes > kMessageBytesAimedAt ||
                               message->segments.size() == kMaxMessageSegments)) {
      Flush(message);
    }
    if (message == nullptr) {
      message = std::make_shared<Message>();
      message->call = call_;
    }
    message->bytes += bytes;
    message->partitions.push_back(partition);
    Segment& segment = message->segments.emplace_back();
    segment.bytes = bytes;
    return segment;
  }

  // Sends the remaining messages; the call may be done after this.
  void Close() {
    for (std::shared_ptr<Message>& message : open_) {
      if (message != nullptr) Flush(message);
    }
    call_->MessageDone(absl::OkStatus());
  }

 private:
  void Flush(std::shared_ptr<Message>& message) {
    call_->AddMessages(1);
    messenger_.Send(std::exchange(message, nullptr));
  }

  Messenger& messenger_;
  const std::shared_ptr<Call> call_;
  const std::shared_ptr<const Routing> routing_;
  std::vector<std::shared_ptr<Message>>
      open_;  // by server; the last is for partitions without a primary
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_MESSAGE_BATCHER_H_
