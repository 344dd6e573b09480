#include "server/replication/log_entry.h"

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/wire_format.h"
#include "google/protobuf/arena.h"

namespace pawl {
namespace {

// The field numbers of proto/replication.proto.
enum EntryField : uint32_t { kIndex = 1, kPartition = 2, kTerm = 10 };
enum ReplicateField : uint32_t { kHeader = 1, kEntries = 2, kAsksPosition = 3 };
enum InstallField : uint32_t { kData = 5 };

// The most bytes of an InstallSnapshotRequest without its data.
constexpr size_t kMaxOtherBytes = size_t{64} << 10;
// The most bytes of an entry's tags, lengths and numbers.
constexpr size_t kMaxOwnBytes = 64;
// More than an EndStepRequest of one partition takes in memory.
constexpr size_t kStackBytes = 1024;

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is malformed; see proto/replication.proto"));
}

// Sets all but job and epoch.
void SetSender(const Sender& sender, RequestHeader& header) {
  header.set_incarnation(sender.incarnation);
  if (sender.kind == Sender::Kind::kLogicalWorker) {
    header.set_logical_worker(sender.number);
    header.set_step(sender.step);
  } else {
    header.set_client(sender.number);
  }
}

// The fields of a LogEntry beside the change.
void PutPlace(const ChangeView& change, WireEncoder& encoder) {
  encoder.PutVarintField(kIndex, change.index);
  encoder.PutVarintField(kPartition, change.partition);
  if (change.term != 0) encoder.PutVarintField(kTerm, change.term);
}

OutgoingMessage EncodeWith(const ChangeView& change, const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  WireEncoder encoder(kMaxOwnBytes + size, /*owner=*/nullptr);
  PutPlace(change, encoder);
  // An empty change must be present too.
  encoder.PutLength(static_cast<uint32_t>(change.kind), size);
  encoder.PutMessage(message);
  return std::move(encoder).Finish();
}

absl::Status ReadPositionsAsked(const ByteView& packed, std::vector<uint32_t>& partitions) {
  WireDecoder decoder(packed);
  while (!decoder.done()) {
    uint64_t partition;
    if (!decoder.ReadVarint(&partition) || partition > UINT32_MAX)
      return Malformed("ReplicateRequest.asks_position");
    if (partitions.size() == kMaxPositionsAsked) {
      return absl::InvalidArgumentError(
          absl::StrCat("ReplicateRequest asks for more than ", kMaxPositionsAsked, " positions"));
    }
    partitions.push_back(static_cast<uint32_t>(partition));
  }
  return absl::OkStatus();
}

// Client numbers are larger than ranks may be.
absl::Status RequireRank(const Sender& sender, absl::string_view field) {
  return sender.kind == Sender::Kind::kLogicalWorker ? absl::OkStatus() : Malformed(field);
}

absl::Status ReadChange(const ByteView& bytes, ChangeView& change) {
  switch (change.kind) {
    case ChangeView::Kind::kPush: {
      PAWL_ASSIGN_OR_RETURN(RequestView push, DecodePushRequest(bytes));
      if (push.segments.size() != 1) return Malformed("LogEntry.push");
      change.sender = SenderOf(push.header);
      change.segment = std::move(push.segments[0]);
      if (change.segment.partition != change.partition)
        return Malformed("LogEntry.push.segments.partition");
      return absl::OkStatus();
    }
    case ChangeView::Kind::kEndStep: {
      EndStepRequest message;
      PAWL_RETURN_IF_ERROR(DecodeSmall(bytes, message));
      if (message.segments_size() > 1) return Malformed("LogEntry.end_step");
      if (message.segments_size() == 1) change.segments = message.segments(0);
      if (message.phase() == EndStepRequest::CLOSE) {
        change.close_scale = message.scale();
      } else if (message.phase() != EndStepRequest::END) {
        return Malformed("LogEntry.end_step.phase");
      }
      change.sender = SenderOf(message.header());
      return RequireRank(change.sender, "LogEntry.end_step.header");
    }
    case ChangeView::Kind::kTakeOver: {
      TakeOverRequest message;
      PAWL_RETURN_IF_ERROR(DecodeSmall(bytes, message));
      change.sender = SenderOf(message.header());
      return RequireRank(change.sender, "LogEntry.take_over.header");
    }
    case ChangeView::Kind::kTableCreated: {
      TableCreated message;
      PAWL_RETURN_IF_ERROR(DecodeSmall(bytes, message));
      change.table = std::move(*message.mutable_table());
      return absl::OkStatus();
    }
    case ChangeView::Kind::kBestKept: {
      BestKept message;
      PAWL_RETURN_IF_ERROR(DecodeSmall(bytes, message));
      change.step = message.step();
      return absl::OkStatus();
    }
    case ChangeView::Kind::kBestRestored:
      return absl::OkStatus();
    case ChangeView::Kind::kReleased: {
      LogicalWorkerReleased message;
      PAWL_RETURN_IF_ERROR(DecodeSmall(bytes, message));
      change.sender = {Sender::Kind::kLogicalWorker, message.logical_worker(),
                       message.incarnation()};
      return absl::OkStatus();
    }
  }
  return Malformed("LogEntry.change");
}

}  // namespace

