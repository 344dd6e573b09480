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
inline constexpr size_t kTargetMessageBytes = size_t{4} << 20;
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

  // Returns the message to which the caller must add one segment of `bytes` for `partition` before
  // the next call.
  Message& MessageFor(uint32_t partition, size_t bytes) {
    const size_t server = std::min(routing_->primary(partition), routing_->servers());
    std::shared_ptr<Message>& message = open_[server];
    if (message != nullptr && (message->bytes + bytes > kTargetMessageBytes ||
                               message->segments.size() == kMaxMessageSegments)) {
      Flush(server);
    }
    if (message == nullptr) {
      message = std::make_shared<Message>();
      message->call = call_;
    }
    message->bytes += bytes;
    return *message;
  }

  // Sends the remaining messages; the call may be done after this.
  void Close() {
    for (size_t server = 0; server < open_.size(); ++server) {
      if (open_[server] != nullptr) Flush(server);
    }
    call_->MessageDone(absl::OkStatus());
  }

 private:
  void Flush(size_t server) {
    call_->AddMessages(1);
    messenger_.SendTo(*routing_, server < routing_->servers() ? server : Routing::kNoServer,
                      std::exchange(open_[server], nullptr));
  }

  Messenger& messenger_;
  const std::shared_ptr<Call> call_;
  const std::shared_ptr<const Routing> routing_;
  // By server; the last is for partitions without a primary.
  std::vector<std::shared_ptr<Message>> open_;
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_MESSAGE_BATCHER_H_
