#include "client_lib/session/step_calls.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/call.h"
#include "client_lib/job/consistency.h"
#include "client_lib/rpc/codec.h"
#include "google/protobuf/repeated_field.h"

namespace pawl {
namespace {

// A message to `partitions` that has no keys and values.
void SendWithoutKeys(Messenger& messenger, std::shared_ptr<Call> call,
                     absl::Span<const uint32_t> partitions) {
  auto message = std::make_shared<Message>();
  message->call = std::move(call);
  message->segments.reserve(partitions.size());
  for (const uint32_t partition : partitions)
    message->segments.emplace_back().partition = partition;
  messenger.Send(std::move(message));
}

// `request` with the header and the partitions of a message.
template <typename Request>
OutgoingMessage EncodeTo(const Message& message, const RequestHeader& header, Request request) {
  *request.mutable_header() = header;
  for (const SegmentView& segment : message.segments) request.add_partitions(segment.partition);
  return EncodeSmall(request);
}

// Gets a value from every partition.
template <typename Request, typename Response, typename Value>
class GatherCall final : public Call {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<std::vector<Value>>)>;
  // The field of the response that has the values; `noun` names them in errors.
  struct Field {
    const google::protobuf::RepeatedField<Value>& (Response::*values)() const;
    absl::string_view noun;
  };

  GatherCall(const Terms& terms, const RequestHeader& header, Request request, Field field,
             uint32_t partitions, Done done)
      : Call(terms, header),
        request_(std::move(request)),
        field_(field),
        values_(partitions),
        done_(std::move(done)) {}

  OutgoingMessage Encode(const Message& message, const RequestHeader& header) const override {
    return EncodeTo(message, header, request_);
  }
  absl::Status TakeAnswer(const Message& message, const IncomingMessage& answer) override {
    Response response;
    PAWL_RETURN_IF_ERROR(DecodeSmall(answer.bytes, response));
    const google::protobuf::RepeatedField<Value>& values = (response.*field_.values)();
    if (values.size() != static_cast<int>(message.segments.size())) {
      return absl::InternalError(absl::StrCat("the server answered ", values.size(), " ",
                                              field_.noun, " for ", message.segments.size(),
                                              " partitions"));
    }
    for (size_t i = 0; i < message.segments.size(); ++i)
      values_[message.segments[i].partition] = values.Get(static_cast<int>(i));
    return absl::OkStatus();
  }
  void Finish(const absl::Status& status) override {
    if (status.ok()) {
      done_(std::move(values_));
    } else {
      done_(status);
    }
    done_ = nullptr;
  }

