// Ends of logical workers' steps, and takeovers of logical workers by a new incarnation.
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/data_plane/data_plane.h"

namespace pawl {
namespace {

// OK if `named` has no partition twice, so that the work of a request is bounded by the job.
// Whether the partitions exist is checked elsewhere.
absl::Status CheckEachOnce(absl::Span<const uint32_t> named, size_t partitions) {
  if (named.size() > partitions) {
    return absl::InvalidArgumentError(absl::StrCat("partitions has ", named.size(),
                                                   " entries; the job has ", partitions,
                                                   ", and each may be named once"));
  }
  // As clients send them.
  if (absl::c_adjacent_find(named, std::greater_equal<>()) == named.end()) return absl::OkStatus();
  std::vector<bool> seen(partitions);
  for (const uint32_t partition : named) {
    if (partition >= partitions) continue;
    if (seen[partition]) {
      return absl::InvalidArgumentError(
          absl::StrCat("partitions names partition ", partition, " twice"));
    }
    seen[partition] = true;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<DataPlane::StepEnd>> DataPlane::StepEnds(
    const View& view, const EndStepRequest& request) const {
  if (request.segments_size() > 0 && request.partitions_size() != request.segments_size()) {
    return absl::InvalidArgumentError(absl::StrCat("segments has ", request.segments_size(),
                                                   " entries for ", request.partitions_size(),
                                                   " partitions; each needs one"));
  }
  std::vector<StepEnd> ends;
  if (request.partitions().empty()) {
    // Use one routing only: with another, a partition between two primaries could be missed.
    if (request.header().epoch() != view.epoch) {
      return StaleRouting(
          view, absl::StrCat("routing epoch ", request.header().epoch(), " is out of date"));
    }
    for (const auto& replica : view.replicas) {
      if (replica == nullptr) continue;
      MutexLock lock(replica->mu);
      if (replica->HasDataAsPrimary()) ends.push_back({replica, std::nullopt});
    }
    return ends;
  }
  PAWL_RETURN_IF_ERROR(CheckEachOnce(request.partitions(), view.replicas.size()));
  ends.reserve(request.partitions_size());
  for (int i = 0; i < request.partitions_size(); ++i) {
    PAWL_ASSIGN_OR_RETURN(auto replica, Find(view, request.partitions(i)));
    std::optional<uint64_t> segments;
    if (request.segments_size() > 0) segments = request.segments(i);
    ends.push_back({std::move(replica), segments});
  }
  return ends;
}

void DataPlane::EndStep(IncomingMessage message, CallContext context, Reply reply) {
  EndStepRequest request;
  if (absl::Status status = DecodeSmall(message.bytes, request); !status.ok()) {
    return Refuse(Method::kEndStep, nullptr, std::move(status), reply);
  }
  const RequestHeader& header = request.header();
  Sender sender;
  auto view = Admit(header, sender);
  if (!view.ok()) return Refuse(Method::kEndStep, &header, view.status(), reply);
  if (sender.kind != Sender::Kind::kLogicalWorker) {
    return Refuse(Method::kEndStep, &header,
                  absl::InvalidArgumentError(
                      "header.logical_worker is not set: only a logical worker ends steps"),
                  reply);
  }
  auto ends = StepEnds(**view, request);
  absl::Status status = ends.status();
  if (status.ok() && !EndStepRequest::Phase_IsValid(request.phase())) {
    status = absl::InvalidArgumentError(
        absl::StrCat("phase is ", static_cast<int>(request.phase()), ", which is unknown"));
  }
  if (status.ok() && request.phase() == EndStepRequest::AWAIT_ALL)
    return AwaitAllEnds(header, sender, *std::move(ends), std::move(context), std::move(reply));
  std::optional<float> close_scale;
  if (request.phase() == EndStepRequest::CLOSE) close_scale = request.scale();
  if (status.ok()) status = CheckLogHasRoom(message.bytes.size());
  bool visits_gradients = false;
  if (status.ok()) {
    for (const StepEnd& end : *ends) {
      MutexLock lock(end.replica->mu);
      status = CheckTakesChanges(*end.replica, header.epoch());
      if (!status.ok()) break;
      const Partition& partition = *end.replica->partition;
      status = close_scale.has_value() ? partition.CheckCloseStep(sender, *close_scale)
                                       : partition.CheckEndStep(sender, end.segments);
      if (!status.ok()) break;
      visits_gradients =
          visits_gradients || (close_scale.has_value() ? sender.step == partition.version()
                                                       : partition.WouldCompleteStep(sender));
    }
  }
  if (!status.ok()) return Refuse(Method::kEndStep, &header, std::move(status), reply);
  const size_t partitions = ends->size();
  // Only the last logical worker's end and the first close are expensive: they visit all gradients
  // of the step.
  ChangeMany(
      visits_gradients ? options_.helpers : nullptr, partitions,
      [this, sender, close_scale, epoch = header.epoch(), ends = *std::move(ends)](
          size_t i, Changes& changes) -> absl::Status {
        const StepEnd& end = ends[i];
        ChangeView change;
        change.kind = ChangeView::Kind::kEndStep;
        change.sender = sender;
        change.close_scale = close_scale;
        if (!close_scale.has_value()) change.segments = end.segments;
        MutexLock lock(end.replica->mu);
        PAWL_RETURN_IF_ERROR(CheckTakesChanges(*end.replica, epoch));
        const uint64_t clock = end.replica->partition->clock(sender.number);
        const absl::Status status = Change(
            end.replica, change, {},
            [&](Partition& partition) {
              return close_scale.has_value() ? partition.CloseStep(sender, *close_scale)
                                             : partition.EndStep(sender, end.segments);
            },
            changes);
        if (end.replica->partition->clock(sender.number) > clock)
          end.replica->pull_marks.OnStepEnded();
        return status;
      },
      std::move(context),
      [this, header, partitions, reply = std::move(reply)](absl::Status committed) mutable {
        if (!committed.ok()) return Refuse(Method::kEndStep, &header, std::move(committed), reply);
        EndStepResponse response;
        response.set_partitions(static_cast<uint32_t>(partitions));
        reply(absl::OkStatus(), EncodeSmall(response));
      });
}

absl::Status DataPlane::CheckGivesSquares(Replica& replica, const Sender& sender,
                                          uint64_t epoch) const {
  PAWL_RETURN_IF_ERROR(CheckServes(replica, epoch));
  PAWL_RETURN_IF_ERROR(CheckLease(replica));
  return replica.partition->CheckStepSquares(sender);
}

void DataPlane::AwaitAllEnds(const RequestHeader& header, const Sender& sender,
                             std::vector<StepEnd> ends, CallContext context, Reply reply) {
  std::vector<std::shared_ptr<Replica>> replicas;
  for (StepEnd& end : ends) {
    {
      MutexLock lock(end.replica->mu);
      absl::Status status = CheckGivesSquares(*end.replica, sender, header.epoch());
      if (!status.ok()) return Refuse(Method::kEndStep, &header, std::move(status), reply);
    }
    replicas.push_back(std::move(end.replica));
  }
  auto answer = [this, header, sender, replicas,
                 reply = std::move(reply)](absl::Status committed) mutable {
    EndStepResponse response;
    for (const auto& replica : replicas) {
      if (!committed.ok()) break;
      MutexLock lock(replica->mu);
      committed = CheckGivesSquares(*replica, sender, header.epoch());
      if (committed.ok()) response.add_squares(replica->partition->StepSquares(header.step()));
    }
    if (!committed.ok()) return Refuse(Method::kEndStep, &header, std::move(committed), reply);
    response.set_partitions(static_cast<uint32_t>(replicas.size()));
    reply(absl::OkStatus(), EncodeSmall(response));
  };
  // The sender then closes the step, which a new primary would refuse if it lacked an end.
  auto await_commit = [this, header, sender, replicas, context,
                       answer = std::move(answer)](absl::Status ended) mutable {
    std::vector<ChangeMark> ends;
    for (const auto& replica : replicas) {
      if (!ended.ok()) break;
      MutexLock lock(replica->mu);
      ended = CheckServes(*replica, header.epoch());
      // A partition that has moved away and back may lack an end that was not committed.
      if (ended.ok() && !replica->partition->HaveAllEnded(sender.step))
        ended = absl::UnavailableError("the partition has moved; ask again");
      if (ended.ok()) ends.push_back(MarkOf(replica));
    }
    if (!ended.ok()) return answer(std::move(ended));
    waiting_.ForCommit(ends, std::move(context), std::move(answer));
  };
  waiting_.ForAllEnds(replicas, sender.step, std::move(context), std::move(await_commit));
}

void DataPlane::TakeOver(IncomingMessage message, CallContext context, Reply reply) {
  TakeOverRequest request;
  if (absl::Status status = DecodeSmall(message.bytes, request); !status.ok()) {
    return Refuse(Method::kTakeOver, nullptr, std::move(status), reply);
  }
  const RequestHeader& header = request.header();
  Sender sender;
  auto view = Admit(header, sender);
  if (!view.ok()) return Refuse(Method::kTakeOver, &header, view.status(), reply);
  if (sender.kind != Sender::Kind::kLogicalWorker) {
    return Refuse(Method::kTakeOver, &header,
                  absl::InvalidArgumentError(
                      "header.logical_worker is not set: it names the logical worker to take over"),
                  reply);
  }
  absl::Status named = CheckEachOnce(request.partitions(), (*view)->replicas.size());
  if (!named.ok()) return Refuse(Method::kTakeOver, &header, std::move(named), reply);
  if (absl::Status room = CheckLogHasRoom(message.bytes.size()); !room.ok()) {
    return Refuse(Method::kTakeOver, &header, std::move(room), reply);
  }
  const auto clocks = std::make_shared<std::vector<uint64_t>>(request.partitions_size());
  const auto one = [this, view = *view, sender, request, clocks](size_t i,
                                                                 Changes& changes) -> absl::Status {
    PAWL_ASSIGN_OR_RETURN(const auto replica, Find(*view, request.partitions(static_cast<int>(i))));
    ChangeView change;
    change.kind = ChangeView::Kind::kTakeOver;
    change.sender = sender;
    MutexLock lock(replica->mu);
    PAWL_RETURN_IF_ERROR(CheckTakesChanges(*replica, request.header().epoch()));
    // After the releases, the relevant clocks may be ahead of the worker's own.
    return Change(
        replica, change, {},
        [&](Partition& partition) {
          const auto clock = partition.TakeOver(sender.number, sender.incarnation);
          if (clock.ok()) (*clocks)[i] = *clock;
          return clock.status();
        },
        changes);
  };
  ChangeMany(nullptr, clocks->size(), one, std::move(context),
             [this, header, clocks, reply = std::move(reply)](absl::Status committed) mutable {
               if (!committed.ok())
                 return Refuse(Method::kTakeOver, &header, std::move(committed), reply);
               TakeOverResponse response;
               response.mutable_clocks()->Add(clocks->begin(), clocks->end());
               reply(absl::OkStatus(), EncodeSmall(response));
             });
}

}  // namespace pawl
