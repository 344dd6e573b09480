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
static_assert(kMessageBytesAimedAt <= kMaxMessageBytes / 2,
              "servers refuse more than that with its headers");

SessionImpl::PushCall::PushCall(std::shared_ptr<SessionImpl> session,
                                absl::Span<const PushItem> items, uint64_t step,
                                MonotonicTime deadline, Callback done)
    // In SYNC it waits at the server until the step before has closed.
    : Call({.method = Method::kPush,
            .name = "the push",
            .deadline = deadline,
            .flow_step = step,
            .may_park = session->identity_.rank.has_value() && session->core_->is_sync()},
           session->Header(step)),
      session_(std::move(session)),
      items_(items.begin(), items.end()),
      done_(std::move(done)) {
  for (const PushItem& item : items_) {
    bytes_ += item.gradients.size() * ElementBytes(item.element_type) +
              item.keys.size() * sizeof(uint64_t);
  }
}

uint64_t SessionImpl::PushCall::CutItems(uint32_t partitions) {
  if (!cuts_.empty() || items_.empty()) return max_segments_of_partition_;
  std::vector<uint32_t> segments(partitions);
  for (const PushItem& item : items_) {
    cuts_.push_back(session_->core_->segmenters().Get());
    Segmenter& cuts = *cuts_.back();
    if (item.table.dense()) {
      cuts.BuildDense(item.table, partitions, item.keys);
    } else {
      cuts.BuildSparse(item.table, item.keys, partitions, item.keys_are_distinct);
    }
    cuts.AllocateGradients(item.table, item.element_type);
    for (const KeyRange& cut : cuts.cuts()) {
      max_segments_of_partition_ =
          std::max<uint64_t>(max_segments_of_partition_, ++segments[cut.partition]);
    }
  }
  return max_segments_of_partition_;
}

void SessionImpl::PushCall::SendSegments(std::vector<uint64_t>& next_ordinal) {
  MessageBatcher batcher(session_->core_->messenger(), shared_from_this(),
                         session_->core_->router().current());
  for (size_t i = 0; i < items_.size(); ++i) {
    const PushItem& item = items_[i];
    Segmenter& cuts = *cuts_[i];
    for (const KeyRange& cut : cuts.cuts()) {
      Segment& segment =
          batcher.Add(cut.partition, cut.count * sizeof(uint64_t) +
                                         cuts.ValueBytes(item.table, cut, item.element_type));
      segment.table = item.table.id();
      segment.element_type = item.element_type;
      segment.ordinal = next_ordinal[cut.partition]++;
      cuts.AppendKeys(cut, &segment.keys);
      if (item.table.dense()) {
        segment.exponent = cuts.AppendBlocks(item.table, cut, item.gradients.data(),
                                             &segment.values, item.element_type);
      } else {
        segment.exponent = cuts.GatherRows(item.table, cut, item.gradients.data(), &segment.values,
                                           item.element_type);
      }
    }
  }
  batcher.Close();
}

OutgoingMessage SessionImpl::PushCall::Encode(const Message& message,
                                              const RequestHeader& header) const {
  std::vector<PushSegmentView> views;
  views.reserve(message.segments.size());
  for (size_t i = 0; i < message.segments.size(); ++i) {
    const Segment& segment = message.segments[i];
    views.push_back({segment.table, message.partitions[i], segment.ordinal, segment.element_type,
                     segment.keys, segment.values, segment.exponent});
  }
  return EncodePushRequest(header, views);
}

absl::Status SessionImpl::PushCall::TakeAnswer(const Message& message,
                                               const IncomingMessage& answer) {
  PushResponse response;
  PAWL_RETURN_IF_ERROR(DecodeSmall(answer.bytes, response));
  session_->core_->segment_counters().Add(response);
  return absl::OkStatus();
}

void SessionImpl::PushCall::Finish(const absl::Status& status) {
  for (std::unique_ptr<Segmenter>& cuts : cuts_) session_->core_->segmenters().Put(std::move(cuts));
  cuts_.clear();
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
            .may_park = session->identity_.rank.has_value()},
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
  // All cuts before the first message: answers are taken while later ones are being sent.
  for (const PullItem& item : items_) {
    cuts_.push_back(session_->core_->segmenters().Get());
    if (item.table.dense()) {
      cuts_.back()->BuildDense(item.table, routing->partitions());
    } else {
      cuts_.back()->BuildSparse(item.table, item.keys, routing->partitions(),
                                item.keys_are_distinct);
    }
  }
  MessageBatcher batcher(session_->core_->messenger(), shared_from_this(), routing);
  for (size_t i = 0; i < items_.size(); ++i) {
    const Table& table = items_[i].table;
    const absl::Span<const KeyRange> cuts = cuts_[i]->cuts();
    for (size_t j = 0; j < cuts.size(); ++j) {
      Segment& segment = batcher.Add(cuts[j].partition, cuts[j].count * sizeof(uint64_t) +
                                                            cuts_[i]->ValueBytes(table, cuts[j]));
      segment.table = table.id();
      cuts_[i]->AppendKeys(cuts[j], &segment.keys);
      segment.item = static_cast<uint32_t>(i);
      segment.cut = static_cast<uint32_t>(j);
    }
  }
  batcher.Close();
}

OutgoingMessage SessionImpl::PullCall::Encode(const Message& message,
                                              const RequestHeader& header) const {
  std::vector<PullSegmentView> views;
  views.reserve(message.segments.size());
  for (size_t i = 0; i < message.segments.size(); ++i) {
    views.push_back({message.segments[i].table, message.partitions[i], message.segments[i].keys});
  }
  return EncodePullRequest(header, views);
}

absl::Status SessionImpl::PullCall::TakeAnswer(const Message& message,
                                               const IncomingMessage& answer) {
  const std::vector<Segment>& segments = message.segments;
  PAWL_ASSIGN_OR_RETURN(const PullResponseView view, DecodePullResponse(answer.bytes));
  if (view.results.size() != segments.size()) {
    return absl::InternalError(absl::StrCat("the server answered ", view.results.size(),
                                            " segments of the ", segments.size(),
                                            " that were asked for"));
  }
  for (size_t i = 0; i < segments.size(); ++i) {
    const PullItem& item = items_[segments[i].item];
    const Segmenter& cuts = *cuts_[segments[i].item];
    const KeyRange& cut = cuts.cuts()[segments[i].cut];
    if (view.results[i].size() != cuts.ValueBytes(item.table, cut)) {
      return absl::InternalError(absl::StrCat("the server answered ", view.results[i].size(),
                                              " bytes for ", cut.count, " keys of table `",
                                              item.table.name(), "`, which have ",
                                              cuts.ValueBytes(item.table, cut)));
    }
    cuts.Scatter(item.table, cut, view.results[i], item.values.data());
  }
  return absl::OkStatus();
}

void SessionImpl::PullCall::Finish(const absl::Status& status) {
  for (std::unique_ptr<Segmenter>& cuts : cuts_) session_->core_->segmenters().Put(std::move(cuts));
  cuts_.clear();
  if (granted_) session_->core_->pull_flow().Release(terms.flow_step, bytes_);
  done_(status);
  done_ = nullptr;
}

}  // namespace pawl