 private:
  const Request request_;
  const Field field_;
  // Indexed by partition. Only the answer to the message that names a partition writes its value.
  std::vector<Value> values_;
  Done done_;
};

using TakeOverCall = GatherCall<TakeOverRequest, TakeOverResponse, uint64_t>;
using AwaitAllEndsCall = GatherCall<EndStepRequest, EndStepResponse, double>;

std::vector<uint32_t> AllPartitions(uint32_t partitions) {
  std::vector<uint32_t> all(partitions);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

EndStepCall::EndStepCall(const RequestHeader& header, MonotonicTime deadline,
                         absl::AnyInvocable<void(absl::Status)> done)
    : EndStepCall("EndStep", EndStepRequest(), header, deadline, std::move(done)) {}

EndStepCall::EndStepCall(absl::string_view name, EndStepRequest request,
                         const RequestHeader& header, MonotonicTime deadline,
                         absl::AnyInvocable<void(absl::Status)> done)
    : Call({.method = Method::kEndStep, .name = name, .deadline = deadline}, header),
      request_(std::move(request)),
      done_(std::move(done)) {}

void EndStepCall::Send(Messenger& messenger, absl::Span<const uint32_t> partitions,
                       absl::Span<const uint64_t> segments) {
  segments_.assign(segments.begin(), segments.end());
  SendWithoutKeys(messenger, shared_from_this(), partitions);
}

OutgoingMessage EndStepCall::Encode(const Message& message, const RequestHeader& header) const {
  EndStepRequest request = request_;
  if (!segments_.empty()) {
    for (const SegmentView& segment : message.segments)
      request.add_segments(segments_[segment.partition]);
  }
  return EncodeTo(message, header, std::move(request));
}

absl::Status EndStepCall::TakeAnswer(const Message&, const IncomingMessage&) {
  return absl::OkStatus();
}

void EndStepCall::Finish(const absl::Status& status) {
  done_(status);
  done_ = nullptr;
}

void TakeOver(Messenger& messenger, const RequestHeader& header, uint32_t partitions,
              MonotonicTime deadline,
              absl::AnyInvocable<void(absl::StatusOr<std::vector<uint64_t>>)> done) {
  const Call::Terms terms = {.method = Method::kTakeOver, .name = "TakeOver", .deadline = deadline};
  SendWithoutKeys(
      messenger,
      std::make_shared<TakeOverCall>(terms, header, TakeOverRequest(),
                                     TakeOverCall::Field{&TakeOverResponse::clocks, "clocks"},
                                     partitions, std::move(done)),
      AllPartitions(partitions));
}

float ClipScale(absl::Span<const double> squares, float clip_global_norm) {
  double sum = 0;
  for (const double of_partition : squares) sum += of_partition;
  const double norm = std::sqrt(sum);
  if (!(norm > clip_global_norm)) return 1.0f;
  // Servers refuse 0, which would turn an infinite gradient into no number.
  return std::max(static_cast<float>(clip_global_norm / norm), std::numeric_limits<float>::min());
}

void CloseStep(Messenger& messenger, const RequestHeader& header, uint32_t partitions,
               float clip_global_norm, MonotonicTime deadline,
               absl::AnyInvocable<void(absl::Status)> done) {
  EndStepRequest await;
  await.set_phase(EndStepRequest::AWAIT_ALL);
  const Call::Terms terms = {.method = Method::kEndStep,
                             .name = "the wait for the end of the step",
                             .deadline = deadline,
                             .may_wait = true};
  auto close = [messenger = messenger.shared_from_this(), header, partitions, clip_global_norm,
                deadline,
                done = std::move(done)](absl::StatusOr<std::vector<double>> squares) mutable {
    if (!squares.ok()) return done(squares.status());
    EndStepRequest request;
    request.set_phase(EndStepRequest::CLOSE);
    request.set_scale(ClipScale(*squares, clip_global_norm));
    std::make_shared<EndStepCall>("the close of the step", std::move(request), header, deadline,
                                  std::move(done))
        ->Send(*messenger, AllPartitions(partitions), {});
  };
  SendWithoutKeys(messenger,
                  std::make_shared<AwaitAllEndsCall>(
                      terms, header, std::move(await),
                      AwaitAllEndsCall::Field{&EndStepResponse::squares, "sums of squares"},
                      partitions, std::move(close)),
                  AllPartitions(partitions));
}

void StepClosings::Begin(uint32_t rank) {
  MutexLock lock(mu_);
  ++closing_[rank];
}

void StepClosings::End(uint32_t rank, const absl::Status& status, bool client_has_failed) {
  const bool has_successor = absl::IsAborted(status) && !client_has_failed;
  const absl::Status result = has_successor ? absl::OkStatus() : status;
  std::vector<Waiter> ready;
  {
    MutexLock lock(mu_);
    const auto at = closing_.find(rank);
    const bool is_last = --at->second == 0;
    if (is_last) closing_.erase(at);
    if (result.ok()) {
      failed_.erase(rank);
    } else {
      failed_.insert_or_assign(rank, result);
    }
    for (auto it = waiters_.begin(); it != waiters_.end();) {
      Waiter& waiter = it->second;
      if (!waiter.ranks.contains(rank)) {
        ++it;
        continue;
      }
      if (is_last) waiter.ranks.erase(rank);
      if (result.ok() && !waiter.ranks.empty()) {
        ++it;
        continue;
      }
      ready.push_back(std::move(waiter));
      it = waiters_.erase(it);
    }
  }
  for (Waiter& waiter : ready) {
    if (waiter.timer.has_value()) deadlines_->Remove(*waiter.timer);
    waiter.done(result);
  }
}

void StepClosings::WhenClosed(absl::Span<const uint32_t> ranks, MonotonicTime deadline,
                              absl::AnyInvocable<void(absl::Status)> done) {
  absl::Status failure;
  {
    MutexLock lock(mu_);
    Waiter waiter;
    for (const auto& [rank, status] : failed_) {
      // A successor that closes the step now decides.
      if (closing_.contains(rank)) continue;
      if (ranks.empty() || absl::c_linear_search(ranks, rank)) failure = status;
    }
    if (ranks.empty()) {
      for (const auto& [rank, count] : closing_) waiter.ranks.insert(rank);
    } else {
      for (const uint32_t rank : ranks) {
        if (closing_.contains(rank)) waiter.ranks.insert(rank);
      }
    }
    if (failure.ok() && !waiter.ranks.empty()) {
      const uint64_t id = next_id_++;
      // Under the lock, so that the thread that takes the waiter finds the timer.
      waiter.timer =
          deadlines_->Add(deadline, [self = shared_from_this(), id] { self->Expire(id); });
      waiter.done = std::move(done);
      waiters_.emplace(id, std::move(waiter));
      return;
    }
  }
  done(failure);
}

void StepClosings::Expire(uint64_t id) {
  std::optional<Waiter> expired;
  {
    MutexLock lock(mu_);
    const auto it = waiters_.find(id);
    if (it == waiters_.end()) return;
    expired = std::move(it->second);
    waiters_.erase(it);
  }
  expired->done(absl::DeadlineExceededError(absl::StrCat(
      "the last step of logical workers ", absl::StrJoin(expired->ranks, ", "),
      " did not close in time, because others have not ended it; `pawlctl nodes` shows absent "
      "nodes")));
}

absl::StatusOr<Resumption> ResumptionAt(absl::Span<const uint64_t> clocks, ConsistencyMode mode) {
  const auto [lowest, highest] = std::minmax_element(clocks.begin(), clocks.end());
  if (!IsSync(mode)) return Resumption{.step = *lowest, .behind = {}};
  if (*highest - *lowest > 1) {
    return absl::DataLossError(absl::StrCat("its clock is ", *lowest, " in partition ",
                                            lowest - clocks.begin(), " and ", *highest,
                                            " in partition ", highest - clocks.begin(),
                                            "; a worker's clocks differ by at most one step"));
  }
  Resumption resumption{.step = *highest, .behind = {}};
  for (size_t p = 0; p < clocks.size(); ++p) {
    if (clocks[p] < *highest) resumption.behind.push_back(static_cast<uint32_t>(p));
  }
  return resumption;
}

}  // namespace pawl