Sender SenderOf(const RequestHeader& header) {
  Sender sender;
  sender.incarnation = header.incarnation();
  if (header.sender_case() == RequestHeader::kLogicalWorker) {
    sender.kind = Sender::Kind::kLogicalWorker;
    sender.number = header.logical_worker();
    sender.step = header.step();
  } else {
    sender.kind = Sender::Kind::kClient;
    sender.number = header.client();
  }
  return sender;
}

OutgoingMessage EncodeLogEntry(const ChangeView& change, std::shared_ptr<const void> owner) {
  switch (change.kind) {
    case ChangeView::Kind::kPush: {
      RequestHeader header;
      SetSender(change.sender, header);
      const PushRequestField push(header, {&change.segment, 1});
      WireEncoder encoder(kMaxOwnBytes + push.own_bytes(), std::move(owner));
      PutPlace(change, encoder);
      encoder.PutLength(static_cast<uint32_t>(change.kind), push.size());
      push.Put(encoder);
      return std::move(encoder).Finish();
    }
    case ChangeView::Kind::kEndStep: {
      // The end of a step makes an entry in every partition, so the message lies on the stack.
      alignas(std::max_align_t) char block[kStackBytes];
      google::protobuf::ArenaOptions options;
      options.initial_block = block;
      options.initial_block_size = sizeof(block);
      google::protobuf::Arena arena(options);
      auto& message = *google::protobuf::Arena::CreateMessage<EndStepRequest>(&arena);
      SetSender(change.sender, *message.mutable_header());
      message.add_partitions(change.partition);
      if (change.segments.has_value()) message.add_segments(*change.segments);
      if (change.close_scale.has_value()) {
        message.set_phase(EndStepRequest::CLOSE);
        message.set_scale(*change.close_scale);
      }
      return EncodeWith(change, message);
    }
    case ChangeView::Kind::kTakeOver: {
      TakeOverRequest message;
      SetSender(change.sender, *message.mutable_header());
      message.add_partitions(change.partition);
      return EncodeWith(change, message);
    }
    case ChangeView::Kind::kTableCreated: {
      TableCreated message;
      *message.mutable_table() = change.table;
      return EncodeWith(change, message);
    }
    case ChangeView::Kind::kBestKept: {
      BestKept message;
      message.set_step(change.step);
      return EncodeWith(change, message);
    }
    case ChangeView::Kind::kBestRestored:
      break;
    case ChangeView::Kind::kReleased: {
      LogicalWorkerReleased message;
      message.set_logical_worker(change.sender.number);
      message.set_incarnation(change.sender.incarnation);
      return EncodeWith(change, message);
    }
  }
  return EncodeWith(change, BestRestored());
}

absl::StatusOr<ChangeView> DecodeLogEntry(const ByteView& bytes) {
  ChangeView change;
  ByteView body;
  bool has_change = false;
  WireDecoder decoder(bytes);
  while (!decoder.done()) {
    uint32_t tag;
    uint64_t value = 0;
    size_t size = 0;
    if (!decoder.ReadTag(&tag)) return Malformed("LogEntry");
    if (tag == Tag(kIndex, kVarint)) {
      if (!decoder.ReadVarint(&change.index)) return Malformed("LogEntry.index");
    } else if (tag == Tag(kPartition, kVarint)) {
      if (!decoder.ReadVarint(&value) || value > UINT32_MAX) return Malformed("LogEntry.partition");
      change.partition = static_cast<uint32_t>(value);
    } else if (tag == Tag(kTerm, kVarint)) {
      if (!decoder.ReadVarint(&change.term)) return Malformed("LogEntry.term");
    } else if (const uint32_t field = tag >> 3; (tag & 7) == kBytes && field >= 3 && field <= 9) {
      if (std::exchange(has_change, true) || !decoder.ReadLength(&size))
        return Malformed("LogEntry.change");
      change.kind = static_cast<ChangeView::Kind>(field);
      decoder.ReadView(size, &body);
    } else {
      // A change that this version does not know must not be skipped.
      return Malformed(absl::StrCat("LogEntry field ", tag >> 3));
    }
  }
  if (!has_change || change.index == 0) return Malformed("LogEntry");
  PAWL_RETURN_IF_ERROR(ReadChange(body, change));
  return change;
}

