// Where the steps of logical workers end, and where the life of a new host begins.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "server/data_plane.h"
#include "server/replication/change.h"

namespace pawl {

absl::StatusOr<std::vector<DataPlane::StepEnd>> DataPlane::StepEnds(const View& view, const EndStepRequest& request) const {
  if (request.segments_size() > 0 && request.partitions_size() != request.segments_size()) {
    return absl::InvalidArgumentError(absl::StrCat("segments has ", request.segments_size(), " entries for ",
                                                   request.partitions_size(), " partitions; each needs one"));
  }
  std::vector<StepEnd> ends;
  if (request.partitions().empty()) {
    // Of one routing only: by another one a partition could be missed between two primaries.
    if (request.header().epoch() != view.epoch) {
      return StaleRouting(view, absl::StrCat("routing epoch ", request.header().epoch(), " is old"));
    }
    for (const auto& replica : view.replicas) {
      if (replica == nullptr) continue;
      MutexLock lock(replica->mu);
      if (replica->IsPrimary()) ends.push_back({replica, std::nullopt});
    }
    return ends;
  }
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
                  absl::InvalidArgumentError("header.logical_worker is not set: only a logical worker ends steps"), reply);
  }
  auto ends = StepEnds(**view, request);
  absl::Status status = ends.status();
  if (status.ok()) status = CheckLogHasRoom(message.bytes.size());
  if (status.ok()) {
    for (const StepEnd& end : *ends) {
      MutexLock lock(end.replica->mu);
      status = CheckServes(*end.replica, header.epoch());
      if (status.ok()) status = end.replica->partition->CheckEndStep(sender, end.segments);
      if (!status.ok()) break;
    }
  }
  std::vector<std::shared_ptr<WaitingCall>> ready;
  std::vector<ChangeMark> marks;
  if (status.ok()) {
    for (const StepEnd& end : *ends) {
      MutexLock lock(end.replica->mu);
      status = CheckServes(*end.replica, header.epoch());
      if (!status.ok()) break;
      Partition& partition = *end.replica->partition;
      const uint64_t before = partition.log_index();
      status = partition.EndStep(sender, end.segments);
      if (!status.ok()) break;
      if (partition.log_index() != before) {
        ChangeView change;
        change.kind = ChangeView::Kind::kEndStep;
        change.sender = HeaderOf(sender);
        change.segments = end.segments;
        Record(*end.replica, std::move(change), nullptr);
        TakeCutIfDue(end.replica);
      }
      marks.push_back(MarkOf(end.replica));
      end.replica->TakeReady(ready);
    }
  }
  if (replicator_ != nullptr) replicator_->PumpLanes();
  if (status.ok()) {
    waiting_.ForCommit(marks, std::move(context),
                       [this, header, partitions = marks.size(), reply = std::move(reply)](absl::Status committed) mutable {
                         if (!committed.ok()) return Refuse(Method::kEndStep, &header, std::move(committed), reply);
                         EndStepResponse response;
                         response.set_partitions(static_cast<uint32_t>(partitions));
                         reply(absl::OkStatus(), EncodeSmall(response));
                       });
  } else {
    Refuse(Method::kEndStep, &header, std::move(status), reply);
  }
  WaitingCalls::GoOn(ready);
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
                  absl::InvalidArgumentError("header.logical_worker is not set: say whose life begins"), reply);
  }
  TakeOverResponse response;
  std::vector<std::shared_ptr<WaitingCall>> ready;
  std::vector<ChangeMark> marks;
  absl::Status status = CheckLogHasRoom(message.bytes.size());
  for (const uint32_t p : request.partitions()) {
    if (!status.ok()) break;
    auto replica = Find(**view, p);
    status = replica.status();
    if (!status.ok()) break;
    MutexLock lock((*replica)->mu);
    status = CheckServes(**replica, header.epoch());
    if (!status.ok()) break;
    Partition& partition = *(*replica)->partition;
    const uint64_t before = partition.log_index();
    const auto clock = partition.TakeOver(sender.number, sender.incarnation);
    status = clock.status();
    if (!status.ok()) break;
    response.add_clocks(*clock);
    if (partition.log_index() != before) {
      ChangeView change;
      change.kind = ChangeView::Kind::kTakeOver;
      change.sender = HeaderOf(sender);
      Record(**replica, std::move(change), nullptr);
      // After all were released, the clocks that count may be further than they were.
      TakeCutIfDue(*replica);
      (*replica)->TakeReady(ready);
    }
    marks.push_back(MarkOf(*replica));
  }
  if (replicator_ != nullptr) replicator_->PumpLanes();
  WaitingCalls::GoOn(ready);
  if (!status.ok()) return Refuse(Method::kTakeOver, &header, std::move(status), reply);
  waiting_.ForCommit(
      marks, std::move(context),
      [this, header, response = std::move(response), reply = std::move(reply)](absl::Status committed) mutable {
        if (!committed.ok()) return Refuse(Method::kTakeOver, &header, std::move(committed), reply);
        reply(absl::OkStatus(), EncodeSmall(response));
      });
}

}  // namespace pawl
