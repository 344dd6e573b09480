#include "deploy/pawlctl/commands/table_commands.h"

#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/client.h"
#include "deploy/pawlctl/commands/report.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/exit_code.h"
#include "deploy/pawlctl/scheduler_connection.h"
#include "deploy/pawlctl/server_connection.h"
#include "nlohmann/json.hpp"
#include "scheduler/job/digest.h"

namespace pawl {
namespace {

using Json = nlohmann::ordered_json;

int Refuse(const absl::Status& status) {
  Console().Error(status.message());
  return absl::IsInvalidArgument(status) ? kExitUsage : ExitCodeOf(status);
}

void Print(bool json, const Json& value, absl::string_view text) {
  Console().Line(json ? value.dump(2) : text);
}

// A membership for one command.
absl::StatusOr<std::unique_ptr<Client>> Join(const ConnectionOptions& options) {
  // The client itself waits long for a scheduler that may yet come; a person at a terminal wants to
  // know.
  PAWL_RETURN_IF_ERROR(SchedulerConnection(options.scheduler).GetStatus(options.timeout).status());
  ClientOptions client;
  client.scheduler = options.scheduler;
  client.connect_timeout = options.timeout;
  client.call_timeout = options.timeout;
  return Client::Connect(std::move(client));
}

absl::StatusOr<Table> Open(Client& client, const std::string& name) {
  absl::StatusOr<Table> table = client.OpenTable(name).get();
  if (absl::IsNotFound(table.status())) {
    return Annotate(table.status(), absl::StrCat("--table=", name, " (pawlctl tables lists them)"));
  }
  return table;
}

// Nine digits say exactly which float it is.
std::string ValuesText(absl::Span<const float> values) {
  return absl::StrJoin(values, " ", [](std::string* out, float value) {
    absl::StrAppendFormat(out, "%.9g", value);
  });
}

// JSON has no infinities and no NaN: they become null.
Json ValuesJson(absl::Span<const float> values) {
  Json list = Json::array();
  for (const float value : values)
    list.push_back(std::isfinite(value) ? Json(value) : Json(nullptr));
  return list;
}

absl::Status PullRows(Client& client, const Table& table, const PullOptions& options) {
  if (options.keys.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.table, " is a sparse table: say which rows by --keys=1,2,3"));
  }
  const size_t width = table.row_width();
  std::vector<float> values(options.keys.size() * width);
  PAWL_RETURN_IF_ERROR(
      client.free_running()
          .Pull({{.table = table, .keys = options.keys, .values = absl::MakeSpan(values)}})
          .get());
  Json rows = Json::array();
  std::vector<std::string> lines;
  for (size_t i = 0; i < options.keys.size(); ++i) {
    const auto row = absl::MakeConstSpan(values).subspan(i * width, width);
    rows.push_back({{"key", options.keys[i]}, {"values", ValuesJson(row)}});
    lines.push_back(absl::StrCat(options.keys[i], ": ", ValuesText(row)));
  }
  Print(options.connection.json, {{"table", options.table}, {"rows", rows}},
        absl::StrJoin(lines, "\n"));
  return absl::OkStatus();
}

absl::Status PullTensor(Client& client, const Table& table, const PullOptions& options) {
  if (!options.keys.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.table, " is a dense table: it has blocks (--block) and no keys"));
  }
  uint64_t begin = 0, end = table.elements();
  if (options.block.has_value()) {
    const uint64_t blocks = BlockCount(table.elements());
    if (*options.block >= blocks) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--block=", *options.block, ": ", options.table, " has ", blocks, " blocks, from 0"));
    }
    begin = *options.block * kBlockElements;
    end = begin + BlockElements(table.elements(), *options.block);
  }
  std::vector<float> values(table.elements());
  PAWL_RETURN_IF_ERROR(
      client.free_running().Pull({{.table = table, .values = absl::MakeSpan(values)}}).get());
  const auto wanted = absl::MakeConstSpan(values).subspan(begin, end - begin);
  Print(options.connection.json,
        {{"table", options.table}, {"begin", begin}, {"values", ValuesJson(wanted)}},
        ValuesText(wanted));
  return absl::OkStatus();
}

