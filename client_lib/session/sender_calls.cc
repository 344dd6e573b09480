#include "client_lib/session/sender_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/elements.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/session/message_batcher.h"

namespace pawl {

static_assert(kMaxMessageSegments <= kMaxSegmentsInMessage, "servers refuse more");
static_assert(kTargetMessageBytes <= kMaxMessageBytes / 2, "servers refuse larger messages");

SessionImpl::PushCall::PushCall(std::shared_ptr<SessionImpl> session,
                                absl::Span<const PushItem> items, uint64_t step,
                                MonotonicTime deadline, Callback done)
    // In SYNC mode it waits at the server until the previous step has closed.
    : Call({.method = Method::kPush,
            .name = "the push",
            .deadline = deadline,
            .flow_step = step,
            .may_wait = session->identity_.rank.has_value() && session->core_->is_sync()},
           session->Header(step)),
      session_(std::move(session)),
      items_(items.begin(), items.end()),
      done_(std::move(done)) {
  for (const PushItem& item : items_) {
    bytes_ += item.gradients.size() * ElementBytes(item.element_type) +
              item.keys.size() * sizeof(uint64_t);
  }
}

uint64_t SessionImpl::PushCall::DivideItems(uint32_t partitions) {
  if (!segmenters_.empty() || items_.empty()) return max_segments_of_partition_;
  std::vector<uint32_t> segments(partitions);
  for (const PushItem& item : items_) {
    segmenters_.push_back(session_->core_->segmenters().Get());
    Segmenter& segmenter = *segmenters_.back();
    segmenter.Build(item.table, item.keys, partitions, item.keys_are_distinct);
    segmenter.AllocateGradients(item.table, item.element_type);
    for (const Segmenter::Segment& segment : segmenter.segments()) {
      max_segments_of_partition_ =
          std::max<uint64_t>(max_segments_of_partition_, ++segments[segment.partition]);
    }
  }
  return max_segments_of_partition_;
}

void SessionImpl::PushCall::SendSegments(std::vector<uint64_t>& next_ordinal) {
  MessageBatcher batcher(session_->core_->messenger(), shared_from_this(),
                         session_->core_->router().current());
  // Partition by partition, so that a server handles those of a partition under one lock.
  std::vector<size_t> next(items_.size());  // by item
  for (uint32_t partition = 0; partition < next_ordinal.size(); ++partition) {
    for (size_t i = 0; i < items_.size(); ++i) {
      const PushItem& item = items_[i];
      const absl::Span<const Segmenter::Segment> segments = segmenters_[i]->segments();
      for (; next[i] < segments.size() && segments[next[i]].partition == partition; ++next[i]) {
        const Segmenter::Segment& from = segments[next[i]];
        const ByteView keys = segmenters_[i]->Keys(from);
        Message& message = batcher.MessageFor(
            partition,
            keys.size() + segmenters_[i]->ValueBytes(item.table, from, item.element_type));
        SegmentView& segment = message.segments.emplace_back();
        segment.table = item.table.id();
        segment.partition = partition;
        segment.ordinal = next_ordinal[partition]++;
        segment.keys = keys;
        segmenters_[i]->Gather(item.table, from, item.gradients.data(), item.element_type, segment);
      }
    }
  }
  batcher.Close();
}

OutgoingMessage SessionImpl::PushCall::Encode(const Message& message,
                                              const RequestHeader& header) const {
  return EncodePushRequest(header, message.segments);
}

absl::Status SessionImpl::PushCall::TakeAnswer(const Message& message,
                                               const IncomingMessage& answer) {
  PushResponse response;
  PAWL_RETURN_IF_ERROR(DecodeSmall(answer.bytes, response));
  session_->core_->segment_counters().Add(response);
  return absl::OkStatus();
}

void SessionImpl::PushCall::Finish(const absl::Status& status) {
  for (std::unique_ptr<Segmenter>& segmenter : segmenters_)
    session_->core_->segmenters().Put(std::move(segmenter));
  segmenters_.clear();
  if (granted_) session_->core_->push_flow().Release(terms.flow_step, bytes_);
  session_->OnPushDone(ahead_, status);
  done_(status);
  done_ = nullptr;
  session_->Pump();
}

SessionImpl::PullCall::PullCall(std::shared_ptr<SessionImpl> session,
                                absl::Span<const PullItem> items, uint64_t step,
                                MonotonicTime deadline, Callback done)
    : Call({.method = Method::kPull,
            .name = "the pull",
            .deadline = deadline,
            .flow_step = step,
            .may_wait = session->identity_.rank.has_value()},
           session->Header(step)),
      session_(std::move(session)),
      items_(items.begin(), items.end()),
      done_(std::move(done)) {
  for (const PullItem& item : items_) {
    bytes_ += item.values.size() * sizeof(float) + item.keys.size() * sizeof(uint64_t);
  }
}

void SessionImpl::PullCall::SendSegments() {
  const std::shared_ptr<const Routing> routing = session_->core_->router().current();
  // All segments exist before the first message is sent, because answers are consumed while later
  // messages are being sent.
  for (const PullItem& item : items_) {
    segmenters_.push_back(session_->core_->segmenters().Get());
    segmenters_.back()->Build(item.table, item.keys, routing->partitions(), item.keys_are_distinct);
  }
  MessageBatcher batcher(session_->core_->messenger(), shared_from_this(), routing);
  for (size_t i = 0; i < items_.size(); ++i) {
    const Table& table = items_[i].table;
    const absl::Span<const Segmenter::Segment> segments = segmenters_[i]->segments();
    for (size_t j = 0; j < segments.size(); ++j) {
      const ByteView keys = segmenters_[i]->Keys(segments[j]);
      const size_t value_bytes = segmenters_[i]->ValueBytes(table, segments[j]);
      Message& message = batcher.MessageFor(segments[j].partition, keys.size() + value_bytes);
      SegmentView& segment = message.segments.emplace_back();
      segment.table = table.id();
      segment.partition = segments[j].partition;
      segment.keys = keys;
      message.targets.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(j), value_bytes});
    }
  }
  batcher.Close();
}

