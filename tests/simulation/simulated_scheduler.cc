#include "tests/simulation/simulated_scheduler.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client_lib/base/testing/fault_env.h"
#include "client_lib/rpc/codec.h"
#include "google/protobuf/message.h"
#include "proto/server_control.pb.h"
#include "scheduler/checkpoint/checkpoint_writer.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/rpc/server_caller.h"
#include "scheduler/startup/rebuild.h"
#include "scheduler/startup/startup.h"
#include "server/storage/checkpoint/checkpoint_store.h"
#include "tests/simulation/message_parsing.h"
#include "tests/simulation/schedule.h"

namespace pawl {
namespace {

constexpr uint64_t kJobId = 0x5117;
// Timeouts that no schedule reaches.
constexpr std::chrono::minutes kNever{60};
// Short, so that rebuilding times out also while servers are away.
constexpr std::chrono::seconds kRebuildTimeout{2};
// A scheduler that dies while it writes a manifest does at most this many operations on files.
constexpr uint64_t kMostOperations = 30;
constexpr std::chrono::milliseconds kRestartPause{300};
// A day in 2027.
constexpr uint64_t kUnixMsAtBegin = 1'800'000'000'000;

// Returns the names that an error message lists after `label`, separated by `separator`. The list
// ends at the first character that is in neither names nor separators, such as a semicolon.
std::vector<std::string> NamedAfter(const std::string& message, const std::string& label,
                                    const char* separator) {
  const size_t at = message.find(label);
  if (at == std::string::npos) return {};
  const std::string rest = message.substr(at + label.size());
  const size_t end = rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz-0123456789, ");
  std::vector<std::string> named =
      absl::StrSplit(rest.substr(0, end), separator, absl::SkipEmpty());
  return named;
}

}  // namespace

std::unique_ptr<MachineClock> DrawClock(const EventLoop& loop, SeededRandom& random,
                                        const ClusterOptions& options) {
  const MonotonicDuration offset = random.Between(std::chrono::hours(0), std::chrono::hours(9));
  const int drift =
      options.clocks_drift
          ? static_cast<int>(random.Between(uint64_t{0}, uint64_t{2 * kMaxDrift})) - kMaxDrift
          : 0;
  auto clock = std::make_unique<MachineClock>(loop, offset, drift);
  if (options.leases_stand_still) clock->StopLeasesWhileSuspended();
  return clock;
}

// Implements the calls of a job without evaluations.
class SimulatedScheduler::ServerCallerOnNetwork final : public ServerCaller {
 public:
  ServerCallerOnNetwork(SimulatedNetwork& network, EventLoop& loop,
                        std::shared_ptr<Incarnation> incarnation, const ClusterOptions& options)
      : options_(options), caller_(network, loop, std::move(incarnation)) {}

  void Call(const std::string& address, const std::string& rpc,
            const google::protobuf::Message& request, MonotonicDuration timeout,
            std::shared_ptr<google::protobuf::Message> response, Done done) override {
    if (rpc == kReleaseLogicalWorkerRpc.name) {
      const auto& release = dynamic_cast<const ReleaseLogicalWorkerRequest&>(request);
      options_.releasing(release.logical_worker(), release.incarnation());
    }
    if (rpc == kCheckpointRpc.name) {
      const auto& checkpoint = dynamic_cast<const CheckpointOnServerRequest&>(request);
      options_.checkpoint_begins(checkpoint.step(), checkpoint.is_final());
    }
    caller_.Call(
        address, "/pawl.ServerControl/" + rpc, EncodeSmall(request).bytes, timeout,
        [response, done = std::move(done)](absl::Status status, IncomingMessage answer) mutable {
          std::string bytes(answer.bytes.size(), '\0');
          answer.bytes.CopyTo(bytes.data());
          if (status.ok() && !response->ParseFromString(bytes)) std::abort();
          done(std::move(status));
        });
  }

