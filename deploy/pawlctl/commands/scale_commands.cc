#include "deploy/pawlctl/commands/scale_commands.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/clock.h"
#include "client_lib/process/signal_waiter.h"
#include "deploy/pawlctl/cluster/progress.h"
#include "deploy/pawlctl/commands/connection_flags.h"
#include "deploy/pawlctl/commands/event_report.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/scheduler_connection.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

// How often to ask the scheduler for its status, and how often to print progress.
constexpr std::chrono::milliseconds kPollInterval{200};
constexpr std::chrono::seconds kLineInterval{2};
// The value of --wait without one.
constexpr char kDefaultWait[] = "10m";

// Asks for the status until `missing`, which says what is left to do, returns nothing, the time is
// up, or a signal arrives. Retries while the scheduler is unreachable.
int WaitFor(SchedulerConnection& scheduler, const ConnectionOptions& options,
            MonotonicDuration wait, SignalWaiter& signals,
            const std::function<std::string(const GetStatusResponse&)>& missing) {
  Console console;
  const Clock& clock = Clock::Real();
  const MonotonicTime end = clock.Now() + wait;
  MonotonicTime next_line = clock.Now() + kLineInterval;
  std::string left;
  while (true) {
    const absl::StatusOr<GetStatusResponse> status = scheduler.GetStatus(options.timeout);
    if (status.ok()) {
      left = missing(*status);
      if (left.empty()) return kExitDone;
      if (HasEnded(status->state())) {
        console.Error(absl::StrCat("the job ended before that: ", JobState_Name(status->state())));
        return kExitFailed;
      }
      if (!options.json && clock.Now() >= next_line) {
        console.Line(left);
        next_line = clock.Now() + kLineInterval;
      }
    } else if (ExitCodeOf(status.status()) != kExitUnreachable) {
      return ReportError(status.status());
    }
    if (clock.Now() >= end) {
      console.Error(absl::StrCat("not done within ", FormatSeconds(Seconds(wait)),
                                 " (--wait); it continues",
                                 status.ok() ? absl::StrCat(": ", left) : ""));
      return kExitFailed;
    }
    if (const int signal = signals.Wait(kPollInterval); signal != 0) return kExitSignal + signal;
  }
}

uint32_t CountOf(const GetStatusResponse& status, Role role) {
  return static_cast<uint32_t>(
      std::count_if(status.nodes().begin(), status.nodes().end(),
                    [&](const NodeStatus& node) { return node.role() == role && !node.gone(); }));
}

struct ScaleOptions {
  ConnectionOptions connection;
  // Unset: unchanged.
  std::optional<uint32_t> servers;
  std::optional<uint32_t> workers;
  // Unset: do not wait.
  std::optional<MonotonicDuration> wait;
};

int Scale(const ScaleOptions& scale) {
  const auto& [options, servers, workers, wait] = scale;
  if (!servers.has_value() && !workers.has_value()) {
    Console().Error("scale: to how many? Give --servers=N or --workers=N");
    return kExitUsage;
  }
  SignalWaiter signals;
  SchedulerConnection scheduler(options.scheduler, *options.security);
  ScaleRequest request;
  if (servers.has_value()) request.set_servers(*servers);
  if (workers.has_value()) request.set_workers(*workers);
  const absl::StatusOr<ScaleResponse> scaled = scheduler.Scale(request, options.timeout);
  if (!scaled.ok()) return ReportError(scaled.status());
  if (options.json) {
    Console().Line(
        nlohmann::ordered_json({{"servers", scaled->scale().servers()},
                                {"workers", scaled->scale().workers()},
                                {"draining", std::vector<std::string>(scaled->draining().begin(),
                                                                      scaled->draining().end())},
                                {"servers_missing", scaled->servers_missing()},
                                {"workers_missing", scaled->workers_missing()}})
            .dump(2));
  } else {
    Console console;
    console.Line(absl::StrCat("the job gets ", scaled->scale().servers(), " servers and ",
                              scaled->scale().workers(), " workers"));
    if (!scaled->draining().empty())
      console.Line(absl::StrCat("leaving: ", absl::StrJoin(scaled->draining(), " ")));
    if (scaled->servers_missing() > 0) {
      console.Line(absl::StrCat(scaled->servers_missing(),
                                " more servers are needed; pawlctl run starts them for its own "
                                "cluster, elsewhere run: pawl-server --scheduler=",
                                options.scheduler, " --listen=HOST:0 --data_dir=FOLDER",
                                options.security->is_tls() ? " --tls_dir=FOLDER" : ""));
    }
    if (scaled->workers_missing() > 0) {
      console.Line(
          absl::StrCat(scaled->workers_missing(),
                       " more workers are needed; pawlctl run starts them for its own "
                       "cluster, elsewhere run pawl-worker, or your program, with --scheduler or "
                       "PAWL_SCHEDULER=",
                       options.scheduler));
    }
  }
  if (!wait.has_value()) return kExitDone;
  return WaitFor(scheduler, options, *wait, signals, [&scale](const GetStatusResponse& status) {
    std::vector<std::string> missing;
    const auto compare = [&](const std::optional<uint32_t>& wanted, Role role,
                             absl::string_view nodes) {
      const uint32_t count = CountOf(status, role);
      if (wanted.value_or(count) != count)
        missing.push_back(absl::StrCat("waiting for ", *wanted, " ", nodes, ", now ", count));
    };
    compare(scale.servers, SERVER_ROLE, "servers");
    compare(scale.workers, WORKER_ROLE, "workers");
    if (!status.moves().settled()) missing.push_back(MovesText(status.moves()));
    return absl::StrJoin(missing, "; ");
  });
}

