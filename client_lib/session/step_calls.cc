#include "client_lib/session/step_calls.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/call.h"
#include "client_lib/job/consistency.h"
#include "client_lib/rpc/codec.h"

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

class TakeOverCall final : public Call {
 public:
  TakeOverCall(const RequestHeader& header, uint32_t partitions, MonotonicTime deadline,
               absl::AnyInvocable<void(absl::StatusOr<std::vector<uint64_t>>)> done)
      : Call({.method = Method::kTakeOver, .name = "TakeOver", .deadline = deadline}, header),
        clocks_(partitions),
        done_(std::move(done)) {}

  OutgoingMessage Encode(const Message& message, const RequestHeader& header) const override {
    TakeOverRequest request;
    *request.mutable_header() = header;
    for (const SegmentView& segment : message.segments) request.add_partitions(segment.partition);
    return EncodeSmall(request);
  }
  absl::Status TakeAnswer(const Message& message, const IncomingMessage& answer) override {
    TakeOverResponse response;
    PAWL_RETURN_IF_ERROR(DecodeSmall(answer.bytes, response));
    if (response.clocks_size() != static_cast<int>(message.segments.size())) {
      return absl::InternalError(absl::StrCat("the server answered ", response.clocks_size(),
                                              " clocks for ", message.segments.size(),
                                              " partitions"));
    }
    for (size_t i = 0; i < message.segments.size(); ++i) {
      clocks_[message.segments[i].partition] = response.clocks(static_cast<int>(i));
    }
    return absl::OkStatus();
  }
  void Finish(const absl::Status& status) override {
    if (status.ok()) {
      done_(std::move(clocks_));
    } else {
      done_(status);
    }
    done_ = nullptr;
  }

 private:
  // Indexed by partition. Only the answer to the message that names a partition writes its clock.
  std::vector<uint64_t> clocks_;
  absl::AnyInvocable<void(absl::StatusOr<std::vector<uint64_t>>)> done_;
};

}  // namespace

EndStepCall::EndStepCall(const RequestHeader& header, MonotonicTime deadline,
                         absl::AnyInvocable<void(absl::Status)> done)
    : Call({.method = Method::kEndStep, .name = "EndStep", .deadline = deadline}, header),
      done_(std::move(done)) {}

void EndStepCall::Send(Messenger& messenger, absl::Span<const uint32_t> partitions,
                       absl::Span<const uint64_t> segments) {
  segments_.assign(segments.begin(), segments.end());
  SendWithoutKeys(messenger, shared_from_this(), partitions);
}

OutgoingMessage EndStepCall::Encode(const Message& message, const RequestHeader& header) const {
  EndStepRequest request;
  *request.mutable_header() = header;
  for (const SegmentView& segment : message.segments) {
    request.add_partitions(segment.partition);
    if (!segments_.empty()) request.add_segments(segments_[segment.partition]);
  }
  return EncodeSmall(request);
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
  std::vector<uint32_t> all(partitions);
  std::iota(all.begin(), all.end(), 0);
  SendWithoutKeys(messenger,
                  std::make_shared<TakeOverCall>(header, partitions, deadline, std::move(done)),
                  all);
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
