#include "server/scheduler_link.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/rpc/grpc_settings.h"
#include "client_lib/rpc/grpc_status.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

uint64_t RandomNonce() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

void SetDeadline(grpc::ClientContext& context) { context.set_deadline(std::chrono::system_clock::now() + kControlDeadline); }

}  // namespace

SchedulerLink::SchedulerLink(const std::string& scheduler, const Clock& clock)
    : scheduler_(scheduler),
      clock_(clock),
      stub_(Scheduler::NewStub(grpc::CreateCustomChannel(scheduler, grpc::InsecureChannelCredentials(),
                                                         ChannelSettings(ChannelKind::kControl)))),
      process_nonce_(RandomNonce()) {}

SchedulerLink::~SchedulerLink() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  if (registration_.node().empty() || ended_) return;
  GoodbyeRequest request;
  request.set_node(registration_.node());
  request.set_incarnation(registration_.incarnation());
  GoodbyeResponse response;
  grpc::ClientContext context;
  SetDeadline(context);
  const grpc::Status status = stub_->Goodbye(&context, request, &response);
  if (!status.ok()) spdlog::warn("good-bye to the scheduler at {}: {}", scheduler_, status.error_message());
}

absl::StatusOr<RegisterResponse> SchedulerLink::Register(const std::string& address, const std::string& description) {
  RegisterRequest request;
  request.set_role(SERVER_ROLE);
  request.set_address(address);
  request.set_description(description);
  request.set_process_nonce(process_nonce_);
  grpc::ClientContext context;
  SetDeadline(context);
  const absl::Status status = FromGrpcStatus(stub_->Register(&context, request, &registration_), &context);
  if (!status.ok()) return Annotate(status, absl::StrCat("registering with the scheduler at ", scheduler_));
  last_answer_ = clock_.Now();
  return registration_;
}

void SchedulerLink::Start(Events events) {
  events_ = std::move(events);
  thread_ = std::thread([this] { Run(); });
}

void SchedulerLink::Run() {
  const std::chrono::milliseconds interval(registration_.heartbeat_interval_ms());
  for (MonotonicTime next = clock_.Now() + interval; Beat(); next = std::max(next, clock_.Now()) + interval) {
    MutexLock lock(mu_);
    while (!stopping_ && wake_.WaitUntil(mu_, next)) {
    }
    if (stopping_) return;
  }
}

bool SchedulerLink::Beat() {
  HeartbeatRequest request;
  request.set_node(registration_.node());
  request.set_incarnation(registration_.incarnation());
  *request.mutable_server() = events_.counters();
  HeartbeatResponse response;
  grpc::ClientContext context;
  SetDeadline(context);
  absl::Status status = FromGrpcStatus(stub_->Heartbeat(&context, request, &response), &context);
  absl::Status end;
  bool over = true;
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    over = clock_.Now() - last_answer_ > kSchedulerSilence;
    end = absl::UnavailableError(absl::StrCat("the scheduler at ", scheduler_, " has not answered for ",
                                              kSchedulerSilence.count(), " s: ", status.message()));
  } else if (!status.ok()) {
    end = std::move(status);
  } else {
    last_answer_ = clock_.Now();
    switch (response.job_state()) {
      case COMPLETED:
        break;
      case STOPPED:
        end = absl::CancelledError("the job was stopped");
        break;
      case FAILED:
        end = absl::FailedPreconditionError(absl::StrCat("the job has failed: ", response.failure()));
        break;
      default:
        over = false;
        if (response.routing_epoch() > routing_epoch_) FetchRouting();
    }
  }
  if (!over) return true;
  // The job's end is told in answer to a heartbeat: the scheduler waits for a good-bye.
  ended_ = absl::IsUnavailable(end);
  events_.ended(std::move(end));
  return false;
}

void SchedulerLink::FetchRouting() {
  GetRoutingRequest request;
  request.set_newer_than_epoch(routing_epoch_);
  RoutingTable routing;
  grpc::ClientContext context;
  SetDeadline(context);
  const grpc::Status status = stub_->GetRouting(&context, request, &routing);
  if (!status.ok()) {
    spdlog::warn("routing from the scheduler at {}: {}; asked again with the next heartbeat", scheduler_, status.error_message());
    return;
  }
  routing_epoch_ = routing.epoch();
  events_.routing(routing);
}

}  // namespace pawl
