// The calls of a SessionImpl in flight.
#ifndef PAWL_CLIENT_LIB_SESSION_SENDER_CALLS_H_
#define PAWL_CLIENT_LIB_SESSION_SENDER_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "client_lib/call.h"
#include "client_lib/session/segments.h"
#include "client_lib/session/session_impl.h"

namespace pawl {

// A Push, Assign or SetLearningRates. Returns its Segmenters and its bytes when it ends, and
// informs its session.
class SessionImpl::PushCall final : public Call, public std::enable_shared_from_this<PushCall> {
 public:
  PushCall(std::shared_ptr<SessionImpl> session, absl::Span<const PushItem> items, uint64_t step,
           MonotonicTime deadline, Callback done);
  PushCall(std::shared_ptr<SessionImpl> session, absl::Span<const AssignItem> items, uint64_t step,
           MonotonicTime deadline, Callback done);

  PushCall(std::shared_ptr<SessionImpl> session, absl::Span<const LearningRateItem> items,
           uint64_t step, MonotonicTime deadline, Callback done);

  bool assigns() const { return assigns_; }
  size_t bytes() const { return bytes_; }
  void set_granted() { granted_ = true; }
  void set_ahead(std::list<Ahead>::iterator ahead) { ahead_ = ahead; }

  // Divides all items into segments. Returns the largest number of segments of a partition.
  uint64_t DivideItems(uint32_t partitions);

  // Numbers the segments and sends them. Gathers the rows of one message while the previous one is
  // being sent.
  void SendSegments(std::vector<uint64_t>& next_ordinal);

  OutgoingMessage Encode(const Message& message, const RequestHeader& header) const override;
  absl::Status TakeAnswer(const Message& message, const IncomingMessage& answer) override;
  void Finish(const absl::Status& status) override;

 private:
  // What becomes segments.
  struct Item {
    PushItem push;
    PushEffect effect = APPLY_GRADIENT;
    absl::Span<const float> slots = {};
  };
  static std::vector<Item> ItemsOf(absl::Span<const PushItem> items);
  static std::vector<Item> ItemsOf(absl::Span<const AssignItem> items);
  PushCall(std::shared_ptr<SessionImpl> session, bool assigns, std::vector<Item> items,
           uint64_t step, MonotonicTime deadline, Callback done);

  const std::shared_ptr<SessionImpl> session_;
  const bool assigns_;
  const std::vector<Item> items_;
  Callback done_;
  size_t bytes_ = 0;
  bool granted_ = false;
  std::optional<std::list<Ahead>::iterator> ahead_;
  std::vector<std::unique_ptr<Segmenter>> segmenters_;  // by item
  uint64_t max_segments_of_partition_ = 0;
  // SetLearningRates: what each partition gets in one segment.
  std::vector<uint64_t> rate_tables_;
  std::vector<float> rates_;
};

class SessionImpl::PullCall final : public Call, public std::enable_shared_from_this<PullCall> {
 public:
  PullCall(std::shared_ptr<SessionImpl> session, absl::Span<const PullItem> items, uint64_t step,
           MonotonicTime deadline, Callback done);

  size_t bytes() const { return bytes_; }
  void set_granted() { granted_ = true; }

  void SendSegments();

  OutgoingMessage Encode(const Message& message, const RequestHeader& header) const override;
  absl::Status TakeAnswer(const Message& message, const IncomingMessage& answer) override;
  void Finish(const absl::Status& status) override;

 private:
  const std::shared_ptr<SessionImpl> session_;
  const std::vector<PullItem> items_;
  Callback done_;
  size_t bytes_ = 0;
  bool granted_ = false;
  std::vector<std::unique_ptr<Segmenter>> segmenters_;  // by item
};

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_SESSION_SENDER_CALLS_H_
