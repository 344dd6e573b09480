#include "deploy/pawlctl/commands/table_commands.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "client_lib/base/limits.h"
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
#include "server/export/npy_reader.h"

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

struct AssignOptions {
  ConnectionOptions connection;
  std::string table;
  // NumPy files.
  std::string values;
  std::string keys;
  std::string slots;
  bool keep_slots = false;
};

constexpr std::chrono::milliseconds kDigestRetryInterval{100};

// The weights in one call.
constexpr size_t kFloatsInAssignment = size_t{16} << 20;

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

// An error that names the flag and the file.
absl::Status InvalidFile(absl::string_view flag, const std::string& file,
                         absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", file, ": ", problem));
}

// Checks that an array has `rows` rows of `width` elements, or is one list of as many.
template <typename T>
absl::Status CheckShape(absl::string_view flag, const std::string& file, const NpyArray<T>& array,
                        uint64_t rows, uint64_t width) {
  const bool is_rows = array.shape.size() == 2 && array.shape[0] == rows && array.shape[1] == width;
  const bool is_list = array.shape.size() == 1 && array.shape[0] == rows * width;
  if (is_rows || is_list) return absl::OkStatus();
  return InvalidFile(flag, file,
                     absl::StrCat("its shape is (", absl::StrJoin(array.shape, ", "),
                                  "); it must be (", rows, ", ", width, ")"));
}

// The rows or blocks to assign, in the order of the files.
struct Assigned {
  std::vector<uint64_t> keys;
  std::vector<float> values;
  std::vector<float> slots;
};

absl::StatusOr<Assigned> ReadAssigned(const Table& table, const AssignOptions& options) {
  Assigned assigned;
  PAWL_ASSIGN_OR_RETURN(NpyArray<float> values, ReadNpyFloats(Env::Real(), options.values));
  uint64_t slot_floats = 0;
  if (table.dense()) {
    if (!options.keys.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.table, " is a dense table: it has no keys; leave --keys out"));
    }
    const std::vector<uint64_t> shape(table.spec().shape().begin(), table.spec().shape().end());
    if (values.shape != shape) {
      return InvalidFile(
          "values", options.values,
          absl::StrCat("its shape is (", absl::StrJoin(values.shape, ", "), "); that of ",
                       options.table, " is (", absl::StrJoin(shape, ", "), ")"));
    }
    for (uint64_t block = 0; block < BlockCount(table.elements()); ++block) {
      assigned.keys.push_back(block);
      slot_floats += table.SlotFloats(BlockElements(table.elements(), block));
    }
  } else {
    if (options.keys.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.table, " is a sparse table: give the keys of its rows with --keys"));
    }
    PAWL_ASSIGN_OR_RETURN(NpyArray<uint64_t> keys, ReadNpyKeys(Env::Real(), options.keys));
    if (keys.shape.size() != 1)
      return InvalidFile("keys", options.keys, "it must have one dimension");
    PAWL_RETURN_IF_ERROR(
        CheckShape("values", options.values, values, keys.elements.size(), table.row_width()));
    std::vector<uint64_t> sorted = keys.elements;
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
        twice != sorted.end()) {
      return InvalidFile("keys", options.keys, absl::StrCat("key ", *twice, " is repeated"));
    }
    assigned.keys = std::move(keys.elements);
    slot_floats = assigned.keys.size() * table.SlotFloats(table.row_width());
  }
  assigned.values = std::move(values.elements);
  if (options.slots.empty()) return assigned;
  PAWL_ASSIGN_OR_RETURN(NpyArray<float> slots, ReadNpyFloats(Env::Real(), options.slots));
  PAWL_RETURN_IF_ERROR(table.dense()
                           ? CheckShape("slots", options.slots, slots, 1, slot_floats)
                           : CheckShape("slots", options.slots, slots, assigned.keys.size(),
                                        table.SlotFloats(table.row_width())));
  assigned.slots = std::move(slots.elements);
  return assigned;
}

