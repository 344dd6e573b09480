#include "deploy/pawlctl/commands/status_commands.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "deploy/pawlctl/commands/connection_flags.h"
#include "deploy/pawlctl/commands/report.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/health_check.h"
#include "deploy/pawlctl/scheduler_connection.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

// A scheduler that has placed nothing yet has no routing table. Do not wait long for one.
constexpr std::chrono::milliseconds kRoutingTimeout{500};

int PrintAnswer(bool json, const nlohmann::ordered_json& value, const std::string& text) {
  Console().Text(json ? JsonText(value) : text);
  return kExitDone;
}

struct StatusAndRouting {
  GetStatusResponse status;
  std::optional<RoutingTable> routing;

  const RoutingTable* table() const { return routing.has_value() ? &*routing : nullptr; }
};

absl::StatusOr<StatusAndRouting> Ask(const ConnectionOptions& options) {
  SchedulerConnection scheduler(options.scheduler, *options.security);
  absl::StatusOr<GetStatusResponse> status = scheduler.GetStatus(options.timeout);
  if (!status.ok()) return status.status();
  auto routing =
      scheduler.GetRouting(std::min<MonotonicDuration>(options.timeout, kRoutingTimeout));
  return StatusAndRouting{*std::move(status),
                          routing.ok() ? std::optional(*std::move(routing)) : std::nullopt};
}

int PrintStatus(const ConnectionOptions& options) {
  const absl::StatusOr<StatusAndRouting> answer = Ask(options);
  if (!answer.ok()) return ReportError(answer.status());
  return PrintAnswer(options.json, StatusJson(answer->status, answer->table()),
                     StatusText(answer->status, answer->table()));
}

int PrintNodes(const ConnectionOptions& options) {
  const absl::StatusOr<StatusAndRouting> answer = Ask(options);
  if (!answer.ok()) return ReportError(answer.status());
  return PrintAnswer(options.json, NodesJson(answer->status, answer->table()),
                     NodesText(answer->status, answer->table()));
}

int PrintTables(const ConnectionOptions& options) {
  const absl::StatusOr<ListTablesResponse> tables =
      SchedulerConnection(options.scheduler, *options.security).ListTables(options.timeout);
  if (!tables.ok()) return ReportError(tables.status());
  return PrintAnswer(options.json, TablesJson(*tables), TablesText(*tables));
}

struct HealthOptions {
  std::string address;
  ConnectionOptions connection;
};

int PrintHealth(const HealthOptions& options) {
  const absl::StatusOr<bool> serving =
      IsServing(options.address, *options.connection.security, options.connection.timeout);
  if (!serving.ok()) return ReportError(serving.status());
  Console().Line(*serving ? "SERVING" : "NOT_SERVING");
  return *serving ? kExitDone : kExitFailed;
}

void AddQuestion(CommandLine& line, const std::string& name, const std::string& summary,
                 const std::string& help, int (*print)(const ConnectionOptions&)) {
  const auto options = std::make_shared<ConnectionOptions>();
  AddConnectionFlags(
      line.AddCommand(name, summary, help, [options, print] { return print(*options); }), *options);
}

void AddHealthCommand(CommandLine& line) {
  const auto options = std::make_shared<HealthOptions>();
  CLI::App& command = line.AddCommand(
      "health", "whether a scheduler, server or worker serves",
      "Asks one process for its health (grpc.health.v1.Health). A scheduler is SERVING unless\n"
      "it still reads the checkpoint that it restores; a server while it has a routing table\n"
      "and does not drain; a worker while it trains. For the probes of service managers: with\n"
      "TLS those of Kubernetes cannot ask by themselves. Exits with 0 if it is SERVING and with\n"
      "1 if not.\n\n"
      "  pawlctl health --address=127.0.0.1:7001 --tls_dir=/etc/pawl/tls/server",
      [options] { return PrintHealth(*options); });
  AddFlag(command, "--address", "HOST:PORT", options->address,
          "Where the process listens (a worker: its --listen).", {.required = true});
  AddTlsFlags(command, options->connection.security_options);
  AddTimeoutFlag(command, options->connection);
  SetCheck(command,
           [options] { return OpenSecurity(options->connection, "address", options->address); });
}

}  // namespace

void AddStatusCommands(CommandLine& line) {
  AddQuestion(
      line, "status", "progress, loss and counters of a running job",
      "Shows state, replicas, steps, samples, loss, the latest evaluation and the servers'\n"
      "counters.\n"
      "\n"
      "  pawlctl status --scheduler=10.0.0.1:7000\n"
      "  PAWL_SCHEDULER=$(cat out/flights/scheduler.addr) pawlctl status --json",
      &PrintStatus);
  AddQuestion(line, "nodes", "servers, workers and clients of the job",
              "Shows for each node how long it has been silent. Shows for a server in how many\n"
              "partitions it is the primary, an in-sync backup or a learner (a replica that is\n"
              "catching up), and for a worker what it has done.\n"
              "\n"
              "  pawlctl nodes --scheduler=10.0.0.1:7000",
              &PrintNodes);
  AddQuestion(line, "tables", "the job's tables",
              "Shows each table with its kind, its shape and its optimizer.\n"
              "\n"
              "  pawlctl tables --scheduler=10.0.0.1:7000",
              &PrintTables);
  AddHealthCommand(line);
}

}  // namespace pawl
