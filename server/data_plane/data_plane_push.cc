// Pushes: checked, applied partition by partition, and acknowledged once they are committed.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/consistency.h"
#include "server/data_plane/byte_reservation.h"
#include "server/data_plane/data_plane.h"
#include "server/data_plane/gradient_decoder.h"
#include "server/replication/backpressure.h"
#include "server/replication/change.h"

namespace pawl {
namespace {

// Limit for the keys, values and slots of one segment. As a log record, or in a message to a
// backup, the segment and its description must again fit in kMaxMessageBytes.
constexpr size_t kMaxSegmentBytes = kMaxMessageBytes - 4096;

absl::Status CheckContent(const TableSchema& table, const SegmentView& segment,
                          uint32_t partitions) {
  if (IsAssignment(segment)) {
    PAWL_ASSIGN_OR_RETURN(const Assignment assignment, AssignmentOf(segment));
    return table.CheckAssignment(segment.element_type, segment.exponent, assignment,
                                 segment.partition, partitions);
  }
  if (!segment.slots.empty()) return absl::InvalidArgumentError("a gradient has slots");
  return table.CheckGradient(segment.element_type, segment.exponent, segment.keys, segment.values,
                             segment.partition, partitions);
}

// Counts how stale a gradient is that was applied on arrival.
void MeasureStaleness(Replica& replica, const Sender& sender) PAWL_REQUIRES(replica.mu) {
  if (sender.kind != Sender::Kind::kLogicalWorker ||
      IsSync(replica.partition->options().consistency.mode())) {
    return;
  }
  const std::optional<uint64_t> staleness = replica.pull_marks.OnPush(sender.number, sender.step);
  if (staleness.has_value()) replica.update_staleness.Add(*staleness);
}

}  // namespace

struct DataPlane::PushInProgress {
  RequestView request;
  Sender sender;
  std::shared_ptr<const View> view;
  ChangeMemory message;
  // The bytes of the message and of what is decoded to FLOAT32 when it is applied.
  size_t bytes_in_flight = 0;
  // The bytes of its changes in the log.
  size_t log_bytes = 0;
  // While the push waits for a step.
  std::shared_ptr<const ByteReservation> waiting_bytes;
  CallContext context;
  Reply reply;
  // The first segment that is not applied yet.
  size_t next = 0;
  PushResponse response;
  Changes changes;
};

void DataPlane::Push(IncomingMessage message, CallContext context, Reply reply) {
  auto decoded = DecodePushRequest(message.bytes);
  if (!decoded.ok()) return Refuse(Method::kPush, nullptr, decoded.status(), reply);
  auto push = std::make_shared<PushInProgress>();
  push->request = *std::move(decoded);
  push->message = {std::move(message.owner), message.bytes.size(), nullptr};
  push->context = std::move(context);
  push->reply = std::move(reply);
  absl::Status status = CheckPush(*push);
  absl::StatusOr<MonotonicDuration> delay = MonotonicDuration::zero();
  if (status.ok()) {
    delay = ThrottlePush(*push->view, push->request);
    status = delay.status();
  }
  if (!status.ok())
    return Refuse(Method::kPush, &push->request.header, std::move(status), push->reply);
  if (*delay > MonotonicDuration::zero()) {
    return replicator_->After(
        *delay, [this, push = std::move(push)]() mutable { ApplyPush(std::move(push)); });
  }
  ApplyPush(std::move(push));
}

absl::Status DataPlane::CheckPush(PushInProgress& push) {
  const RequestHeader& header = push.request.header;
  PAWL_ASSIGN_OR_RETURN(push.view, Admit(header, push.sender));
  const View& view = *push.view;
  if (header.sender_case() == RequestHeader::SENDER_NOT_SET) {
    return absl::InvalidArgumentError(
        "header.sender is not set: a push needs a logical_worker or a client");
  }
  push.bytes_in_flight = push.message.bytes;
  push.log_bytes = push.message.bytes;
  for (const SegmentView& segment : push.request.segments) {
    push.bytes_in_flight += DecodedBytes(segment);
    push.log_bytes += FloatBytes(segment) - segment.values.size();
  }
  PAWL_RETURN_IF_ERROR(ReserveInFlight(push));
  PAWL_RETURN_IF_ERROR(CheckLogHasRoom(push.log_bytes));
  for (const SegmentView& segment : push.request.segments) {
    PAWL_RETURN_IF_ERROR(Find(view, segment.partition).status());
    if (view.IsStale(segment.partition, header.epoch())) {
      return StaleRouting(
          view, absl::StrCat("routing epoch ", header.epoch(), " is out of date: partition ",
                             segment.partition, " has a later primary"));
    }
    if (const size_t size = segment.keys.size() + FloatBytes(segment) + segment.slots.size();
        size > kMaxSegmentBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a segment of table ", segment.table, " has ", size,
          " bytes of keys, values and slots, as FLOAT32; the limit is ", kMaxSegmentBytes));
    }
    if (segment.effect == SET_LEARNING_RATES) {
      PAWL_ASSIGN_OR_RETURN(const std::vector<TableRate> rates, LearningRatesOf(segment));
      PAWL_RETURN_IF_ERROR(CheckLearningRates(push.sender, rates, [&](uint32_t id) {
        const auto found = view.tables.find(id);
        return found == view.tables.end() ? nullptr : found->second.get();
      }));
      continue;
    }
    const auto table = view.tables.find(segment.table);
    if (table == view.tables.end()) return NoSuchTable(segment.table);
    PAWL_RETURN_IF_ERROR(CheckContent(*table->second, segment, view.options.partitions));
  }
  return absl::OkStatus();
}

