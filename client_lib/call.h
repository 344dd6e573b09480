// A call of the user's on its way to the servers, and the messages that it takes.
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

// What a push or pull has for a partition, or some of it. Keys and values lie in memory of the
// call's.
struct Segment {
  uint32_t table = 0;
  uint64_t ordinal = 0;
  ByteView keys;
  // Of a push.
  ElementType element_type = FLOAT32;
  ByteView values;
  int32_t exponent = 0;
  // Bytes of keys and values, sent or to be answered.
  size_t bytes = 0;
  // Of a pull: for the call's use.
  uint32_t item = 0;
  uint32_t cut = 0;
};

// What a call has for some partitions: for one server, once Messenger::Send has divided it.
struct Message {
  std::shared_ptr<Call> call;
  std::vector<uint32_t> partitions;
  // Of a push or pull: one for each of the partitions, among which one may come more than once.
  // Others have none.
  std::vector<Segment> segments;
  // Of the segments.
  size_t bytes = 0;
  int retries = 0;
  absl::Status last_error;
};

// Done when all messages of it are. Thread-safe. Owned by shared_ptr, which its messages share.
class Call {
 public:
  struct Terms {
    Method method;
    // What errors call it: "the push".
    absl::string_view name;
    MonotonicTime deadline;
    // FlowControl's.
    uint64_t flow_step = 0;
    // Whether the server may keep a message until others have done something.
    bool may_park = false;
  };

  Call(const Terms& terms, RequestHeader header) : terms(terms), header(std::move(header)) {}
  virtual ~Call() = default;

  // The request for the message's partitions. `header` is the call's, with the epoch that it is
  // sent by. The result borrows what the segments do.
  virtual OutgoingMessage Encode(const Message& message, const RequestHeader& header) const = 0;
  // Takes the server's answer to the message. Runs on any thread, for different messages at once.
  virtual absl::Status TakeAnswer(const Message& message, const IncomingMessage& answer) = 0;
  // Every message that was added is done. `status` is the first error.
  virtual void Finish(const absl::Status& status) = 0;

  // The call begins with one message: its only one, or one that stands for whoever makes the
  // others.
  void AddMessages(int count) { messages_.fetch_add(count, std::memory_order_relaxed); }
  void MessageDone(const absl::Status& status);

  const Terms terms;
  // Without its epoch.
  const RequestHeader header;

 private:
  std::atomic<int> messages_{1};
  Mutex mu_;
  absl::Status error_ PAWL_GUARDED_BY(mu_);
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_CALL_H_
