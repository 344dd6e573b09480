#include "deploy/pawlctl/scheduler_connection.h"

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/grpc/grpc_conversions.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "grpcpp/create_channel.h"

namespace pawl {
namespace {

// Tells a refusal from an unreachable scheduler.
constexpr std::chrono::seconds kProbeTimeout{1};
// A probe may fail with the connection of the call before it. The next one has a new connection.
constexpr int kMaxProbes = 3;

// The words in this file are those of gRPC 1.51 and OpenSSL.
bool Mentions(absl::string_view message, std::initializer_list<absl::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](absl::string_view word) { return absl::StrContains(message, word); });
}

// Whether gRPC, not the scheduler, has written the message of an UNAVAILABLE call.
bool IsOfConnection(absl::string_view message) {
  return Mentions(message, {"Socket closed", "Connection reset", "Broken pipe", "GOAWAY",
                            "keepalive watchdog timeout", "failed to connect", "SSL"});
}

// `message`: of gRPC, for a call that has not been answered.
absl::string_view WhatToCheck(absl::string_view message) {
  if (Mentions(message, {"Custom verification check failed"}))
    return "is that the address of this job's scheduler, and --tls_dir of the same job?";
  if (Mentions(message, {"missing selected ALPN property"}))
    return "is that the address of its metrics (--metrics_listen) instead of --listen?";
  if (Mentions(message, {"Socket closed", "Connection reset", "SSL"})) {
    return "it may have ended, or one side has refused the TLS handshake: do both use TLS, do both "
           "certificates come from an authority in the other's ca.pem, are they valid and not "
           "revoked, and does the scheduler accept tokens, if this is one? Its log says more "
           "(`Handshake failed`)";
  }
  return "is its job still running, and is the address right (--scheduler or PAWL_SCHEDULER; "
         "pawlctl "
         "run writes it to scheduler.addr in its --out)?";
}

}  // namespace

bool HasEnded(JobState state) { return state == COMPLETED || state == FAILED || state == STOPPED; }

bool SilenceLimit::Allows(const absl::Status& outcome, MonotonicTime now) {
  if (outcome.ok()) heard_at_ = now;
  // A scheduler that ends cancels its calls.
  const bool is_silent = absl::IsUnavailable(outcome) || absl::IsDeadlineExceeded(outcome) ||
                         absl::IsCancelled(outcome);
  return outcome.ok() || (is_silent && heard_at_.has_value() && now - *heard_at_ <= max_silence_);
}

SchedulerConnection::SchedulerConnection(const std::string& address, const Security& security)
    : address_(address),
      stub_(Scheduler::NewStub(grpc::CreateCustomChannel(ChannelTarget(address),
                                                         security.To(RoleSet(PeerRole::kScheduler)),
                                                         ChannelSettings(ChannelKind::kControl)))) {
}

absl::StatusOr<GetStatusResponse> SchedulerConnection::GetStatus(MonotonicDuration timeout) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  GetStatusResponse response;
  const grpc::Status status = stub_->GetStatus(&context, GetStatusRequest(), &response);
  if (!status.ok()) return ToStatus(status);
  return response;
}

absl::StatusOr<ListTablesResponse> SchedulerConnection::ListTables(MonotonicDuration timeout) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  ListTablesResponse response;
  const grpc::Status status = stub_->ListTables(&context, ListTablesRequest(), &response);
  if (!status.ok()) return ToStatus(status);
  return response;
}

absl::StatusOr<RoutingTable> SchedulerConnection::GetRouting(MonotonicDuration timeout) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  RoutingTable response;
  const grpc::Status status = stub_->GetRouting(&context, GetRoutingRequest(), &response);
  if (!status.ok()) return ToStatus(status);
  return response;
}

absl::Status SchedulerConnection::AwaitEnd(MonotonicDuration timeout) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  // No routing is newer, so the scheduler answers when the job ends.
  GetRoutingRequest request;
  request.set_newer_than_epoch(std::numeric_limits<uint64_t>::max());
  RoutingTable response;
  const grpc::Status status = stub_->GetRouting(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED)
    return absl::DeadlineExceededError(status.error_message());
  return ToStatus(status);
}

