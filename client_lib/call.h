// A user's call in progress, and the messages that it consists of.
#ifndef PAWL_CLIENT_LIB_CALL_H_
#define PAWL_CLIENT_LIB_CALL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/message.h"
#include "client_lib/rpc/transport.h"
#include "proto/parameter.pb.h"

namespace pawl {

class Call;

// Where a pull writes the answer for a segment: the call's item, and the number of its segment.
struct PullTarget {
  uint32_t item;
  uint32_t segment;
  // Expected in the answer.
  size_t value_bytes;
  size_t slot_bytes;
};

// The part of a call that belongs to some partitions. Once Messenger::Send has divided it, the part
// that belongs to one server.
struct Message {
  std::shared_ptr<Call> call;
  // Keys and values refer to memory of the call. A call without them, such as EndStep, has a
  // segment without keys for each of its partitions.
  std::vector<SegmentView> segments;
  // Pulls only: of each segment.
  std::vector<PullTarget> targets;
  // Bytes of keys, values and slots, sent or expected in the answer.
  size_t bytes = 0;
  int retries = 0;
  absl::Status last_error;
};

// Done when all its messages are done. Thread-safe. Owned by shared_ptr, which its messages share.
class Call {
 public:
  struct Terms {
    Method method;
    // The name used in errors, such as "the push".
    absl::string_view name;
    MonotonicTime deadline;
    // See FlowControl.
    uint64_t flow_step = 0;
    // Whether the server may hold the message until other senders have acted.
    bool may_wait = false;
  };

  Call(const Terms& terms, RequestHeader header) : terms(terms), header(std::move(header)) {}
  virtual ~Call() = default;

  // Encodes the request for the message's segments. `header` is the call's, with the epoch to
  // send. The result borrows the memory of the segments.
  virtual OutgoingMessage Encode(const Message& message, const RequestHeader& header) const = 0;
  // Consumes the server's answer to the message. Runs on any thread, concurrently for different
  // messages.
  virtual absl::Status TakeAnswer(const Message& message, const IncomingMessage& answer) = 0;
  // Called when every added message is done. `status` is the first error.
  virtual void Finish(const absl::Status& status) = 0;

  // A call starts with one message: its only one, or a placeholder held by the code that adds the
  // others.
  void AddMessages(int count) { messages_.fetch_add(count, std::memory_order_relaxed); }
  void MessageDone(const absl::Status& status);

  const Terms terms;
  // Its epoch is unset.
  const RequestHeader header;

 private:
  std::atomic<int> messages_{1};
  Mutex mu_;
  absl::Status error_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_CALL_H_
