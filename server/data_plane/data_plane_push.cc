// Pushes: checked as a whole, applied, and acknowledged once they are committed.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/status_macros.h"
#include "server/data_plane/byte_reservation.h"
#include "server/data_plane/data_plane.h"
#include "server/data_plane/gradient_decoder.h"
#include "server/replication/backpressure.h"

namespace pawl {
namespace {

// Limit for the keys and values of one segment. As a log record, or in a message to a backup, the
// segment and its description must again fit in kMaxMessageBytes.
constexpr size_t kMaxSegmentBytes = kMaxMessageBytes - 4096;

// The memory of the message and of everything decoded from it.
size_t BytesInFlight(const IncomingMessage& message, const RequestView& request) {
  size_t bytes = message.bytes.size();
  for (const SegmentView& segment : request.segments) bytes += DecodedBytes(segment);
  return bytes;
}

// The approximate size of its changes in the log: that of the message in FLOAT32.
size_t BytesOfChanges(const IncomingMessage& message, const RequestView& request) {
  size_t bytes = message.bytes.size();
  for (const SegmentView& segment : request.segments)
    bytes += FloatBytes(segment) - segment.values.size();
  return bytes;
}

}  // namespace

void DataPlane::Push(IncomingMessage message, CallContext context, Reply reply) {
  auto decoded = DecodePushRequest(message.bytes);
  if (!decoded.ok()) return Refuse(Method::kPush, nullptr, decoded.status(), reply);
  auto request = std::make_shared<RequestView>(*std::move(decoded));
  const RequestHeader& header = request->header;
  Sender sender;
  auto view = Admit(header, sender);
  if (!view.ok()) return Refuse(Method::kPush, &header, view.status(), reply);
  if (header.sender_case() == RequestHeader::SENDER_NOT_SET) {
    return Refuse(Method::kPush, &header,
                  absl::InvalidArgumentError(
                      "header.sender is not set: a push needs a logical_worker or a client"),
                  reply);
  }
  // Also covers what is decoded when the push's turn has come, so that nothing can fail then.
  const auto reservation = ByteReservation::Take(bytes_in_flight_, options_.max_bytes_in_flight,
                                                 BytesInFlight(message, *request));
  if (reservation == nullptr) {
    return reply(TooManyBytesInFlight(), OutgoingMessage());
  }
  if (absl::Status room = CheckLogHasRoom(BytesOfChanges(message, *request)); !room.ok()) {
    return reply(std::move(room), OutgoingMessage());
  }
  std::vector<std::shared_ptr<Replica>> replicas;
  for (const SegmentView& segment : request->segments) {
    auto replica = Find(**view, segment.partition);
    absl::Status status = replica.status();
    if (const size_t size = segment.keys.size() + FloatBytes(segment); size > kMaxSegmentBytes) {
      status = absl::InvalidArgumentError(
          absl::StrCat("a segment of table ", segment.table, " has ", size,
                       " bytes of keys and values, as FLOAT32; the limit is ", kMaxSegmentBytes));
    }
    if (status.ok()) {
      if (replicas.empty() || replicas.back() != *replica) replicas.push_back(*std::move(replica));
      const auto table = (*view)->tables.find(segment.table);
      status = table == (*view)->tables.end()
                   ? NoSuchTable(segment.table)
                   : table->second->CheckGradient(segment.element_type, segment.exponent,
                                                  segment.keys, segment.values, segment.partition,
                                                  (*view)->options.partitions);
    }
    if (!status.ok()) return Refuse(Method::kPush, &header, std::move(status), reply);
  }
  auto act = [this, view = *view, sender, request, reservation, context,
              owner = std::move(message.owner), message_bytes = message.bytes.size(),
              reply = std::move(reply)](absl::Status status) mutable {
    if (!status.ok()) return Refuse(Method::kPush, &request->header, std::move(status), reply);
    Changes changes;
    PAWL_FAILPOINT("push.apply");
    auto response = ApplyPush(*view, sender, *request, owner, message_bytes, reservation, changes);
    PAWL_FAILPOINT("push.applied");
    SendChanges();
    WaitingCalls::ResumeReady(changes.ready);
    if (!response.ok()) return Refuse(Method::kPush, &request->header, response.status(), reply);
    waiting_.ForCommit(changes.marks, std::move(context),
                       [this, request, reservation, response = *std::move(response),
                        reply = std::move(reply)](absl::Status committed) mutable {
                         if (!committed.ok())
                           return Refuse(Method::kPush, &request->header, std::move(committed),
                                         reply);
                         PAWL_FAILPOINT("push.acknowledge");
                         reply(absl::OkStatus(), EncodeSmall(response));
                         PAWL_FAILPOINT("push.acknowledged");
                       });
  };
  const auto delay = ThrottlePush(**view, *request);
  if (!delay.ok()) return act(delay.status());
  if (*delay > MonotonicDuration::zero()) {
    replicator_->After(*delay, [this, view = *view, sender, request, replicas = std::move(replicas),
                                context = std::move(context), act = std::move(act)]() mutable {
      TakeTurn(*view, sender, *request, replicas, std::move(context), std::move(act));
    });
    return;
  }
  TakeTurn(**view, sender, *request, replicas, std::move(context), std::move(act));
}

absl::StatusOr<MonotonicDuration> DataPlane::ThrottlePush(const View& view,
                                                          const RequestView& request) {
  MonotonicDuration longest = MonotonicDuration::zero();
  for (const SegmentView& segment : request.segments) {
    Replica& replica = *view.replicas[segment.partition];
    if (!replica.brakes.load(std::memory_order_relaxed)) continue;
    MutexLock lock(replica.mu);
    if (!replica.HasDataAsPrimary()) continue;
    const auto delay =
        replica.ThrottlePush(segment.keys.size() + FloatBytes(segment), clock_.Now());
    if (!delay.has_value()) {
      ++pushes_refused_;
      return WithPushback(absl::ResourceExhaustedError(
          absl::StrCat("partition ", segment.partition,
                       " receives pushes faster than its new replica can follow")));
    }
    longest = std::max(longest, *delay);
  }
  pushes_delayed_ += longest > MonotonicDuration::zero();
  return longest;
}

void DataPlane::TakeTurn(const View& view, const Sender& sender, const RequestView& request,
                         const std::vector<std::shared_ptr<Replica>>& replicas, CallContext context,
                         absl::AnyInvocable<void(absl::Status)> act) {
  const bool waits_for_step =
      sender.kind == Sender::Kind::kLogicalWorker && view.options.consistency.mode() == SYNC;
  if (!waits_for_step) return act(absl::OkStatus());
  // A sender that is out of turn or superseded gets its error at once, without a wait.
  if (absl::Status status = CheckPush(view, sender, request); !status.ok())
    return act(std::move(status));
  waiting_.ForStep(replicas, sender.step, std::move(context), std::move(act));
}

absl::Status DataPlane::CheckPush(const View& view, const Sender& sender,
                                  const RequestView& request) const {
  absl::flat_hash_map<uint32_t, PushesAhead> ahead;
  for (const SegmentView& segment : request.segments) {
    Replica& replica = *view.replicas[segment.partition];
    PushesAhead& before = ahead[segment.partition];
    MutexLock lock(replica.mu);
    PAWL_RETURN_IF_ERROR(CheckTakesChanges(replica, request.header.epoch()));
    if (replica.partition->FindTable(segment.table) == nullptr) return NoSuchTable(segment.table);
    const size_t value_bytes = FloatBytes(segment);
    const absl::Status status = replica.partition->CheckPush(sender, segment.ordinal, segment.table,
                                                             segment.keys, value_bytes, before);
    if (absl::IsUnavailable(status)) return WithPushback(status);
    PAWL_RETURN_IF_ERROR(status);
    before.keys += segment.keys.size() / sizeof(uint64_t);
    before.bytes += segment.keys.size() + value_bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<PushResponse> DataPlane::ApplyPush(
    const View& view, const Sender& sender, const RequestView& request,
    const std::shared_ptr<const void>& message, size_t message_bytes,
    const std::shared_ptr<const ByteReservation>& reservation, Changes& changes) {
  // Check everything first: a refused push changes nothing. (Another request or a new routing can
  // still split it in between; a retry with the same push ids then completes it.)
  PAWL_RETURN_IF_ERROR(CheckPush(view, sender, request));
  PushResponse response;
  for (const SegmentView& pushed : request.segments) {
    std::shared_ptr<const void> owner = message;
    ChangeView change;
    change.kind = ChangeView::Kind::kPush;
    change.sender = sender;
    change.segment = DecodeSegment(pushed, owner);
    const SegmentView& segment = change.segment;
    const size_t decoded_bytes = DecodedBytes(pushed);
    const size_t owner_bytes = decoded_bytes > 0 ? decoded_bytes : message_bytes;
    const std::shared_ptr<Replica>& replica = view.replicas[segment.partition];
    MutexLock lock(replica->mu);
    PAWL_RETURN_IF_ERROR(CheckTakesChanges(*replica, request.header.epoch()));
    PushOutcome outcome = PushOutcome::kAccepted;
    const absl::Status status = Change(
        replica, change, {owner, owner_bytes, reservation},
        [&](Partition& partition) -> absl::Status {
          PAWL_ASSIGN_OR_RETURN(
              outcome, partition.Push(sender, segment.ordinal, segment.table,
                                      Gradient{segment.keys, segment.values, owner, owner_bytes}));
          return absl::OkStatus();
        },
        changes);
    if (absl::IsUnavailable(status)) return WithPushback(status);
    PAWL_RETURN_IF_ERROR(status);
    switch (outcome) {
      case PushOutcome::kAccepted:
        response.set_accepted(response.accepted() + 1);
        break;
      case PushOutcome::kDuplicate:
        ++replica->pushes_deduplicated;
        response.set_deduplicated(response.deduplicated() + 1);
        break;
      case PushOutcome::kLate:
        response.set_late(response.late() + 1);
        break;
    }
  }
  return response;
}

}  // namespace pawl
