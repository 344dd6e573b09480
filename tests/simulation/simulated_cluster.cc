#include "tests/simulation/simulated_cluster.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/fault_env.h"
#include "client_lib/rpc/codec.h"
#include "proto/server_control.pb.h"
#include "tests/simulation/message_parsing.h"

namespace pawl {
namespace {

// As in the daemons.
constexpr std::chrono::milliseconds kServerTick{20};
constexpr std::chrono::milliseconds kRestartPause{300};
// A server that dies while it writes a part does at most this many operations on files.
constexpr uint64_t kMostOperations = 15;
// Timeouts that no schedule reaches.
constexpr std::chrono::minutes kNever{60};

CatchUps CatchUpsOf(const DataPlane& plane) {
  const CatchUpFigures& figures = plane.catch_up_figures();
  return {figures.by_tail, figures.by_log, figures.by_going_back, figures.by_snapshot};
}

// Adapts a reply that carries only a status.
DataPlane::Done StatusReply(SimulatedNetwork::Reply reply) {
  return [reply = std::move(reply)](absl::Status status) mutable {
    reply(std::move(status), OutgoingMessage());
  };
}

}  // namespace

SimulatedCluster::SimulatedCluster(EventLoop& loop, SimulatedNetwork& network, SeededRandom& random,
                                   ClusterOptions options)
    : loop_(loop),
      network_(network),
      random_(random),
      options_(std::move(options)),
      scheduler_(loop, network, random, options_,
                 {.is_lost = [this](const std::string& node) { return !HasNode(node); },
                  .any_server_has_routing = [this] { return AnyServerHasRouting(); }}),
      servers_(options_.servers + 1) {
  for (int server = 0; server < servers(); ++server) {
    servers_[server].clock = DrawClock(loop_, random, options_);
  }
  servers_[servers()].clock = std::make_unique<MachineClock>(loop_, std::chrono::hours(0));
}

SimulatedCluster::~SimulatedCluster() {
  KillCopy();
  for (int server = 0; server < servers(); ++server) KillServer(server);
}

void SimulatedCluster::StartServer(int index) { StartProcess(index, SiteOfServer(index)); }

void SimulatedCluster::StartCopy(int index) {
  KillCopy();
  servers_[servers()].disk = servers_[index].disk;
  StartProcess(servers(), SiteOfServer(index));
}

void SimulatedCluster::StartProcess(int index, int site) {
  KillServer(index);
  ServerProcess& server = servers_[index];
  server.clock->Resume();
  server.incarnation = std::make_shared<Incarnation>(absl::StrCat("server ", index), site);
  server.draining = false;
  const std::string address = absl::StrCat("s", index, ":", 7000 + server.start_count++);
  server.channel = std::make_unique<SimulatedControlChannel>(network_, loop_, server.incarnation,
                                                             kSchedulerAddress);
  server.peers = std::make_unique<SimulatedTransport>(network_, loop_, server.incarnation);
  ServerNodeOptions node_options;
  node_options.scheduler = kSchedulerAddress;
  node_options.description = absl::StrCat("simulated ", index);
  node_options.register_timeout = kNever;
  node_options.scheduler_timeout = kNever;
  DataPlaneOptions data_plane_options;
  // Forces a server that was briefly absent to catch up from the log.
  if (options_.job.seed() % 3 != 0) data_plane_options.max_tail_bytes = 1000;
  if (options_.job.seed() % 2 == 0) {
    // Snapshots take seconds and tens of pieces, while pushes continue.
    data_plane_options.replication.snapshot_piece_bytes = 200;
    data_plane_options.replication.repair_bytes_per_s = 20'000;
  }
  if (options_.small_backlogs) {
    data_plane_options.replication.snapshot_piece_bytes = 500;
    data_plane_options.replication.repair_bytes_per_s = 6'000;
    data_plane_options.replication.learners = {.max_backlog_bytes = 1500,
                                               .max_large_backlog_bytes = 1500,
                                               .nearly_caught_up_bytes = 300,
                                               .min_push_bytes_per_s = 100};
  }
  std::unique_ptr<SimulatedLog> log;
  if (options_.job.durability() != MEMORY) {
    log = std::make_unique<SimulatedLog>(server.disk, loop_, random_, server.incarnation,
                                         options_.disks_forget);
  }
  server.node =
      std::make_unique<ServerNode>(std::move(node_options), data_plane_options, std::move(log),
                                   *server.channel, *server.peers, *server.clock);
  if (options_.files != nullptr) {
    server.checkpointer =
        std::make_unique<Checkpointer>(*options_.files, server.node->data_plane(), *server.clock,
                                       AllowedFolders(), /*has_thread=*/false);
  }
  network_.Listen(
      address, server.incarnation,
      [this, index](const std::string& rpc, IncomingMessage request, MonotonicDuration timeout,
                    std::shared_ptr<const std::atomic<bool>> cancelled,
                    SimulatedNetwork::Reply reply) {
        Receive(servers_[index], rpc, std::move(request), timeout, std::move(cancelled),
                std::move(reply));
      });
  if (const absl::Status status = server.node->Start(address); !status.ok())
    return OnServerEnded(index, status);
  TickServer(index, server.incarnation);
}

void SimulatedCluster::Receive(ServerProcess& server, const std::string& rpc,
                               IncomingMessage request, MonotonicDuration timeout,
                               std::shared_ptr<const std::atomic<bool>> cancelled,
                               SimulatedNetwork::Reply reply) {
  DataPlane& plane = server.node->data_plane();
  for (const Method method :
       {Method::kPush, Method::kPull, Method::kScan, Method::kEndStep, Method::kTakeOver,
        Method::kReplicate, Method::kInstallSnapshot, Method::kGoBack}) {
    if (rpc != RpcName(method)) continue;
    return plane.Handle(method, std::move(request),
                        CallContext{server.clock->Now() + timeout, std::move(cancelled)},
                        std::move(reply));
  }
  // As ControlService does.
  if (plane.job_id() == 0)
    return reply(absl::UnavailableError("this server does not know its job yet"),
                 OutgoingMessage());
  if (rpc == "/pawl.ServerControl/CreateTable") {
    const auto message = MustParse<CreateTableOnServerRequest>(request);
    plane.CreateTable(message.routing_epoch(), message.table(), StatusReply(std::move(reply)));
  } else if (rpc == "/pawl.ServerControl/ReleaseLogicalWorker") {
    const auto message = MustParse<ReleaseLogicalWorkerRequest>(request);
    plane.ReleaseLogicalWorker(message.routing_epoch(), message.logical_worker(),
                               message.incarnation(), StatusReply(std::move(reply)));
  } else if (rpc == "/pawl.ServerControl/Inspect") {
    const auto message = MustParse<InspectRequest>(request);
    const auto answer = plane.Inspect(message.routing_epoch(), message.digest());
    if (answer.ok() && message.digest()) options_.inspected(message.routing_epoch(), plane);
    reply(answer.status(), answer.ok() ? EncodeSmall(*answer) : OutgoingMessage());
  } else if (rpc == "/pawl.ServerControl/Checkpoint") {
    server.checkpointer->Checkpoint(
        MustParse<CheckpointOnServerRequest>(request),
        [reply = std::move(reply)](absl::StatusOr<CheckpointOnServerResponse> answer) mutable {
          reply(answer.status(), answer.ok() ? EncodeSmall(*answer) : OutgoingMessage());
        });
  } else if (rpc == "/pawl.ServerControl/LoadCheckpoint") {
    server.checkpointer->Load(MustParse<LoadCheckpointRequest>(request),
                              StatusReply(std::move(reply)));
  } else {
    std::abort();
  }
}

CatchUps SimulatedCluster::catch_ups() const {
  CatchUps sum = catch_ups_;
  for (const ServerProcess& server : servers_) {
    if (server.node != nullptr) sum += CatchUpsOf(server.node->data_plane());
  }
  return sum;
}

void SimulatedCluster::KillServer(int index) {
  ServerProcess& server = servers_[index];
  if (server.incarnation == nullptr) return;
  if (server.node != nullptr) catch_ups_ += CatchUpsOf(server.node->data_plane());
  server.incarnation->alive = false;
  pushes_delayed_ += server.node->data_plane().pushes_delayed();
  pushes_refused_ += server.node->data_plane().pushes_refused();
  network_.OnDeath(server.incarnation);
  if (server.checkpointer != nullptr && random_.Chance(0.5)) {
    // It dies while it writes a part.
    options_.files->CutPowerAfter(static_cast<int64_t>(random_.Below(kMostOperations)));
    server.checkpointer->Work();
    options_.files->KillProcesses();
  }
  server.checkpointer.reset();
  server.node.reset();
  server.peers.reset();
  server.channel.reset();
  server.incarnation = nullptr;
}

void SimulatedCluster::DrainServer(int index) {
  if (servers_[index].node == nullptr) return;
  servers_[index].draining = true;
  servers_[index].node->Drain();
}

bool SimulatedCluster::HasNode(const std::string& node) const {
  return std::any_of(servers_.begin(), servers_.end() - 1, [&](const ServerProcess& server) {
    return (server.node != nullptr && server.node->node() == node) ||
           (server.disk.identity.has_value() && server.disk.identity->node() == node);
  });
}

uint64_t SimulatedCluster::SumOver(uint64_t (DataPlane::*count)() const) const {
  uint64_t sum = 0;
  for (const ServerProcess& server : servers_) {
    if (server.node != nullptr) sum += (server.node->data_plane().*count)();
  }
  return sum;
}

bool SimulatedCluster::AnyServerHasRouting() const {
  return std::any_of(servers_.begin(), servers_.end() - 1, [](const ServerProcess& server) {
    return server.node != nullptr && server.node->data_plane().epoch() > 0;
  });
}

void SimulatedCluster::TickServer(int index, const std::shared_ptr<Incarnation>& incarnation) {
  loop_.Schedule(kServerTick, incarnation, "server's tick", [this, index, incarnation] {
    if (const std::optional<absl::Status> ended = servers_[index].node->Tick(); ended.has_value()) {
      return OnServerEnded(index, *ended);
    }
    if (servers_[index].checkpointer != nullptr && random_.Chance(0.5))
      servers_[index].checkpointer->Work();
    TickServer(index, incarnation);
  });
}

void SimulatedCluster::OnServerEnded(int index, const absl::Status& how) {
  loop_.Note(absl::StrCat("server ", index, " has ended: ", how.ToString()));
  if (how.ok() && !servers_[index].draining)
    scheduler_.OnToldOfCompletion(absl::StrCat("server ", index));
  const bool ends_with_job = (how.ok() || absl::IsCancelled(how)) && scheduler_.has_completed();
  // Deferred, because the server's own code is on the stack.
  loop_.Schedule(MonotonicDuration::zero(), servers_[index].incarnation, "end of the process",
                 [this, index, ends_with_job] {
                   KillServer(index);
                   // The copy: its starter has been notified.
                   if (index == servers() || ends_with_job) return;
                   loop_.Schedule(kRestartPause, nullptr, "supervisor", [this, index] {
                     if (servers_[index].incarnation == nullptr) StartServer(index);
                   });
                 });
}

}  // namespace pawl
