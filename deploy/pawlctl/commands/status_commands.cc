#include "deploy/pawlctl/commands/status_commands.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "deploy/pawlctl/commands/report.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/exit_code.h"
#include "deploy/pawlctl/scheduler_connection.h"

namespace pawl {
namespace {

int Refuse(const absl::Status& status) {
  Console().Error(status.message());
  return ExitCodeOf(status);
}

// A scheduler that has placed nothing yet has no routing to give; that is not worth waiting for.
constexpr std::chrono::milliseconds kRoutingTimeout{500};

std::optional<RoutingTable> RoutingOf(SchedulerConnection& scheduler,
                                      const ConnectionOptions& options) {
  auto routing =
      scheduler.GetRouting(std::min<MonotonicDuration>(options.timeout, kRoutingTimeout));
  return routing.ok() ? std::optional(*std::move(routing)) : std::nullopt;
}

int Print(bool json, const nlohmann::ordered_json& value, absl::string_view text) {
  Console console;
  if (json) {
    console.Line(value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else {
    // Line adds the last line's end.
    console.Line(text.empty() || text.back() != '\n' ? text : text.substr(0, text.size() - 1));
  }
  return kExitDone;
}

}  // namespace

int StatusCommand(const ConnectionOptions& options) {
  SchedulerConnection scheduler(options.scheduler);
  const absl::StatusOr<GetStatusResponse> status = scheduler.GetStatus(options.timeout);
  if (!status.ok()) return Refuse(status.status());
  const std::optional<RoutingTable> routing = RoutingOf(scheduler, options);
  const RoutingTable* const table = routing.has_value() ? &*routing : nullptr;
  return Print(options.json, StatusJson(*status, table), StatusText(*status, table));
}

int NodesCommand(const ConnectionOptions& options) {
  SchedulerConnection scheduler(options.scheduler);
  const absl::StatusOr<GetStatusResponse> status = scheduler.GetStatus(options.timeout);
  if (!status.ok()) return Refuse(status.status());
  const std::optional<RoutingTable> routing = RoutingOf(scheduler, options);
  const RoutingTable* const table = routing.has_value() ? &*routing : nullptr;
  return Print(options.json, NodesJson(*status, table), NodesText(*status, table));
}

int TablesCommand(const ConnectionOptions& options) {
  const absl::StatusOr<ListTablesResponse> tables =
      SchedulerConnection(options.scheduler).ListTables(options.timeout);
  if (!tables.ok()) return Refuse(tables.status());
  return Print(options.json, TablesJson(*tables), TablesText(*tables));
}

int StopCommand(const ConnectionOptions& options, const std::string& reason) {
  const absl::Status status =
      SchedulerConnection(options.scheduler).StopJob(reason, options.timeout);
  if (!status.ok()) return Refuse(status);
  return Print(options.json, {{"stopped", true}}, "the job is being stopped");
}

}  // namespace pawl
