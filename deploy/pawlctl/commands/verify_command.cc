#include "deploy/pawlctl/commands/verify_command.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "deploy/pawlctl/commands/connection_flags.h"
#include "deploy/pawlctl/commands/replica_comparison.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/scheduler_connection.h"
#include "deploy/pawlctl/server_connection.h"

namespace pawl {
namespace {

// Between two rounds.
constexpr std::chrono::milliseconds kRoundPause{100};

class Verification {
 public:
  explicit Verification(const ConnectionOptions& options)
      : security_(*options.security),
        scheduler_(options.scheduler, security_),
        deadline_(Clock::Real().Now() + options.timeout) {}

  // Asks all servers until every partition is decided, the time is up or a process refuses to
  // answer. Fails if no round compared anything.
  absl::Status Run() {
    absl::Status last_error;
    while (!comparison_.decided()) {
      if (const absl::Status status = Round(); !status.ok()) last_error = status;
      if (absl::IsPermissionDenied(last_error) || absl::IsUnauthenticated(last_error)) break;
      if (TimeLeft() <= kRoundPause) break;
      if (!comparison_.decided()) std::this_thread::sleep_for(kRoundPause);
    }
    if (!comparison_.empty()) return absl::OkStatus();
    return last_error.ok() ? absl::UnavailableError("the routing changed in every round; try again")
                           : last_error;
  }

  const ReplicaComparison& comparison() const { return comparison_; }

 private:
  MonotonicDuration TimeLeft() const { return deadline_ - Clock::Real().Now(); }

  absl::Status Round() {
    PAWL_ASSIGN_OR_RETURN(const RoutingTable routing, scheduler_.GetRouting(TimeLeft()));
    // In parallel: a server that is asked later has applied more pushes.
    std::vector<std::future<absl::StatusOr<FingerprintResponse>>> asked;
    for (const ServerAddress& server : routing.servers()) {
      asked.push_back(
          std::async(std::launch::async, [this, &routing, &connection = ConnectionTo(server)] {
            FingerprintRequest request;
            request.set_job_id(routing.job_id());
            request.set_routing_epoch(routing.epoch());
            return connection.Fingerprint(request, TimeLeft());
          }));
    }
    std::vector<FingerprintResponse> answers;
    absl::Status error;
    for (auto& each : asked) {
      absl::StatusOr<FingerprintResponse> answer = each.get();
      if (!answer.ok()) {
        error = answer.status();
      } else {
        answers.push_back(*std::move(answer));
      }
    }
    PAWL_RETURN_IF_ERROR(error);
    comparison_.Add(routing, answers);
    return absl::OkStatus();
  }

  ServerConnection& ConnectionTo(const ServerAddress& server) {
    std::unique_ptr<ServerConnection>& connection = connections_[server.address()];
    if (connection == nullptr) connection = std::make_unique<ServerConnection>(server, security_);
    return *connection;
  }

  const Security& security_;
  SchedulerConnection scheduler_;
  const MonotonicTime deadline_;
  // By address.
  std::map<std::string, std::unique_ptr<ServerConnection>> connections_;
  ReplicaComparison comparison_;
};

int Verify(const ConnectionOptions& options) {
  Console console;
  Verification verification(options);
  if (const absl::Status status = verification.Run(); !status.ok()) return ReportError(status);
  const ReplicaComparison& comparison = verification.comparison();
  console.Text(options.json ? comparison.Json().dump(2) : comparison.Text());
  if (!comparison.decided()) {
    console.Error(
        "not all partitions could be compared in time; try a larger --timeout, or a moment with "
        "fewer pushes");
  }
  return comparison.all_equal() ? kExitDone : kExitFailed;
}

}  // namespace

void AddVerifyCommand(CommandLine& line) {
  const auto options = std::make_shared<ConnectionOptions>();
  CLI::App& command = line.AddCommand(
      "verify", "compare the replicas of each partition",
      "Compares the replicas of each partition, bit for bit, at the same point of their logs.\n"
      "While the job trains, replicas are at different points for moments: verify asks until it\n"
      "has seen each partition equal once, for --timeout at most. Servers read all of their\n"
      "parameters for it. It exits with 0 if all are equal, with 1 if some differ or could not\n"
      "be compared.\n\n"
      "  pawlctl verify --scheduler=10.0.0.1:7000 --timeout=1m",
      [options] { return Verify(*options); });
  AddConnectionFlags(command, *options);
}

}  // namespace pawl