// The options of drain and release.
struct NodeOptions {
  ConnectionOptions connection;
  std::string node;
  bool force = false;
  // Unset: do not wait.
  std::optional<MonotonicDuration> wait;
};

int Drain(const NodeOptions& drain) {
  const ConnectionOptions& options = drain.connection;
  const std::string& node = drain.node;
  SignalWaiter signals;
  SchedulerConnection scheduler(options.scheduler, *options.security);
  DrainRequest request;
  request.set_node(node);
  request.set_force(drain.force);
  if (const absl::Status status = scheduler.Drain(request, options.timeout); !status.ok())
    return ReportError(status);
  if (options.json) {
    Console().Line(nlohmann::ordered_json({{"draining", node}}).dump(2));
  } else {
    Console().Line(absl::StrCat(node, " is leaving"));
  }
  if (!drain.wait.has_value()) return kExitDone;
  return WaitFor(scheduler, options, *drain.wait, signals, [&](const GetStatusResponse& status) {
    const bool has_left = std::none_of(
        status.nodes().begin(), status.nodes().end(),
        [&](const NodeStatus& other) { return other.node() == node && !other.gone(); });
    if (has_left) return std::string();
    return status.moves().settled() ? absl::StrCat("waiting for ", node, " to leave")
                                    : MovesText(status.moves());
  });
}

int ReleaseRetained(const NodeOptions& release) {
  const ConnectionOptions& options = release.connection;
  const std::string& node = release.node;
  SchedulerConnection scheduler(options.scheduler, *options.security);
  ReleaseRetainedRequest request;
  request.set_node(node);
  request.set_force(release.force);
  const absl::StatusOr<ReleaseRetainedResponse> released =
      scheduler.ReleaseRetained(request, options.timeout);
  if (!released.ok()) return ReportError(released.status());
  if (options.json) {
    Console().Line(
        nlohmann::ordered_json({{"node", node}, {"released", released->partitions()}}).dump(2));
  } else {
    Console().Line(absl::StrCat(node, " deletes ", released->partitions(), " retained replicas"));
  }
  return kExitDone;
}

void AddScaleCommand(CommandLine& line) {
  const auto options = std::make_shared<ScaleOptions>();
  CLI::App& command = line.AddCommand(
      "scale", "change the number of servers and workers of a running job",
      "Surplus nodes leave once others have taken over. Training continues, and no update is\n"
      "lost. pawlctl run starts the missing nodes of its own cluster. Elsewhere, start them\n"
      "yourself: scale says how many are missing. --wait waits until all nodes are present and\n"
      "all partitions are in place.\n\n"
      "  pawlctl scale --servers=5 --wait\n"
      "  pawlctl scale --workers=1",
      [options] { return Scale(*options); });
  AddFlag(command, "--servers", "N", options->servers,
          "How many servers; default: as many as now.");
  AddFlag(command, "--workers", "N", options->workers,
          "How many workers; default: as many as now.");
  AddBareFlag(command, "--wait", "DURATION", kDefaultWait, options->wait,
              "Wait until it is done; --wait alone waits for 10m at most.");
  AddConnectionFlags(command, options->connection);
}