OutgoingMessage EncodeReplicateRequest(const ReplicationHeader& header,
                                       absl::Span<const ByteView> entries,
                                       absl::Span<const uint32_t> asks_position,
                                       std::shared_ptr<const void> owner) {
  ReplicateRequest small;
  *small.mutable_header() = header;
  small.mutable_asks_position()->Add(asks_position.begin(), asks_position.end());
  size_t own_bytes = kMaxOwnBytes + small.ByteSizeLong();
  for (const ByteView& entry : entries) own_bytes += kMaxOwnBytes + CopiedBytes(entry);
  WireEncoder encoder(own_bytes, std::move(owner));
  encoder.PutMessage(small);
  for (const ByteView& entry : entries) encoder.PutBytesField(kEntries, entry);
  return std::move(encoder).Finish();
}

absl::StatusOr<ReplicateRequestView> DecodeReplicateRequest(const ByteView& message) {
  if (message.size() > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("ReplicateRequest has ", message.size(),
                                                   " bytes; the limit is ", kMaxMessageBytes));
  }
  ReplicateRequestView view;
  WireDecoder decoder(message);
  while (!decoder.done()) {
    uint32_t tag;
    size_t size;
    if (!decoder.ReadTag(&tag)) return Malformed("ReplicateRequest");
    if (tag == Tag(kHeader, kBytes)) {
      ByteView header;
      if (!decoder.ReadLength(&size)) return Malformed("ReplicateRequest.header");
      decoder.ReadView(size, &header);
      PAWL_RETURN_IF_ERROR(DecodeSmall(header, view.header));
    } else if (tag == Tag(kEntries, kBytes)) {
      if (view.entries.size() == kMaxEntriesInRequest) {
        return absl::InvalidArgumentError(
            absl::StrCat("ReplicateRequest has more than ", kMaxEntriesInRequest, " entries"));
      }
      if (!decoder.ReadLength(&size)) return Malformed("ReplicateRequest.entries");
      view.entries.emplace_back();
      decoder.ReadView(size, &view.entries.back());
    } else if (tag == Tag(kAsksPosition, kBytes)) {
      ByteView packed;
      if (!decoder.ReadLength(&size)) return Malformed("ReplicateRequest.asks_position");
      decoder.ReadView(size, &packed);
      PAWL_RETURN_IF_ERROR(ReadPositionsAsked(packed, view.asks_position));
    } else if (!decoder.SkipField(tag)) {
      return Malformed("ReplicateRequest");
    }
  }
  return view;
}

OutgoingMessage EncodeInstallSnapshotRequest(const InstallSnapshotRequest& request,
                                             const ByteView& data,
                                             std::shared_ptr<const void> owner) {
  WireEncoder encoder(kMaxOwnBytes + request.ByteSizeLong() + CopiedBytes(data), std::move(owner));
  encoder.PutMessage(request);
  encoder.PutBytesField(kData, data);
  return std::move(encoder).Finish();
}

absl::Status DecodeInstallSnapshotRequest(const ByteView& message, InstallSnapshotRequest& request,
                                          ByteView& data) {
  if (message.size() > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("InstallSnapshotRequest has ", message.size(),
                                                   " bytes; the limit is ", kMaxMessageBytes));
  }
  ByteView others;
  WireDecoder decoder(message);
  while (!decoder.done()) {
    WireDecoder field = decoder;
    uint32_t tag;
    if (!decoder.ReadTag(&tag)) return Malformed("InstallSnapshotRequest");
    if (tag == Tag(kData, kBytes)) {
      size_t size;
      if (!decoder.ReadLength(&size) || !data.empty())
        return Malformed("InstallSnapshotRequest.data");
      decoder.ReadView(size, &data);
      continue;
    }
    if (!decoder.SkipField(tag)) return Malformed("InstallSnapshotRequest");
    field.ReadView(field.left() - decoder.left(), &others);
    if (others.size() > kMaxOtherBytes) return Malformed("InstallSnapshotRequest");
  }
  return DecodeSmall(others, request);
}

}  // namespace pawl
