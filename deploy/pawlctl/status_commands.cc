#include "deploy/pawlctl/status_commands.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/exit_code.h"
#include "deploy/pawlctl/report.h"
#include "deploy/pawlctl/scheduler_connection.h"

namespace pawl {
namespace {

int Refuse(const absl::Status& status) {
  Console().Error(status.message());
  return ExitCodeOf(status);
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
  const absl::StatusOr<GetStatusResponse> status = SchedulerConnection(options.scheduler).GetStatus(options.timeout);
  if (!status.ok()) return Refuse(status.status());
  return Print(options.json, StatusJson(*status), StatusText(*status));
}

int NodesCommand(const ConnectionOptions& options) {
  const absl::StatusOr<GetStatusResponse> status = SchedulerConnection(options.scheduler).GetStatus(options.timeout);
  if (!status.ok()) return Refuse(status.status());
  return Print(options.json, NodesJson(*status), NodesText(*status));
}

int TablesCommand(const ConnectionOptions& options) {
  const absl::StatusOr<ListTablesResponse> tables = SchedulerConnection(options.scheduler).ListTables(options.timeout);
  if (!tables.ok()) return Refuse(tables.status());
  return Print(options.json, TablesJson(*tables), TablesText(*tables));
}

int StopCommand(const ConnectionOptions& options, const std::string& reason) {
  const absl::Status status = SchedulerConnection(options.scheduler).StopJob(reason, options.timeout);
  if (!status.ok()) return Refuse(status);
  return Print(options.json, {{"stopped", true}}, "the job is being stopped");
}

}  // namespace pawl
