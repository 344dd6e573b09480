// Pulls: they wait for their step without a thread. Rows are copied into the answer; blocks are
// lent.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/consistency.h"
#include "server/data_plane/byte_reservation.h"
#include "server/data_plane/data_plane.h"
#include "server/replication/backpressure.h"

namespace pawl {
namespace {

// REQUIRES: CheckKeys has accepted the keys.
size_t SlotBytes(const TableSchema& table, const ByteView& keys) {
  const size_t count = keys.size() / sizeof(uint64_t);
  if (!table.is_dense()) return count * table.StateFloats(table.MaxRowWidth()) * sizeof(float);
  size_t floats = 0;
  for (const uint64_t key : CopyKeys(keys)) floats += table.StateFloats(table.RowWidth(key));
  return floats * sizeof(float);
}

// Counts how stale the parameters are that a pull of a logical worker reads.
void MeasureStaleness(Replica& replica, const Sender& sender) PAWL_REQUIRES(replica.mu) {
  const Partition& partition = *replica.partition;
  if (IsSync(partition.options().consistency.mode())) return;
  replica.pull_marks.OnPull(sender.number, sender.step);
  // The rank does not train a step that is this far ahead.
  if (sender.step > partition.clock(sender.number) + PullMarks::kPullsAhead) return;
  const uint64_t slowest = partition.min_clock();
  replica.clock_staleness.Add(sender.step > slowest ? sender.step - slowest : 0);
}

}  // namespace

struct DataPlane::PullInProgress {
  RequestView request;
  // Null unless the pull has to wait: one that can be answered at once must not find the limit
  // taken by pulls that may wait for the steps of its sender.
  std::shared_ptr<const ByteReservation> waiting_bytes;
};

absl::Status DataPlane::TooManyBytesWait() const {
  return WithPushback(absl::ResourceExhaustedError(
      absl::StrCat("requests of more than ", options_.max_bytes_waiting_for_step,
                   " bytes already wait for their steps")));
}

void DataPlane::Pull(IncomingMessage message, CallContext context, Reply reply) {
  auto decoded = DecodePullRequest(message.bytes);
  if (!decoded.ok()) return Refuse(Method::kPull, nullptr, decoded.status(), reply);
  auto pull = std::make_shared<PullInProgress>();
  pull->request = *std::move(decoded);
  const RequestHeader& header = pull->request.header;
  Sender sender;
  auto view = Admit(header, sender);
  if (!view.ok()) return Refuse(Method::kPull, &header, view.status(), reply);
  std::vector<PullBytes> bytes_of;
  std::vector<std::shared_ptr<Replica>> replicas;
  size_t total_bytes = 0;
  for (const SegmentView& segment : pull->request.segments) {
    PullBytes bytes;
    auto replica = Find(**view, segment.partition);
    absl::Status status = replica.status();
    const auto table = (*view)->tables.find(segment.table);
    if (status.ok() && table == (*view)->tables.end()) status = NoSuchTable(segment.table);
    if (status.ok())
      status = table->second->CheckKeys(segment.keys, segment.partition,
                                        (*view)->options.partitions, bytes.values);
    if (status.ok() && segment.with_slots) bytes.slots = SlotBytes(*table->second, segment.keys);
    total_bytes += bytes.values + bytes.slots;
    if (status.ok() && total_bytes > kMaxMessageBytes) {
      status = absl::InvalidArgumentError(
          absl::StrCat("the pulled values and slots take more than ", kMaxMessageBytes,
                       " bytes; pull fewer keys at a time"));
    }
    if (!status.ok()) return Refuse(Method::kPull, &header, std::move(status), reply);
    if (replicas.empty() || replicas.back() != *replica) replicas.push_back(*std::move(replica));
    bytes_of.push_back(bytes);
  }
  const bool waits_for_step = header.sender_case() == RequestHeader::kLogicalWorker;
  const size_t waiting_bytes = message.bytes.size() +
                               pull->request.segments.capacity() * sizeof(SegmentView) +
                               bytes_of.capacity() * sizeof(PullBytes);
  // Reserve the answer's bytes only when it is built: waiting pulls must not keep out the pushes
  // that they wait for.
  auto act = [this, view = *view, sender, waits_for_step, pull, total_bytes,
              bytes_of = std::move(bytes_of), owner = message.owner,
              reply = std::move(reply)](absl::Status status) mutable {
    if (!status.ok()) return reply(std::move(status), OutgoingMessage());
    auto reservation =
        ByteReservation::Take(bytes_in_flight_, options_.max_bytes_in_flight, total_bytes);
    if (reservation == nullptr) return reply(TooManyBytesInFlight(), OutgoingMessage());
    auto answer = AnswerPull(*view, waits_for_step ? &sender : nullptr, pull->request, bytes_of,
                             std::move(reservation));
    if (!answer.ok()) return Refuse(Method::kPull, &pull->request.header, answer.status(), reply);
    reply(absl::OkStatus(), *std::move(answer));
  };
  if (!waits_for_step) return act(absl::OkStatus());
  const auto admit = [&] {
    pull->waiting_bytes = ByteReservation::Take(bytes_waiting_for_step_,
                                                options_.max_bytes_waiting_for_step, waiting_bytes);
    return pull->waiting_bytes == nullptr ? TooManyBytesWait() : absl::OkStatus();
  };
  waiting_.ForStep(replicas, sender.number, sender.step, std::move(context), admit, std::move(act));
}

absl::StatusOr<OutgoingMessage> DataPlane::AnswerPull(
    const View& view, const Sender* sender, const RequestView& request,
    const std::vector<PullBytes>& bytes_of, std::shared_ptr<const ByteReservation> reservation) {
  // Rows and slots are copied, because many are small; blocks are lent.
  struct Owned {
    std::shared_ptr<const ByteReservation> reservation;  // destroyed last
    std::unique_ptr<char[]> rows;
    std::vector<BlockLoan> blocks;
  };
  const auto is_dense = [&](const SegmentView& segment) {
    return view.tables.find(segment.table)->second->is_dense();
  };
  size_t row_bytes = 0;
  for (size_t i = 0; i < request.segments.size(); ++i) {
    row_bytes += (is_dense(request.segments[i]) ? 0 : bytes_of[i].values) + bytes_of[i].slots;
  }
  const auto owned = std::make_shared<Owned>();
  owned->reservation = std::move(reservation);
  owned->rows = std::make_unique_for_overwrite<char[]>(row_bytes);
  std::vector<PullResultView> results(request.segments.size());
  char* out = owned->rows.get();
  for (size_t i = 0; i < request.segments.size(); ++i) {
    const SegmentView& segment = request.segments[i];
    const bool lends = is_dense(segment);
    const size_t lent_before = owned->blocks.size();
    {
      Replica& replica = *view.replicas[segment.partition];
      MutexLock lock(replica.mu);
      PAWL_RETURN_IF_ERROR(CheckServes(replica, request.header.epoch()));
      PAWL_RETURN_IF_ERROR(CheckLease(replica));
      if (replica.partition->FindTable(segment.table) == nullptr) return NoSuchTable(segment.table);
      if (sender != nullptr) {
        replica.staleness_max = std::max(
            replica.staleness_max, replica.partition->Staleness(sender->number, sender->step));
        replica.pulls_beyond_bound += replica.partition->ExceedsBound(sender->step);
        const bool is_counted = i > 0 && request.segments[i - 1].partition == segment.partition;
        if (!is_counted) MeasureStaleness(replica, *sender);
      }
      replica.keys_pulled += segment.keys.size() / sizeof(uint64_t);
      if (lends) {
        replica.partition->Lend(segment.table, segment.keys, owned->blocks);
      } else {
        replica.partition->Pull(segment.table, segment.keys, out);
        results[i].values.Append(out, bytes_of[i].values);
        out += bytes_of[i].values;
      }
      if (segment.with_slots) {
        replica.partition->PullSlots(segment.table, segment.keys, out);
        results[i].slots.Append(out, bytes_of[i].slots);
        out += bytes_of[i].slots;
      }
    }
    if (lends) {
      for (size_t k = lent_before; k < owned->blocks.size(); ++k) {
        results[i].values.Append(owned->blocks[k].data(), owned->blocks[k].size() * sizeof(float));
      }
    }
  }
  return EncodePullResponse(results, owned);
}

}  // namespace pawl