absl::Status AssignTable(const AssignOptions& options) {
  if (options.keep_slots && !options.slots.empty())
    return absl::InvalidArgumentError("--slots and --keep_slots exclude each other");
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Join(options.connection));
  PAWL_ASSIGN_OR_RETURN(const Table table, Open(*client, options.table));
  PAWL_ASSIGN_OR_RETURN(const Assigned assigned, ReadAssigned(table, options));
  const size_t width = table.dense() ? kBlockElements : table.row_width();
  const size_t keys_in_call = std::max<size_t>(1, kFloatsInAssignment / width);
  // All rows and blocks have `width` elements, except a tensor's last block.
  const auto part = [](absl::Span<const float> floats, size_t begin, size_t count) {
    return floats.subspan(std::min(begin, floats.size()), count);
  };
  for (size_t begin = 0; begin < assigned.keys.size(); begin += keys_in_call) {
    const auto keys = absl::MakeConstSpan(assigned.keys).subspan(begin, keys_in_call);
    const size_t slot_floats = table.SlotFloats(width);
    const AssignItem item = {
        .table = table,
        .keys = keys,
        .values = part(assigned.values, begin * width, keys.size() * width),
        .slots = part(assigned.slots, begin * slot_floats, keys.size() * slot_floats),
        .keep_slots = options.keep_slots,
        .keys_are_distinct = true};
    const absl::Status status = client->free_running().Assign({&item, 1}).get();
    if (!status.ok()) {
      return Annotate(status, absl::StrCat("after ", begin, " of ", assigned.keys.size(),
                                           table.dense() ? " blocks" : " rows"));
    }
  }
  const absl::string_view unit = table.dense() ? "blocks" : "rows";
  Print(options.connection.json, {{"assigned", assigned.keys.size()}, {"unit", unit}},
        absl::StrCat(assigned.keys.size(), " ", unit, " have been assigned"));
  return absl::OkStatus();
}

struct Digest {
  uint32_t crc32c = 0;
  JobState state = JOB_STATE_UNSPECIFIED;
  // The job has ended.
  bool is_final = false;
};

// Asks the scheduler for the digest of an ended job, or reads those of all servers, one after the
// other. UNAVAILABLE: a partition could be missing, because it has no primary, or its primary does
// not answer or has changed meanwhile.
absl::StatusOr<Digest> ReadDigest(SchedulerConnection& scheduler, const Security& security,
                                  MonotonicTime deadline) {
  const auto left = [&] {
    return std::max<MonotonicDuration>(deadline - Clock::Real().Now(),
                                       std::chrono::milliseconds(1));
  };
  PAWL_ASSIGN_OR_RETURN(const GetStatusResponse status, scheduler.GetStatus(left()));
  if (status.has_digest()) return Digest{status.digest(), status.state(), /*is_final=*/true};
  PAWL_ASSIGN_OR_RETURN(const RoutingTable routing, scheduler.GetRouting(left()));
  for (int partition = 0; partition < routing.primary_size(); ++partition) {
    if (routing.primary(partition) >= static_cast<uint32_t>(routing.servers_size())) {
      return absl::UnavailableError(absl::StrCat(
          "partition ", partition, " has no primary: all servers that have its data are away"));
    }
  }
  PAWL_ASSIGN_OR_RETURN(const ListTablesResponse tables, scheduler.ListTables(left()));
  std::map<uint32_t, std::string> names;
  for (const TableSpec& table : tables.tables()) names[table.id()] = table.name();
  InspectRequest request;
  request.set_job_id(routing.job_id());
  request.set_routing_epoch(routing.epoch());
  request.set_digest(true);
  std::vector<PartitionDigest> digests;
  for (const uint32_t server :
       std::set<uint32_t>(routing.primary().begin(), routing.primary().end())) {
    PAWL_ASSIGN_OR_RETURN(const InspectResponse inspected,
                          ServerConnection(routing.servers(static_cast<int>(server)), security)
                              .Inspect(request, left()));
    digests.insert(digests.end(), inspected.digests().begin(), inspected.digests().end());
  }
  PAWL_ASSIGN_OR_RETURN(const RoutingTable after, scheduler.GetRouting(left()));
  if (after.epoch() != routing.epoch())
    return absl::UnavailableError("partitions have moved while their digests were read; try again");
  PAWL_ASSIGN_OR_RETURN(const uint32_t combined, CombineDigests(names, digests));
  return Digest{combined, status.state()};
}