 private:
  const ClusterOptions& options_;
  SimulatedCaller caller_;
};

// The objects of a live process: first those that rebuild, then those that run the job.
struct SimulatedScheduler::Process {
  std::unique_ptr<RebuildCensus> census;
  std::unique_ptr<Rebuild> rebuild;
  std::unique_ptr<ServerCallerOnNetwork> caller;
  std::unique_ptr<Coordinator> coordinator;
  bool saving = false;
  // Once the job has ended: no longer than until then the process waits for the nodes to hear of
  // it.
  std::optional<MonotonicDuration> lingers_until;
  bool closing = false;
  // The checkpoint whose manifest is to be written.
  std::optional<CheckpointManifest> unwritten;
};

SimulatedScheduler::SimulatedScheduler(EventLoop& loop, SimulatedNetwork& network,
                                       SeededRandom& random, const ClusterOptions& options,
                                       World world)
    : loop_(loop),
      network_(network),
      random_(random),
      options_(options),
      world_(std::move(world)),
      clock_(DrawClock(loop, random, options)),
      lease_(options.lease),
      job_id_(kJobId) {}

SimulatedScheduler::~SimulatedScheduler() { Kill(); }

void SimulatedScheduler::Start() {
  Kill();
  clock_->Resume();
  incarnation_ = std::make_shared<Incarnation>("scheduler", kSchedulerSite);
  process_ = std::make_unique<Process>();
  network_.Listen(
      kSchedulerAddress, incarnation_,
      [this](const std::string& rpc, const IncomingMessage& request, MonotonicDuration timeout,
             std::shared_ptr<const std::atomic<bool>>,
             SimulatedNetwork::Reply reply) { Receive(rpc, request, timeout, std::move(reply)); });
  if (state_is_lost_) return StartRebuild();
  StartCoordinator();
}

void SimulatedScheduler::StartCoordinator() {
  process_->caller =
      std::make_unique<ServerCallerOnNetwork>(network_, loop_, incarnation_, options_);
  Coordinator::Options options;
  options.job = options_.job;
  options.servers = static_cast<uint32_t>(options_.servers);
  options.heartbeat_interval = options_.heartbeat_interval;
  options.lease = lease_;
  options.start_timeout = kNever;
  options.worker_return_timeout = kNever;
  options.recovery_timeout = kNever;
  options.state_changed = [this, incarnation = incarnation_] {
    if (process_->saving) return;
    process_->saving = true;
    loop_.Schedule(MonotonicDuration::zero(), incarnation, "save", [this] { BeginSave(); });
  };
  options.state_is_outdated = [this](const std::string& why) { violation_ = why; };
  SchedulerState state;
  const Startup startup{.job = "job", .place = "store", .restore = restore_};
  if (!saved_.empty()) {
    auto resumed = StateToResume(StoredState{1, saved_}, options, startup);
    if (!resumed.ok() || !resumed->has_value()) {
      violation_ = absl::StrCat("the scheduler does not continue its job: ",
                                resumed.ok() ? "it begins another" : resumed.status().ToString());
      return;
    }
    state = **std::move(resumed);
    CheckState(state);
    if (state.closed()) return EndProcess();
    starts_while_finishing_ += state.state() == FINISHING;
    starts_after_completion_ += state.state() == COMPLETED;
  }
  options.job_id = saved_.empty() ? job_id_ : state.job_id();
  if (options_.files != nullptr) {
    absl::Status prepared;
    if (saved_.empty()) prepared = PrepareCheckpoints(*options_.files, startup, options);
    if (prepared.ok() && options.restore.has_value()) {
      prepared =
          SetAsideAndLogLaterCheckpoints(*options_.files, options.job, job_id_, *options.restore);
    }
    if (!prepared.ok()) {
      violation_ = prepared.ToString();
      return;
    }
    options.write_checkpoint = [this](const std::string& dir, CheckpointManifest manifest,
                                      uint32_t keep, auto done) {
      WriteCheckpoint(dir, std::move(manifest), keep, std::move(done));
    };
  }
  if (options_.scheduler_forgets_leases) state.clear_longest_lease_ms();
  process_->coordinator = std::make_unique<Coordinator>(
      std::move(options), *clock_, *process_->caller, saved_.empty() ? nullptr : &state);
  NoteCompletion();
  Tick();
}

void SimulatedScheduler::Kill() {
  routing_changed_ = true;
  if (incarnation_ == nullptr) return;
  incarnation_->alive = false;
  network_.OnDeath(incarnation_);
  if (process_->unwritten.has_value() && random_.Chance(0.5)) {
    options_.files->CutPowerAfter(static_cast<int64_t>(random_.Below(kMostOperations)));
    const auto folder = CompleteCheckpoint(*options_.files, kCheckpoints, *process_->unwritten);
    options_.files->KillProcesses();
    if (folder.ok()) options_.checkpoint_completed(*process_->unwritten);
  }
  process_.reset();
  incarnation_ = nullptr;
}

void SimulatedScheduler::StartFrom(const std::string& checkpoint) {
  Kill();
  saved_.clear();
  ++job_id_;
  restore_ = checkpoint;
  has_completed_ = has_closed_ = false;
  finished_ranks_.clear();
  Start();
}

SchedulerState SimulatedScheduler::Saved() const {
  SchedulerState state;
  if (!state.ParseFromString(saved_)) std::abort();
  return state;
}

void SimulatedScheduler::WriteCheckpoint(
    const std::string& dir, CheckpointManifest manifest, uint32_t keep,
    absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) {
  process_->unwritten = manifest;
  const auto delay = [this] {
    return random_.Between(MonotonicDuration::zero(), std::chrono::milliseconds(100));
  };
  loop_.Schedule(delay(), incarnation_, "manifest",
                 [=, this, written = std::move(manifest), done = std::move(done)]() mutable {
                   process_->unwritten.reset();
                   auto folder = CompleteCheckpoint(*options_.files, dir, written);
                   loop_.Note(absl::StrCat("checkpoint of step ", written.step(), ": ",
                                           folder.ok() ? "complete" : folder.status().ToString()));
                   if (folder.ok()) options_.checkpoint_completed(written);
                   loop_.Schedule(delay(), incarnation_, "manifest is reported",
                                  [=, this, done = std::move(done)]() mutable {
                                    const bool is_complete = folder.ok();
                                    done(std::move(folder));
                                    if (!is_complete || keep == 0) return;
                                    CheckpointStore store(*options_.files, dir);
                                    store.DeleteOld(written.job_name(), keep).IgnoreError();
                                  });
                 });
}

void SimulatedScheduler::LoseState() {
  Kill();
  saved_.clear();
  state_is_lost_ = true;
}

// As in main.cc.
void SimulatedScheduler::StartRebuild() {
  RebuildOptions options;
  options.job = options_.job;
  options.servers = static_cast<uint32_t>(options_.servers);
  options.without = {rebuild_without_.begin(), rebuild_without_.end()};
  options.unix_ms =
      kUnixMsAtBegin +
      static_cast<uint64_t>(
          std::chrono::duration_cast<std::chrono::milliseconds>(loop_.elapsed()).count());
  process_->census = std::make_unique<RebuildCensus>();
  process_->rebuild = std::make_unique<Rebuild>(std::move(options), kRebuildTimeout, clock_->Now());
  TickRebuild();
}

void SimulatedScheduler::TickRebuild() {
  loop_.Schedule(kTickInterval, incarnation_, "rebuilding", [this] {
    const auto rebuilt = process_->rebuild->Poll(process_->census->Registrations(), clock_->Now());
    if (!rebuilt.has_value()) return TickRebuild();
    if (!rebuilt->ok()) return OnRefusal(rebuilt->status());
    if (!lost_partitions_.empty()) {
      violation_ = absl::StrCat("the state was rebuilt although no server has partitions ",
                                absl::StrJoin(lost_partitions_, ", "));
    }
    if ((*rebuilt)->job_id() != job_id_) violation_ = "the rebuilt state belongs to another job";
    loop_.Schedule(random_.Between(std::chrono::microseconds(50), std::chrono::milliseconds(3)),
                   incarnation_, "saved",
                   [this, bytes = (*rebuilt)->SerializeAsString()]() mutable {
                     loop_.Note("the scheduler has rebuilt its state");
                     ++rebuilds_;
                     saved_ = std::move(bytes);
                     state_is_lost_ = false;
                     rebuild_without_.clear();
                     StartCoordinator();
                   });
  });
}

// The process ends, and its operator reads the reason.
void SimulatedScheduler::OnRefusal(const absl::Status& why) {
  ++refusals_;
  const std::string message(why.message());
  loop_.Note(absl::StrCat("the scheduler refuses to rebuild: ", message));
  std::set<uint32_t> lost;
  for (const std::string& number : NamedAfter(message, "in-sync replica of partitions ", ", ")) {
    uint32_t partition = 0;
    if (absl::SimpleAtoi(number, &partition)) lost.insert(partition);
  }
  // No server has run since, so none knows who was in sync.
  const bool none_knows = message.find("no server that holds a job") != std::string::npos &&
                          !world_.any_server_has_routing();
  if ((!lost.empty() && lost == lost_partitions_) || none_knows) {
    refused_permanently_ = true;
    return;
  }
  // All in-sync servers are away, and the scheduler still waits for one of them.
  const std::vector<std::string> wanted =
      NamedAfter(message.substr(0, message.find(" again")), "; start ", " or ");
  const std::vector<RegisterRequest> registrations = process_->census->Registrations();
  const bool some_return = std::any_of(wanted.begin(), wanted.end(), [&](const std::string& node) {
    const bool is_heard =
        std::any_of(registrations.begin(), registrations.end(),
                    [&](const RegisterRequest& one) { return one.node() == node; });
    return !is_heard && !world_.is_lost(node);
  });
  if (!lost.empty() && !some_return) {
    violation_ = absl::StrCat("the scheduler does not continue (", message,
                              "), though servers have all partitions but ",
                              absl::StrJoin(lost_partitions_, ", "));
    return;
  }
  for (const std::string& node : NamedAfter(message, "--rebuild_without=", ",")) {
    if (world_.is_lost(node)) rebuild_without_.insert(node);
  }
  loop_.Schedule(kRestartPause, incarnation_, "operator", [this] { Start(); });
}

void SimulatedScheduler::ReceiveInRebuild(const std::string& rpc, const IncomingMessage& request,
                                          SimulatedNetwork::Reply reply) {
  const auto answer = [&] {
    if (rpc == "/pawl.Scheduler/Heartbeat")
      return process_->census->OnHeartbeat(MustParse<HeartbeatRequest>(request));
    if (rpc == "/pawl.Scheduler/Register")
      return process_->census->OnRegister(MustParse<RegisterRequest>(request));
    return RebuildCensus::OnOtherCall();
  };
  reply(answer(), OutgoingMessage());
}

void SimulatedScheduler::Tick() {
  loop_.Schedule(kTickInterval, incarnation_, "scheduler's tick", [this] {
    routing_changed_ = true;
    process_->coordinator->Tick();
    if (failure_.empty() && process_->coordinator->state() == FAILED) {
      failure_ = process_->coordinator->GetStatus().failure();
      if (failure_.empty()) failure_ = "the scheduler gives no reason";
      loop_.Note(absl::StrCat("the job has failed: ", failure_));
    }
    MaybeClose();
    Tick();
  });
}

void SimulatedScheduler::CheckState(const SchedulerState& state) {
  if (has_completed_ && state.state() != COMPLETED)
    violation_ = absl::StrCat("a job that has completed is ", JobState_Name(state.state()));
  for (const uint32_t rank : finished_ranks_) {
    if (!state.ranks().ranks(static_cast<int>(rank)).finished())
      violation_ = absl::StrCat("rank ", rank, ", which has finished, is expected to train");
  }
}

void SimulatedScheduler::NoteCompletion() {
  // The status has the state that nodes are told.
  if (has_completed_ || state() != COMPLETED ||
      process_->coordinator->GetStatus().state() != COMPLETED)
    return;
  loop_.Note("the job has completed");
  has_completed_ = true;
}

void SimulatedScheduler::OnToldOfCompletion(const std::string& process) {
  if (!has_completed_)
    violation_ = absl::StrCat(process, " was told that the job has completed, but it has not");
}

void SimulatedScheduler::MaybeClose() {
  Process& process = *process_;
  if (!process.coordinator->ended() || state() != COMPLETED) return;
  if (process.closing) return EndProcess();
  if (!process.lingers_until.has_value()) {
    process.lingers_until =
        loop_.elapsed() + random_.Between(std::chrono::milliseconds(500), std::chrono::seconds(5));
  }
  if (!process.coordinator->AllNodesGone() && loop_.elapsed() < *process.lingers_until) return;
  process.closing = true;
  process.coordinator->Close();
}

void SimulatedScheduler::EndProcess() {
  loop_.Schedule(MonotonicDuration::zero(), incarnation_, "end of the process", [this] {
    loop_.Note("the scheduler has ended with its job");
    has_closed_ = true;
    Kill();
  });
}

JobState SimulatedScheduler::state() const {
  return process_ == nullptr || process_->coordinator == nullptr ? JOB_STATE_UNSPECIFIED
                                                                 : process_->coordinator->state();
}

// The store takes time, and the scheduler hears of its completion later. It may die at any point in
// between.
void SimulatedScheduler::BeginSave() {
  std::optional<UnsavedState> unsaved = process_->coordinator->TakeUnsaved();
  if (!unsaved.has_value()) {
    process_->saving = false;
    return;
  }
  const MonotonicDuration most = std::chrono::milliseconds(random_.Chance(0.02) ? 300 : 3);
  const std::shared_ptr<Incarnation> incarnation = incarnation_;
  CheckState(unsaved->state);
  loop_.Schedule(random_.Between(std::chrono::microseconds(50), most), incarnation, "saved",
                 [this, incarnation, most, change = unsaved->change,
                  bytes = unsaved->state.SerializeAsString()]() mutable {
                   saved_ = std::move(bytes);
                   loop_.Schedule(random_.Between(MonotonicDuration::zero(), most), incarnation,
                                  "save is reported", [this, change] {
                                    routing_changed_ = true;
                                    process_->coordinator->OnStateSaved(change);
                                    NoteCompletion();
                                    BeginSave();
                                  });
                 });
}

void SimulatedScheduler::Receive(const std::string& rpc, const IncomingMessage& request,
                                 MonotonicDuration timeout, SimulatedNetwork::Reply reply) {
  routing_changed_ = true;
  if (process_->coordinator == nullptr) return ReceiveInRebuild(rpc, request, std::move(reply));
  Coordinator& coordinator = *process_->coordinator;
  const auto pending = [&]<typename Request, typename Response>(
                           Ticket (Coordinator::*method)(const Request&, Done<Response>)) {
    const Ticket ticket =
        (coordinator.*method)(MustParse<Request>(request),
                              [reply = std::move(reply)](absl::StatusOr<Response> answer) mutable {
                                if (answer.ok()) {
                                  reply(absl::OkStatus(), EncodeSmall(*answer));
                                } else {
                                  reply(answer.status(), OutgoingMessage());
                                }
                              });
    if (ticket == 0) return;
    loop_.Schedule(timeout, incarnation_, "deadline of a call", [this, ticket] {
      process_->coordinator->Cancel(ticket, /*deadline_passed=*/true);
    });
  };
  if (rpc == "/pawl.Scheduler/Register") return pending(&Coordinator::Register);
  if (rpc == "/pawl.Scheduler/GetRouting") return pending(&Coordinator::GetRouting);
  if (rpc == "/pawl.Scheduler/CreateTable") return pending(&Coordinator::CreateTable);
  if (rpc == "/pawl.Scheduler/ConfirmRouting") return pending(&Coordinator::ConfirmRouting);
  if (rpc == "/pawl.Scheduler/Goodbye") return pending(&Coordinator::Goodbye);
  if (rpc == "/pawl.Scheduler/FinishWork") return pending(&Coordinator::FinishWork);
  if (rpc == "/pawl.Scheduler/ReportEvaluation") return pending(&Coordinator::ReportEvaluation);
  if (rpc == "/pawl.Scheduler/Heartbeat") {
    const auto answer = coordinator.Heartbeat(MustParse<HeartbeatRequest>(request));
    return reply(answer.status(), answer.ok() ? EncodeSmall(*answer) : OutgoingMessage());
  }
  std::abort();
}

std::optional<RoutingTable> SimulatedScheduler::PublishedRouting() {
  if (process_ == nullptr || process_->coordinator == nullptr) return std::nullopt;
  auto told = std::make_shared<std::optional<RoutingTable>>();
  const Ticket ticket = process_->coordinator->GetRouting(
      GetRoutingRequest(), [told](absl::StatusOr<RoutingTable> table) {
        if (table.ok()) *told = *std::move(table);
      });
  process_->coordinator->Cancel(ticket, /*deadline_passed=*/false);
  return *told;
}

uint64_t SimulatedScheduler::PublishedEpoch() {
  if (routing_changed_) {
    routing_changed_ = false;
    const auto routing = PublishedRouting();
    if (routing.has_value() && routing->epoch() != published_epoch_) NoteExchanges(*routing);
    published_epoch_ = routing.has_value() ? routing->epoch() : 0;
  }
  return published_epoch_;
}

void SimulatedScheduler::NoteExchanges(const RoutingTable& routing) {
  std::map<int, std::string> yielding;
  for (int p = 0; p < routing.replicas_size(); ++p) {
    const PartitionReplicas& replicas = routing.replicas(p);
    if (replicas.has_yielding())
      yielding[p] = routing.servers(static_cast<int>(replicas.yielding())).node();
    const auto former = yielding_.find(p);
    if (former == yielding_.end() || replicas.has_yielding()) continue;
    for (const uint32_t backup : replicas.backups()) {
      role_exchanges_ += routing.servers(static_cast<int>(backup)).node() == former->second;
    }
  }
  yielding_ = std::move(yielding);
}

}  // namespace pawl