OutgoingMessage SessionImpl::PullCall::Encode(const Message& message,
                                              const RequestHeader& header) const {
  return EncodePullRequest(header, message.segments);
}

absl::Status SessionImpl::PullCall::TakeAnswer(const Message& message,
                                               const IncomingMessage& answer) {
  PAWL_ASSIGN_OR_RETURN(const PullResponseView view, DecodePullResponse(answer.bytes));
  if (view.results.size() != message.targets.size()) {
    return absl::InternalError(absl::StrCat("the server answered ", view.results.size(),
                                            " segments of the ", message.targets.size(),
                                            " that were requested"));
  }
  for (size_t i = 0; i < view.results.size(); ++i) {
    const PullTarget& target = message.targets[i];
    const PullItem& item = items_[target.item];
    const Segmenter& segmenter = *segmenters_[target.item];
    const Segmenter::Segment& segment = segmenter.segments()[target.segment];
    if (view.results[i].size() != target.value_bytes) {
      return absl::InternalError(absl::StrCat(
          "the server answered ", view.results[i].size(), " bytes for ", segment.size(),
          " keys of table `", item.table.name(), "`, which have ", target.value_bytes));
    }
    segmenter.Scatter(item.table, segment, view.results[i], item.values.data());
  }
  return absl::OkStatus();
}

void SessionImpl::PullCall::Finish(const absl::Status& status) {
  for (std::unique_ptr<Segmenter>& segmenter : segmenters_)
    session_->core_->segmenters().Put(std::move(segmenter));
  segmenters_.clear();
  if (granted_) session_->core_->pull_flow().Release(terms.flow_step, bytes_);
  done_(status);
  done_ = nullptr;
}

}  // namespace pawl
