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

std::vector<SessionImpl::PushCall::Item> SessionImpl::PushCall::ItemsOf(
    absl::Span<const PushItem> items) {
  std::vector<Item> all;
  all.reserve(items.size());
  for (const PushItem& item : items) all.push_back({.push = item});
  return all;
}

std::vector<SessionImpl::PushCall::Item> SessionImpl::PushCall::ItemsOf(
    absl::Span<const AssignItem> items) {
  std::vector<Item> all;
  all.reserve(items.size());
  for (const AssignItem& item : items) {
    all.push_back({.push = {.table = item.table,
                            .keys = item.keys,
                            .gradients = item.values,
                            .keys_are_distinct = true},
                   .effect = item.keep_slots      ? ASSIGN_KEEP_SLOTS
                             : item.slots.empty() ? ASSIGN_RESET_SLOTS
                                                  : ASSIGN_WITH_SLOTS,
                   .slots = item.slots});
  }
  return all;
}

SessionImpl::PushCall::PushCall(std::shared_ptr<SessionImpl> session,
                                absl::Span<const PushItem> items, uint64_t step,
                                MonotonicTime deadline, Callback done)
    : PushCall(std::move(session), false, ItemsOf(items), step, deadline, std::move(done)) {}

SessionImpl::PushCall::PushCall(std::shared_ptr<SessionImpl> session,
                                absl::Span<const AssignItem> items, uint64_t step,
                                MonotonicTime deadline, Callback done)
    : PushCall(std::move(session), true, ItemsOf(items), step, deadline, std::move(done)) {}

SessionImpl::PushCall::PushCall(std::shared_ptr<SessionImpl> session,
                                absl::Span<const LearningRateItem> items, uint64_t step,
                                MonotonicTime deadline, Callback done)
    : PushCall(std::move(session), false, {}, step, deadline, std::move(done)) {
  for (const LearningRateItem& item : items) {
    rate_tables_.push_back(item.table.id());
    rates_.push_back(item.learning_rate);
  }
}

SessionImpl::PushCall::PushCall(std::shared_ptr<SessionImpl> session, bool assigns,
                                std::vector<Item> items, uint64_t step, MonotonicTime deadline,
                                Callback done)
    // In SYNC mode it waits at the server until the previous step has closed.
    : Call({.method = Method::kPush,
            .name = assigns ? "the assignment" : "the push",
            .deadline = deadline,
            .flow_step = step,
            .may_wait = session->identity_.rank.has_value() && session->core_->is_sync()},
           session->Header(step)),
      session_(std::move(session)),
      assigns_(assigns),
      items_(std::move(items)),
      done_(std::move(done)) {
  for (const Item& item : items_) {
    bytes_ += item.push.gradients.size() * ElementBytes(item.push.element_type) +
              item.push.keys.size() * sizeof(uint64_t) + item.slots.size() * sizeof(float);
  }
}

uint64_t SessionImpl::PushCall::DivideItems(uint32_t partitions) {
  if (!rates_.empty()) return 1;
  if (!segmenters_.empty() || items_.empty()) return max_segments_of_partition_;
  std::vector<uint32_t> segments(partitions);
  for (const Item& item : items_) {
    const PushItem& push = item.push;
    segmenters_.push_back(session_->core_->segmenters().Get());
    Segmenter& segmenter = *segmenters_.back();
    segmenter.Build(push.table, push.keys, partitions, push.keys_are_distinct);
    segmenter.AllocateGradients(push.table, push.element_type);
    if (!item.slots.empty()) segmenter.AllocateSlots(push.table);
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
    if (!rates_.empty()) {
      const size_t bytes = rate_tables_.size() * sizeof(uint64_t) + rates_.size() * sizeof(float);
      SegmentView& segment = batcher.MessageFor(partition, bytes).segments.emplace_back();
      segment.partition = partition;
      segment.ordinal = next_ordinal[partition]++;
      segment.element_type = FLOAT32;
      segment.keys.Append(rate_tables_.data(), rate_tables_.size() * sizeof(uint64_t));
      segment.values.Append(rates_.data(), rates_.size() * sizeof(float));
      segment.effect = SET_LEARNING_RATES;
    }
    for (size_t i = 0; i < items_.size(); ++i) {
      const PushItem& push = items_[i].push;
      const bool has_slots = !items_[i].slots.empty();
      Segmenter& segmenter = *segmenters_[i];
      const absl::Span<const Segmenter::Segment> segments = segmenter.segments();
      for (; next[i] < segments.size() && segments[next[i]].partition == partition; ++next[i]) {
        const Segmenter::Segment& from = segments[next[i]];
        const ByteView keys = segmenter.Keys(from);
        const size_t slot_bytes = has_slots ? segmenter.SlotBytes(push.table, from) : 0;
        Message& message = batcher.MessageFor(
            partition,
            keys.size() + segmenter.ValueBytes(push.table, from, push.element_type) + slot_bytes);
        SegmentView& segment = message.segments.emplace_back();
        segment.table = push.table.id();
        segment.partition = partition;
        segment.ordinal = next_ordinal[partition]++;
        segment.keys = keys;
        segment.effect = items_[i].effect;
        segmenter.Gather(push.table, from, push.gradients.data(), push.element_type, segment);
        if (has_slots) segmenter.GatherSlots(push.table, from, items_[i].slots.data(), segment);
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
  session_->OnPushDone(*this, ahead_, status);
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
    bytes_ += (item.values.size() + item.slots.size()) * sizeof(float) +
              item.keys.size() * sizeof(uint64_t);
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
    const bool with_slots = !items_[i].slots.empty();
    const absl::Span<const Segmenter::Segment> segments = segmenters_[i]->segments();
    for (size_t j = 0; j < segments.size(); ++j) {
      const ByteView keys = segmenters_[i]->Keys(segments[j]);
      const size_t value_bytes = segmenters_[i]->ValueBytes(table, segments[j]);
      const size_t slot_bytes = with_slots ? segmenters_[i]->SlotBytes(table, segments[j]) : 0;
      Message& message =
          batcher.MessageFor(segments[j].partition, keys.size() + value_bytes + slot_bytes);
      SegmentView& segment = message.segments.emplace_back();
      segment.table = table.id();
      segment.partition = segments[j].partition;
      segment.keys = keys;
      segment.with_slots = with_slots;
      message.targets.push_back(
          {static_cast<uint32_t>(i), static_cast<uint32_t>(j), value_bytes, slot_bytes});
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
    const PullResultView& result = view.results[i];
    if (result.values.size() != target.value_bytes || result.slots.size() != target.slot_bytes) {
      return absl::InternalError(absl::StrCat(
          "the server answered ", result.values.size(), " bytes of values and ",
          result.slots.size(), " of slots for ", segment.size(), " keys of table `",
          item.table.name(), "`, which have ", target.value_bytes, " and ", target.slot_bytes));
    }
    segmenter.Scatter(item.table, segment, result.values, item.values.data());
    if (target.slot_bytes > 0)
      segmenter.ScatterSlots(item.table, segment, result.slots, item.slots.data());
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