void AddDrainCommand(CommandLine& line) {
  const auto options = std::make_shared<NodeOptions>();
  CLI::App& command = line.AddCommand(
      "drain", "remove a node from a running job",
      "A server hands over all of its partitions, a worker finishes its step; then it exits\n"
      "with 0. The request is refused if the remaining servers could not hold all replicas,\n"
      "unless --force is given. --wait waits until the node is gone. A server of a FINISHING\n"
      "job hands over nothing: it waits for the end of the job and so for the final checkpoint.\n\n"
      "  pawlctl drain server-1 --wait",
      [options] { return Drain(*options); });
  AddFlag(command, "node,--node", "NODE", options->node, "The node (pawlctl nodes lists them).",
          {.required = true});
  AddSwitch(command, "--force", options->force,
            "Drain even if the job then has too few replicas of each partition, or no worker.\n"
            "At least one server and min_in_sync servers stay.");
  AddBareFlag(command, "--wait", "DURATION", kDefaultWait, options->wait,
              "Wait until it is done; --wait alone waits for 10m at most.");
  AddConnectionFlags(command, options->connection);
}

void AddReleaseRetainedCommand(CommandLine& line) {
  const auto options = std::make_shared<NodeOptions>();
  CLI::App& command = line.AddCommand(
      "release", "delete the replicas that a server retains",
      "A server that is no longer in sync retains its replicas until their partitions have as\n"
      "many others as the job wants (pawlctl status shows them). This deletes them earlier, to\n"
      "free disk space; the server may be gone. The request is refused if no other server is\n"
      "known to have every acknowledged push, unless --force is given; that loses those pushes\n"
      "and ends the job.\n\n"
      "  pawlctl release server-1",
      [options] { return ReleaseRetained(*options); });
  AddFlag(command, "node,--node", "NODE", options->node, "The server (pawlctl nodes lists them).",
          {.required = true});
  AddSwitch(command, "--force", options->force,
            "Delete even the last copy of acknowledged pushes, and end the job.");
  AddConnectionFlags(command, options->connection);
}

void AddEventsCommand(CommandLine& line) {
  struct Options {
    ConnectionOptions connection;
    bool follow = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App& command = line.AddCommand(
      "events", "nodes that came and went, partitions that moved",
      "Prints the last events, the oldest first. --json prints one JSON object a line.\n"
      "\n"
      "  pawlctl events --follow --scheduler=10.0.0.1:7000\n"
      "\n"
      "--follow waits up to a minute for a scheduler that restarts.",
      [options] { return PrintEvents(options->connection, options->follow); });
  AddSwitch(command, "--follow", options->follow, "Print new events until the job ends.");
  AddConnectionFlags(command, options->connection);
}

}  // namespace

int PrintEvents(const ConnectionOptions& options, bool follow, MonotonicDuration max_silence) {
  SignalWaiter signals;
  SchedulerConnection scheduler(options.scheduler, *options.security);
  SilenceLimit silence(max_silence);
  uint64_t after = 0;
  while (true) {
    const absl::StatusOr<ListEventsResponse> events = scheduler.ListEvents(after, options.timeout);
    const bool may_wait = silence.Allows(events.status(), Clock::Real().Now());
    if (!events.ok() && !(follow && may_wait)) return ReportError(events.status());
    if (events.ok()) {
      Console console;
      for (const ClusterEvent& event : events->events()) {
        console.Line(options.json ? EventJson(event).dump() : EventText(event));
        after = event.number();
      }
      if (!follow || HasEnded(events->job_state())) return kExitDone;
    }
    if (const int signal = signals.Wait(kPollInterval); signal != 0) return kExitSignal + signal;
  }
}

void AddScaleCommands(CommandLine& line) {
  AddScaleCommand(line);
  AddDrainCommand(line);
  AddReleaseRetainedCommand(line);
  AddEventsCommand(line);
}

}  // namespace pawl
