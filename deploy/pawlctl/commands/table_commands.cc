#include "deploy/pawlctl/commands/table_commands.h"

#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/client.h"
#include "deploy/pawlctl/commands/connection_flags.h"
#include "deploy/pawlctl/commands/report.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/scheduler_connection.h"
#include "deploy/pawlctl/server_connection.h"
#include "nlohmann/json.hpp"
#include "scheduler/status/digest.h"

namespace pawl {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kTableHelp[] = "The table's name (pawlctl tables lists them).";

struct PullOptions {
  ConnectionOptions connection;
  std::string table;
  // For a sparse table.
  std::vector<uint64_t> keys;
  // For a dense table; unset: the whole table.
  std::optional<uint64_t> block;
};

struct PushOptions {
  ConnectionOptions connection;
  std::string table;
  // For a sparse table.
  std::optional<uint64_t> key;
  // The gradient of the row, or of the whole dense table.
  std::vector<float> values;
};

// The exit code of a command that ended with `status`. A wrong argument is a usage error.
int Finish(const absl::Status& status) {
  if (status.ok()) return kExitDone;
  const int code = ReportError(status);
  return absl::IsInvalidArgument(status) ? kExitUsage : code;
}

void Print(bool json, const Json& value, absl::string_view text) {
  Console().Line(json ? value.dump(2) : text);
}

// Joins the job as a client for one command.
absl::StatusOr<std::unique_ptr<Client>> Join(const ConnectionOptions& options) {
  // Client::Connect retries an unreachable scheduler for long; fail fast instead.
  PAWL_RETURN_IF_ERROR(SchedulerConnection(options.scheduler, *options.security)
                           .GetStatus(options.timeout)
                           .status());
  ClientOptions client;
  client.scheduler = options.scheduler;
  client.security = options.security_options;
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

// Nine digits identify a float exactly.
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
        absl::StrCat(options.table, " is a sparse table: name its rows with --keys=1,2,3"));
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
            : absl::StrCat(options.table, " is a sparse table: name its row with --key"));
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
  SchedulerConnection scheduler(options.scheduler, *options.security);
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
    PAWL_ASSIGN_OR_RETURN(
        const InspectResponse inspected,
        ServerConnection(server, *options.security).Inspect(request, options.timeout));
    digests.insert(digests.end(), inspected.digests().begin(), inspected.digests().end());
  }
  PAWL_ASSIGN_OR_RETURN(const uint32_t combined, CombineDigests(names, digests));
  const std::string digest = FormatDigest(combined);
  Print(options.json, {{"digest", digest}, {"state", JobState_Name(status.state())}},
        absl::StrCat(digest, "  (the job is ", JobState_Name(status.state()),
                     ": changes during the reading may be in it or not)"));
  return absl::OkStatus();
}

void AddPullCommand(CommandLine& line) {
  const auto options = std::make_shared<PullOptions>();
  CLI::App& command = line.AddCommand(
      "pull", "print parameters",
      "Prints rows of a sparse table, or a dense table or one block of it. A row that no push has\n"
      "created reads as its initial value. Changes nothing.\n"
      "\n"
      "  pawlctl pull --table=embeddings --keys=7,42\n"
      "  pawlctl pull --table=hidden/weights --block=0 --json",
      [options] { return Finish(PullTable(*options)); });
  AddFlag(command, "--table", "NAME", options->table, kTableHelp, {.required = true});
  AddFlag(command, "--keys", "KEY,KEY,...", options->keys,
          "The rows of a sparse table: --keys=1,2,3.");
  AddFlag(command, "--block", "N", options->block,
          "The block of 65,536 elements of a dense table, from 0; default: the whole table.");
  AddConnectionFlags(command, options->connection);
}

void AddPushCommand(CommandLine& line) {
  const auto options = std::make_shared<PushOptions>();
  CLI::App& command = line.AddCommand(
      "push", "apply one gradient",
      "Pushes a gradient, which the table's optimizer applies at once, in every consistency mode.\n"
      "It changes the model: use it for experiments.\n"
      "\n"
      "  pawlctl push --table=embeddings --key=7 --values=0.5,-1,0,0.25",
      [options] { return Finish(PushTable(*options)); });
  AddFlag(command, "--table", "NAME", options->table, kTableHelp, {.required = true});
  AddFlag(command, "--key", "KEY", options->key, "The row of a sparse table.");
  AddFlag(command, "--values", "X,X,...", options->values,
          "The gradient, with as many numbers as a row or the dense table has: --values=0.5,-1.");
  AddConnectionFlags(command, options->connection);
}

void AddDigestCommand(CommandLine& line) {
  const auto options = std::make_shared<ConnectionOptions>();
  CLI::App& command = line.AddCommand(
      "digest", "the identity of the parameters",
      "Prints the CRC32C over all tables: two jobs with the same digest have bit-identical\n"
      "parameters. metrics.json has the digest of a completed job. While a job trains, its\n"
      "parameters change during the reading.\n"
      "\n"
      "  pawlctl digest --scheduler=10.0.0.1:7000",
      [options] { return Finish(PrintDigest(*options)); });
  AddConnectionFlags(command, *options);
}

}  // namespace

void AddTableCommands(CommandLine& line) {
  AddPullCommand(line);
  AddPushCommand(line);
  AddDigestCommand(line);
}

}  // namespace pawl
