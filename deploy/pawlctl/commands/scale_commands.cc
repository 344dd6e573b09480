#include "deploy/pawlctl/commands/scale_commands.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/process/signal_waiter.h"
#include "deploy/pawlctl/cluster/progress.h"
#include "deploy/pawlctl/commands/report.h"
#include "deploy/pawlctl/console.h"
#include "deploy/pawlctl/exit_code.h"
#include "deploy/pawlctl/scheduler_connection.h"
#include "nlohmann/json.hpp"

namespace pawl {
namespace {

// How often the scheduler is asked while it is waited for, and how often that is told.
constexpr std::chrono::milliseconds kPollInterval{200};
constexpr std::chrono::seconds kLineInterval{2};

int Refuse(const absl::Status& status) {
  Console().Error(status.message());
  return ExitCodeOf(status);
}

bool IsOver(JobState state) { return state == COMPLETED || state == FAILED || state == STOPPED; }

// Asks until `done` says so, the time is up, or a signal comes. A scheduler that is away for a
// moment is asked again.
int WaitFor(SchedulerConnection& scheduler, const ConnectionOptions& options,
            MonotonicDuration wait, SignalWaiter& signals,
            const std::function<bool(const GetStatusResponse&)>& done) {
  Console console;
  const Clock& clock = Clock::Real();
  const MonotonicTime end = clock.Now() + wait;
  MonotonicTime next_line = clock.Now() + kLineInterval;
  while (true) {
    const absl::StatusOr<GetStatusResponse> status = scheduler.GetStatus(options.timeout);
    if (status.ok()) {
      if (done(*status)) return kExitDone;
      if (IsOver(status->state())) {
        console.Error(
            absl::StrCat("the job is over before that: ", JobState_Name(status->state())));
        return kExitFailed;
      }
      if (!options.json && clock.Now() >= next_line) {
        console.Line(MovesText(status->moves()));
        next_line = clock.Now() + kLineInterval;
      }
    } else if (ExitCodeOf(status.status()) != kExitUnreachable) {
      return Refuse(status.status());
    }
    if (clock.Now() >= end) {
      console.Error(
          absl::StrCat("not done within ", FormatSeconds(Seconds(wait)), " (--wait); it goes on",
                       status.ok() ? absl::StrCat(": ", MovesText(status->moves())) : ""));
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

}  // namespace

int ScaleCommand(const ConnectionOptions& options, std::optional<uint32_t> servers,
                 std::optional<uint32_t> workers, std::optional<MonotonicDuration> wait) {
  SignalWaiter signals;
  SchedulerConnection scheduler(options.scheduler);
  ScaleRequest request;
  if (servers.has_value()) request.set_servers(*servers);
  if (workers.has_value()) request.set_workers(*workers);
  const absl::StatusOr<ScaleResponse> scaled = scheduler.Scale(request, options.timeout);
  if (!scaled.ok()) return Refuse(scaled.status());
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
    console.Line(absl::StrCat("the job is to have ", scaled->scale().servers(), " servers and ",
                              scaled->scale().workers(), " workers"));
    if (!scaled->draining().empty())
      console.Line(absl::StrCat("leaving: ", absl::StrJoin(scaled->draining(), " ")));
    if (scaled->servers_missing() > 0) {
      console.Line(absl::StrCat(scaled->servers_missing(),
                                " more servers are to be started; pawlctl run does it for its own "
                                "cluster, elsewhere: pawl-server --scheduler=",
                                options.scheduler, " --listen=HOST:0 --data_dir=FOLDER"));
    }
    if (scaled->workers_missing() > 0) {
      console.Line(absl::StrCat(scaled->workers_missing(),
                                " more workers are to be started; pawlctl run does it for its own "
                                "cluster, elsewhere: pawl-worker --scheduler=",
                                options.scheduler));
    }
  }
  if (!wait.has_value()) return kExitDone;
  return WaitFor(scheduler, options, *wait, signals, [&](const GetStatusResponse& status) {
    return (!servers.has_value() || CountOf(status, SERVER_ROLE) == *servers) &&
           (!workers.has_value() || CountOf(status, WORKER_ROLE) == *workers) &&
           status.moves().at_rest();
  });
}

int DrainCommand(const ConnectionOptions& options, const std::string& node, bool force,
                 std::optional<MonotonicDuration> wait) {
  SignalWaiter signals;
  SchedulerConnection scheduler(options.scheduler);
  DrainRequest request;
  request.set_node(node);
  request.set_force(force);
  if (const absl::Status status = scheduler.Drain(request, options.timeout); !status.ok())
    return Refuse(status);
  if (options.json) {
    Console().Line(nlohmann::ordered_json({{"draining", node}}).dump(2));
  } else {
    Console().Line(absl::StrCat(node, " is to leave"));
  }
  if (!wait.has_value()) return kExitDone;
  return WaitFor(scheduler, options, *wait, signals, [&](const GetStatusResponse& status) {
    return std::none_of(status.nodes().begin(), status.nodes().end(), [&](const NodeStatus& other) {
      return other.node() == node && !other.gone();
    });
  });
}

int ReleaseKeptCommand(const ConnectionOptions& options, const std::string& node, bool force) {
  SchedulerConnection scheduler(options.scheduler);
  ReleaseKeptRequest request;
  request.set_node(node);
  request.set_force(force);
  const absl::StatusOr<ReleaseKeptResponse> released =
      scheduler.ReleaseKept(request, options.timeout);
  if (!released.ok()) return Refuse(released.status());
  if (options.json) {
    Console().Line(
        nlohmann::ordered_json({{"node", node}, {"released", released->partitions()}}).dump(2));
  } else {
    Console().Line(
        absl::StrCat(node, " need not keep ", released->partitions(), " replicas any more"));
  }
  return kExitDone;
}

int EventsCommand(const ConnectionOptions& options, bool follow) {
  SignalWaiter signals;
  SchedulerConnection scheduler(options.scheduler);
  uint64_t after = 0;
  while (true) {
    const absl::StatusOr<ListEventsResponse> events = scheduler.ListEvents(after, options.timeout);
    if (!events.ok() && !(follow && after > 0 && ExitCodeOf(events.status()) == kExitUnreachable)) {
      return Refuse(events.status());
    }
    if (events.ok()) {
      Console console;
      for (const ClusterEvent& event : events->events()) {
        console.Line(options.json ? EventJson(event).dump() : EventText(event));
        after = event.number();
      }
      if (!follow || IsOver(events->job_state())) return kExitDone;
    }
    if (const int signal = signals.Wait(kPollInterval); signal != 0) return kExitSignal + signal;
  }
}

}  // namespace pawl