absl::StatusOr<CheckpointResponse> SchedulerConnection::Checkpoint(const std::string& dir,
                                                                   MonotonicDuration timeout) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  CheckpointRequest request;
  request.set_dir(dir);
  CheckpointResponse response;
  const grpc::Status status = stub_->Checkpoint(&context, request, &response);
  if (!status.ok()) return ToStatusOfChange(status);
  return response;
}

absl::StatusOr<ScaleResponse> SchedulerConnection::Scale(const ScaleRequest& request,
                                                         MonotonicDuration timeout) {
  ScaleResponse response;
  PAWL_RETURN_IF_ERROR(Change(timeout, [&](grpc::ClientContext& context) {
    return stub_->Scale(&context, request, &response);
  }));
  return response;
}

absl::Status SchedulerConnection::Drain(const DrainRequest& request, MonotonicDuration timeout) {
  DrainResponse response;
  return Change(timeout, [&](grpc::ClientContext& context) {
    return stub_->Drain(&context, request, &response);
  });
}

absl::StatusOr<ReleaseRetainedResponse> SchedulerConnection::ReleaseRetained(
    const ReleaseRetainedRequest& request, MonotonicDuration timeout) {
  ReleaseRetainedResponse response;
  PAWL_RETURN_IF_ERROR(Change(timeout, [&](grpc::ClientContext& context) {
    return stub_->ReleaseRetained(&context, request, &response);
  }));
  return response;
}

absl::StatusOr<ListEventsResponse> SchedulerConnection::ListEvents(uint64_t after,
                                                                   MonotonicDuration timeout) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  ListEventsRequest request;
  request.set_after(after);
  ListEventsResponse response;
  const grpc::Status status = stub_->ListEvents(&context, request, &response);
  if (!status.ok()) return ToStatus(status);
  return response;
}

absl::Status SchedulerConnection::StopJob(const std::string& reason, MonotonicDuration timeout) {
  StopJobRequest request;
  request.set_reason(reason);
  StopJobResponse response;
  return Change(timeout, [&](grpc::ClientContext& context) {
    return stub_->StopJob(&context, request, &response);
  });
}

absl::Status SchedulerConnection::Change(
    MonotonicDuration timeout, absl::FunctionRef<grpc::Status(grpc::ClientContext&)> send) {
  const MonotonicTime deadline = Clock::Real().Now() + timeout;
  const auto try_once = [&] {
    grpc::ClientContext context;
    SetDeadline(context, deadline - Clock::Real().Now());
    return send(context);
  };
  const grpc::Status first = try_once();
  // Either a refusal, or the connection has broken and the scheduler may not have got the call.
  if (first.error_code() == grpc::StatusCode::UNAVAILABLE && Answers())
    return ToStatusOfChange(try_once());
  return ToStatus(first);
}

bool SchedulerConnection::Answers() {
  const MonotonicTime deadline = Clock::Real().Now() + kProbeTimeout;
  grpc::Status status;
  for (int probe = 0; probe < kMaxProbes; ++probe) {
    grpc::ClientContext context;
    SetDeadline(context, deadline - Clock::Real().Now());
    context.set_wait_for_ready(true);
    GetStatusResponse response;
    status = stub_->GetStatus(&context, GetStatusRequest(), &response);
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) break;
  }
  return status.ok();
}

absl::Status SchedulerConnection::ToStatusOfChange(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE ||
      IsOfConnection(status.error_message()) || !Answers())
    return ToStatus(status);
  return absl::FailedPreconditionError(
      absl::StrCat("the scheduler at ", address_, ": ", status.error_message()));
}

absl::Status SchedulerConnection::ToStatus(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  const absl::Status answer = FromGrpcStatus(status);
  const std::string message(answer.message());
  if (absl::IsUnavailable(answer) || absl::IsDeadlineExceeded(answer)) {
    return absl::Status(answer.code(),
                        absl::StrCat("the scheduler at ", address_, " does not answer (", message,
                                     "); ", WhatToCheck(message)));
  }
  return absl::Status(answer.code(), absl::StrCat("the scheduler at ", address_, ": ", message));
}

}  // namespace pawl
