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

class EndStepCall final : public Call {
 public:
  EndStepCall(const RequestHeader& header, std::vector<uint64_t> segments, MonotonicTime deadline,
              absl::AnyInvocable<void(absl::Status)> done)
      : Call({.method = Method::kEndStep, .name = "EndStep", .deadline = deadline}, header),
        segments_(std::move(segments)),
        done_(std::move(done)) {}

  OutgoingMessage Encode(const Message& message, const RequestHeader& header) const override {
    EndStepRequest request;
    *request.mutable_header() = header;
    request.mutable_partitions()->Assign(message.partitions.begin(), message.partitions.end());
    if (!segments_.empty()) {
      for (const uint32_t p : message.partitions) request.add_segments(segments_[p]);
    }
    return EncodeSmall(request);
  }
  absl::Status TakeAnswer(const Message&, const IncomingMessage&) override {
    return absl::OkStatus();
  }
  void Finish(const absl::Status& status) override {
    done_(status);
    done_ = nullptr;
  }

 private:
  const std::vector<uint64_t> segments_;
  absl::AnyInvocable<void(absl::Status)> done_;
};

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
    request.mutable_partitions()->Assign(message.partitions.begin(), message.partitions.end());
    return EncodeSmall(request);
  }
  absl::Status TakeAnswer(const Message& message, const IncomingMessage& answer) override {
    TakeOverResponse response;
    PAWL_RETURN_IF_ERROR(DecodeSmall(answer.bytes, response));
    if (response.clocks_size() != static_cast<int>(message.partitions.size())) {
      return absl::InternalError(absl::StrCat("the server answered ", response.clocks_size(),
                                              " clocks for ", message.partitions.size(),
                                              " partitions"));
    }
    for (size_t i = 0; i < message.partitions.size(); ++i) {
      clocks_[message.partitions[i]] = response.clocks(static_cast<int>(i));
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

void Send(Messenger& messenger, std::shared_ptr<Call> call, std::vector<uint32_t> partitions) {
  auto message = std::make_shared<Message>();
  message->call = std::move(call);
  message->partitions = std::move(partitions);
  messenger.Send(std::move(message));
}

}  // namespace

void EndStep(Messenger& messenger, const RequestHeader& header, std::vector<uint32_t> partitions,
             std::vector<uint64_t> segments, MonotonicTime deadline,
             absl::AnyInvocable<void(absl::Status)> done) {
  Send(messenger,
       std::make_shared<EndStepCall>(header, std::move(segments), deadline, std::move(done)),
       std::move(partitions));
}

void TakeOver(Messenger& messenger, const RequestHeader& header, uint32_t partitions,
              MonotonicTime deadline,
              absl::AnyInvocable<void(absl::StatusOr<std::vector<uint64_t>>)> done) {
  std::vector<uint32_t> all(partitions);
  std::iota(all.begin(), all.end(), 0);
  Send(messenger, std::make_shared<TakeOverCall>(header, partitions, deadline, std::move(done)),
       std::move(all));
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
