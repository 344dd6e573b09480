#include "client_lib/rpc/grpc/grpc_conversions.h"

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/strings/cord.h"
#include "absl/types/optional.h"
#include "client_lib/base/bounded_text.h"
#include "client_lib/rpc/transport.h"

namespace pawl {
namespace {

constexpr char kPushbackMetadata[] = "grpc-retry-pushback-ms";
// How gRPC reports an HTTP/2 stream that ends with ENHANCE_YOUR_CALM.
constexpr char kStreamCancelled[] = "Received RST_STREAM with error code 11";

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status, grpc::ServerContextBase* context) {
  if (status.ok()) return grpc::Status::OK;
  std::string details;
  if (const absl::optional<absl::Cord> routing = status.GetPayload(kRoutingPayloadUrl)) {
    details = std::string(*routing);
  } else if (const absl::optional<absl::Cord> challenge =
                 status.GetPayload(kRebuildChallengePayloadUrl)) {
    details = std::string(*challenge);
  }
  if (const absl::optional<absl::Cord> pushback = status.GetPayload(kPushbackPayloadUrl);
      pushback && context != nullptr) {
    context->AddTrailingMetadata(kPushbackMetadata, std::string(*pushback));
  }
  // absl and gRPC number the codes alike.
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      BoundedText(status.message(), kMaxStatusMessageBytes), details);
}

absl::Status FromGrpcStatus(const grpc::Status& status, const grpc::ClientContext* context) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = status.error_message();
  // The peer's gRPC has cancelled the call because its memory is used up, as when the connection is
  // lost.
  if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
      message.rfind(kStreamCancelled, 0) == 0) {
    return absl::UnavailableError(message);
  }
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()),
                      BoundedText(message, kMaxStatusMessageBytes));
  if (result.code() == absl::StatusCode::kFailedPrecondition && !status.error_details().empty()) {
    result.SetPayload(kRoutingPayloadUrl, absl::Cord(status.error_details()));
  }
  if (result.code() == absl::StatusCode::kUnavailable && !status.error_details().empty()) {
    result.SetPayload(kRebuildChallengePayloadUrl, absl::Cord(status.error_details()));
  }
  if (context != nullptr) {
    const auto& metadata = context->GetServerTrailingMetadata();
    if (const auto pushback = metadata.find(kPushbackMetadata); pushback != metadata.end()) {
      result.SetPayload(
          kPushbackPayloadUrl,
          absl::Cord(absl::string_view(pushback->second.data(), pushback->second.size())));
    }
  }
  return result;
}

gpr_timespec FromNow(MonotonicDuration delay) {
  const int64_t nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(delay).count();
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(nanoseconds, GPR_TIMESPAN));
}

void SetDeadline(grpc::ClientContext& context, MonotonicDuration timeout) {
  context.set_deadline(FromNow(timeout));
}

}  // namespace pawl