absl::Status DataPlane::ReserveInFlight(PushInProgress& push) {
  push.message.reservation =
      ByteReservation::Take(bytes_in_flight_, options_.max_bytes_in_flight, push.bytes_in_flight);
  return push.message.reservation == nullptr ? TooManyBytesInFlight() : absl::OkStatus();
}

absl::Status DataPlane::ReserveToWait(PushInProgress& push) {
  push.waiting_bytes = ByteReservation::Take(
      bytes_waiting_for_step_, options_.max_bytes_waiting_for_step,
      push.message.bytes + push.request.segments.capacity() * sizeof(SegmentView));
  if (push.waiting_bytes == nullptr) return TooManyBytesWait();
  // The log and the streams still hold it for the segments that are applied.
  push.message.reservation = nullptr;
  return absl::OkStatus();
}

absl::StatusOr<MonotonicDuration> DataPlane::ThrottlePush(const View& view,
                                                          const RequestView& request) {
  MonotonicDuration longest = MonotonicDuration::zero();
  for (const SegmentView& segment : request.segments) {
    Replica& replica = *view.replicas[segment.partition];
    if (!replica.brakes.load(std::memory_order_relaxed)) continue;
    MutexLock lock(replica.mu);
    if (!replica.HasDataAsPrimary()) continue;
    const auto delay = replica.ThrottlePush(
        segment.keys.size() + FloatBytes(segment) + segment.slots.size(), clock_.Now());
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

void DataPlane::ApplyPush(std::shared_ptr<PushInProgress> push) {
  PAWL_FAILPOINT("push.apply");
  const std::vector<SegmentView>& segments = push->request.segments;
  absl::StatusOr<bool> applied = true;
  while (push->next < segments.size() && applied.ok() && *applied)
    applied = ApplyNextPartition(*push);
  PAWL_FAILPOINT("push.applied");
  SendChanges();
  WaitingCalls::ResumeReady(std::exchange(push->changes.ready, {}));
  if (!applied.ok())
    return Refuse(Method::kPush, &push->request.header, applied.status(), push->reply);
  if (!*applied) {
    std::vector<std::shared_ptr<Replica>> replicas;
    for (size_t i = push->next; i < segments.size(); ++i) {
      const std::shared_ptr<Replica>& replica = push->view->replicas[segments[i].partition];
      if (replicas.empty() || replicas.back() != replica) replicas.push_back(replica);
    }
    return waiting_.ForStep(
        replicas, /*rank=*/std::nullopt, push->sender.step, push->context,
        /*admit=*/[&] { return ReserveToWait(*push); },
        [this, push](absl::Status status) mutable {
          if (status.ok() && push->message.reservation == nullptr) {
            status = ReserveInFlight(*push);
            push->waiting_bytes = nullptr;
            // The log had room when the push arrived.
            if (status.ok()) status = CheckLogHasRoom(push->log_bytes);
          }
          if (status.ok()) return ApplyPush(std::move(push));
          Refuse(Method::kPush, &push->request.header, std::move(status), push->reply);
        });
  }
  waiting_.ForCommit(push->changes.marks, push->context, [this, push](absl::Status committed) {
    if (!committed.ok())
      return Refuse(Method::kPush, &push->request.header, std::move(committed), push->reply);
    PAWL_FAILPOINT("push.acknowledge");
    push->reply(absl::OkStatus(), EncodeSmall(push->response));
    PAWL_FAILPOINT("push.acknowledged");
  });
}

absl::StatusOr<bool> DataPlane::ApplyNextPartition(PushInProgress& push) {
  const std::vector<SegmentView>& segments = push.request.segments;
  const uint32_t partition = segments[push.next].partition;
  // Decoded before the lock is taken.
  struct Part {
    ChangeView change;
    ChangeMemory memory;
  };
  std::vector<Part> parts;
  for (size_t i = push.next; i < segments.size() && segments[i].partition == partition; ++i) {
    Part& part = parts.emplace_back();
    part.memory = push.message;
    part.change.kind = ChangeView::Kind::kPush;
    part.change.sender = push.sender;
    part.change.segment = DecodeSegment(segments[i], part.memory.owner);
    if (const size_t bytes = DecodedBytes(segments[i]); bytes > 0) part.memory.bytes = bytes;
  }
  const std::shared_ptr<Replica>& replica = push.view->replicas[partition];
  MutexLock lock(replica->mu);
  PAWL_RETURN_IF_ERROR(CheckTakesChanges(*replica, push.request.header.epoch()));
  for (Part& part : parts) {
    const SegmentView& segment = part.change.segment;
    if (segment.effect != SET_LEARNING_RATES &&
        replica->partition->FindTable(segment.table) == nullptr) {
      return NoSuchTable(segment.table);
    }
    PushOutcome outcome = PushOutcome::kAccepted;
    const absl::Status status = Change(
        replica, part.change, part.memory,
        [&](Partition& target) -> absl::Status {
          if (segment.effect == SET_LEARNING_RATES) {
            PAWL_ASSIGN_OR_RETURN(const std::vector<TableRate> rates, LearningRatesOf(segment));
            for (const TableRate& rate : rates) {
              if (target.FindTable(rate.table) == nullptr) return NoSuchTable(rate.table);
            }
            PAWL_ASSIGN_OR_RETURN(outcome,
                                  target.SetLearningRates(push.sender, segment.ordinal, rates));
            return absl::OkStatus();
          }
          if (IsAssignment(segment)) {
            PAWL_ASSIGN_OR_RETURN(const Assignment assignment, AssignmentOf(segment));
            PAWL_ASSIGN_OR_RETURN(
                outcome, target.Assign(push.sender, segment.ordinal, segment.table, assignment));
            return absl::OkStatus();
          }
          PAWL_ASSIGN_OR_RETURN(outcome, target.Push(push.sender, segment.ordinal, segment.table,
                                                     {segment.keys, segment.values,
                                                      part.memory.owner, part.memory.bytes}));
          return absl::OkStatus();
        },
        push.changes);
    if (absl::IsUnavailable(status)) return WithPushback(status);
    PAWL_RETURN_IF_ERROR(status);
    switch (outcome) {
      case PushOutcome::kAccepted:
        if (segment.effect == APPLY_GRADIENT) MeasureStaleness(*replica, push.sender);
        push.response.set_accepted(push.response.accepted() + 1);
        break;
      case PushOutcome::kDuplicate:
        ++replica->pushes_deduplicated;
        push.response.set_deduplicated(push.response.deduplicated() + 1);
        break;
      case PushOutcome::kLate:
        push.response.set_late(push.response.late() + 1);
        break;
      case PushOutcome::kEarly:
        return false;
    }
    ++push.next;
  }
  return true;
}

}  // namespace pawl