absl::Status FindDigest(const ConnectionOptions& options) {
  SchedulerConnection scheduler(options.scheduler, *options.security);
  const MonotonicTime deadline = Clock::Real().Now() + options.timeout;
  absl::StatusOr<Digest> read = ReadDigest(scheduler, *options.security, deadline);
  while (absl::IsUnavailable(read.status()) && Clock::Real().Now() < deadline) {
    const absl::Status reason = read.status();
    std::this_thread::sleep_for(kDigestRetryInterval);
    read = ReadDigest(scheduler, *options.security, deadline);
    // The last reading is cut short, which says nothing.
    if (absl::IsDeadlineExceeded(read.status())) read = reason;
  }
  PAWL_RETURN_IF_ERROR(read.status());
  const std::string digest = DigestText(read->crc32c);
  const std::string& state = JobState_Name(read->state);
  Print(options.json, {{"digest", digest}, {"state", state}},
        read->is_final ? digest
                       : absl::StrCat(digest, "  (the job is ", state,
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

void AddAssignCommand(CommandLine& line) {
  const auto options = std::make_shared<AssignOptions>();
  CLI::App& command = line.AddCommand(
      "assign", "set rows or a tensor",
      "Sets weights from NumPy files (float32), once, at once, in every consistency mode: rows\n"
      "of a sparse table, which are created if they do not exist, or a whole dense table. The\n"
      "files of `pawlctl export` fit. The optimizer's slots get their initial values unless\n"
      "--slots or --keep_slots is given. After an error some rows may be set.\n\n"
      "  pawlctl assign --table=hidden/weights --values=weights.npy\n"
      "  pawlctl assign --table=embeddings --keys=e.keys.npy --values=e.rows.npy",
      [options] { return Finish(AssignTable(*options)); });
  AddFlag(command, "--table", "NAME", options->table, kTableHelp, {.required = true});
  AddFlag(command, "--values", "FILE.npy", options->values,
          "The weights: (rows, row width), or the shape of the dense table.", {.required = true});
  AddFlag(command, "--keys", "FILE.npy", options->keys,
          "The keys of the rows of a sparse table, each once: uint64 or int64.");
  AddFlag(
      command, "--slots", "FILE.npy", options->slots,
      "The optimizer's slots, (rows, slots of a row), in the order of the weights; for a dense\n"
      "table block after block. For Adam and AdamW the last slot is the number of updates.");
  AddSwitch(command, "--keep_slots", options->keep_slots,
            "Leave the slots of existing rows as they are.");
  AddConnectionFlags(command, options->connection);
}

void AddDigestCommand(CommandLine& line) {
  const auto options = std::make_shared<ConnectionOptions>();
  CLI::App& command = line.AddCommand(
      "digest", "the identity of the parameters",
      "Prints the CRC32C over all tables: two jobs with the same digest have bit-identical\n"
      "parameters. metrics.json has the digest of a completed job. While a job trains, its\n"
      "parameters change during the reading. While partitions move, or a server is away, it is\n"
      "read again, until --timeout.\n"
      "\n"
      "  pawlctl digest --scheduler=10.0.0.1:7000",
      [options] { return PrintDigest(*options); });
  AddConnectionFlags(command, *options);
}

}  // namespace

int PrintDigest(const ConnectionOptions& options) { return Finish(FindDigest(options)); }

void AddTableCommands(CommandLine& line) {
  AddPullCommand(line);
  AddPushCommand(line);
  AddAssignCommand(line);
  AddDigestCommand(line);
}

}  // namespace pawl
