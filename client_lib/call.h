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
#include "client_lib/base/bytes.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "client_lib/rpc/message.h"
#include "client_lib/rpc/transport.h"
#include "proto/parameter.pb.h"

namespace pawl {

class Call;

// The part of a push or pull that belongs to one partition, or a piece of that part. Keys and
// values refer to memory of the call.
struct Segment {
  uint32_t table = 0;
  uint64_t ordinal = 0;
  ByteView keys;
  // Pushes only.
  ElementType element_type = FLOAT32;
  ByteView values;
  int32_t exponent = 0;
  // Bytes of keys and values, sent or expected in the answer.
  size_t bytes = 0;
  // Pulls only: for use by the call.
  uint32_t item = 0;
  uint32_t range = 0;
};

// The part of a call that belongs to some partitions. Once Messenger::Send has divided it, the part
// that belongs to one server.
struct Message {
  std::shared_ptr<Call> call;
  std::vector<uint32_t> partitions;
  // Pushes and pulls: the segment of each entry of `partitions`; a partition may occur more than
  // once. Empty in other calls.
  std::vector<Segment> segments;
  // The bytes of all segments.
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

  // Encodes the request for the message's partitions. `header` is the call's, with the epoch to
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
