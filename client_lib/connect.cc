// Client::Connect over gRPC. Apart from client.cc, so that tests can build the client without gRPC.
#include <utility>

#include "absl/synchronization/mutex.h"
#include "client_lib/base/limits.h"
#include "client_lib/client.h"
#include "client_lib/process/malloc_tuning.h"
#include "client_lib/rpc/grpc/grpc_settings.h"
#include "client_lib/rpc/grpc/grpc_transport.h"
#include "client_lib/session/messenger.h"

namespace pawl {

static_assert(3 * kMaxMessagesPerServer + kMaxHostedRanks <= kMaxStreamsPerConnection,
              "room for the messages of three steps and for one EndStep per rank");

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(ClientOptions options) {
  if (options.scheduler.empty()) {
    return absl::InvalidArgumentError(
        "ClientOptions::scheduler is empty; set it to the scheduler's host:port");
  }
  if (options.tune_process) {
    KeepFreedMemory();
    // Debian's Abseil maintains a global graph of all locks, which gRPC takes too, behind a single
    // lock.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  }
  auto control = std::make_shared<GrpcControlChannel>(options.scheduler);
  auto link = std::make_shared<GrpcControlChannel>(options.scheduler);
  return Connect(std::move(options), std::make_shared<GrpcTransport>(), std::move(control),
                 std::move(link));
}

}  // namespace pawl