absl::Status PullTable(const PullOptions& options) {
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Join(options.connection));
  PAWL_ASSIGN_OR_RETURN(const Table table, Open(*client, options.table));
  return table.dense() ? PullTensor(*client, table, options) : PullRows(*client, table, options);
}

absl::Status PushTable(const PushOptions& options) {
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Join(options.connection));
  PAWL_ASSIGN_OR_RETURN(const Table table, Open(*client, options.table));
  if (table.dense() == options.key.has_value()) {
    return absl::InvalidArgumentError(
        table.dense()
            ? absl::StrCat(options.table, " is a dense table: it has no keys; leave --key out")
            : absl::StrCat(options.table, " is a sparse table: say which row by --key"));
  }
  const uint64_t wanted = table.dense() ? table.elements() : table.row_width();
  if (options.values.size() != wanted) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--values has ", options.values.size(), " numbers; ",
        table.dense() ? "the tensor" : "a row", " of ", options.table, " has ", wanted));
  }
  std::vector<uint64_t> keys;
  if (options.key.has_value()) keys.push_back(*options.key);
  PAWL_RETURN_IF_ERROR(client->free_running()
                           .Push({{.table = table, .keys = keys, .gradients = options.values}})
                           .get());
  Print(options.connection.json, {{"pushed", true}}, "the gradient has been applied");
  return absl::OkStatus();
}

absl::Status PrintDigest(const ConnectionOptions& options) {
  SchedulerConnection scheduler(options.scheduler);
  PAWL_ASSIGN_OR_RETURN(const GetStatusResponse status, scheduler.GetStatus(options.timeout));
  if (status.has_digest()) {
    const std::string digest = FormatDigest(status.digest());
    Print(options.json, {{"digest", digest}, {"state", JobState_Name(status.state())}}, digest);
    return absl::OkStatus();
  }
  PAWL_ASSIGN_OR_RETURN(const RoutingTable routing, scheduler.GetRouting(options.timeout));
  PAWL_ASSIGN_OR_RETURN(const ListTablesResponse tables, scheduler.ListTables(options.timeout));
  std::map<uint32_t, std::string> names;
  for (const TableSpec& table : tables.tables()) names[table.id()] = table.name();
  InspectRequest request;
  request.set_job_id(routing.job_id());
  request.set_digest(true);
  std::vector<PartitionDigest> digests;
  for (const ServerAddress& server : routing.servers()) {
    PAWL_ASSIGN_OR_RETURN(const InspectResponse inspected,
                          ServerConnection(server).Inspect(request, options.timeout));
    digests.insert(digests.end(), inspected.digests().begin(), inspected.digests().end());
  }
  PAWL_ASSIGN_OR_RETURN(const uint32_t combined, CombineDigests(names, digests));
  const std::string digest = FormatDigest(combined);
  Print(options.json, {{"digest", digest}, {"state", JobState_Name(status.state())}},
        absl::StrCat(digest, "  (the job is ", JobState_Name(status.state()),
                     ": parameters that changed meanwhile are in it or not)"));
  return absl::OkStatus();
}

}  // namespace

int PullCommand(const PullOptions& options) {
  const absl::Status status = PullTable(options);
  return status.ok() ? kExitDone : Refuse(status);
}

int PushCommand(const PushOptions& options) {
  const absl::Status status = PushTable(options);
  return status.ok() ? kExitDone : Refuse(status);
}

int DigestCommand(const ConnectionOptions& options) {
  const absl::Status status = PrintDigest(options);
  return status.ok() ? kExitDone : Refuse(status);
}

absl::StatusOr<std::vector<uint64_t>> ParseKeys(absl::string_view flag,
                                                const std::vector<std::string>& parts) {
  std::vector<uint64_t> keys;
  for (const std::string& part : parts) {
    uint64_t key;
    if (!absl::SimpleAtoi(part, &key)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, ": '", part, "' is not a whole number from 0 to 2^64 - 1"));
    }
    keys.push_back(key);
  }
  return keys;
}

absl::StatusOr<std::vector<float>> ParseValues(absl::string_view flag,
                                               const std::vector<std::string>& parts) {
  std::vector<float> values;
  for (const std::string& part : parts) {
    float value;
    if (!absl::SimpleAtof(part, &value) || !std::isfinite(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, ": '", part, "' is not a finite number"));
    }
    values.push_back(value);
  }
  return values;
}

}  // namespace pawl
