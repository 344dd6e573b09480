#include "tests/simulation/simulated_scheduler.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/rpc/codec.h"
#include "proto/scheduler_state.pb.h"
#include "proto/server_control.pb.h"
#include "scheduler/coordinator.h"
#include "scheduler/server_caller.h"
#include "tests/simulation/message_parsing.h"

namespace pawl {
namespace {

constexpr uint64_t kJobId = 0x5117;
// Timeouts that no schedule is to reach.
constexpr std::chrono::minutes kNever{60};

}  // namespace

std::unique_ptr<MachineClock> DrawClock(const EventLoop& loop, SeededRandom& random, const ClusterOptions& options) {
  const MonotonicDuration offset = random.Between(std::chrono::hours(0), std::chrono::hours(9));
  const int drift =
      options.clocks_drift ? static_cast<int>(random.Between(uint64_t{0}, uint64_t{2 * kMaxDrift})) - kMaxDrift : 0;
  auto clock = std::make_unique<MachineClock>(loop, offset, drift);
  if (options.leases_stand_still) clock->LetLeasesStandStill();
  return clock;
}

// Only what a job without evaluations needs.
class SimulatedScheduler::ServerCallerOnNetwork final : public ServerCaller {
 public:
  ServerCallerOnNetwork(SimulatedNetwork& network, EventLoop& loop, std::shared_ptr<Life> life, std::set<uint32_t>& released)
      : released_(released), caller_(network, loop, std::move(life)) {}

  void CreateTable(const std::string& address, const CreateTableOnServerRequest& request, MonotonicDuration timeout,
                   Done done) override {
    Call(address, "/pawl.ServerControl/CreateTable", request, timeout, std::move(done));
  }
  void Inspect(const std::string&, const InspectRequest&, MonotonicDuration, InspectDone) override { std::abort(); }
  void KeepBest(const std::string&, const KeepBestRequest&, MonotonicDuration, Done) override { std::abort(); }
  void RestoreBest(const std::string&, const RestoreBestRequest&, MonotonicDuration, Done) override { std::abort(); }
  void ReleaseLogicalWorker(const std::string& address, const ReleaseLogicalWorkerRequest& request,
                            MonotonicDuration timeout, Done done) override {
    released_.insert(request.logical_worker());
    Call(address, "/pawl.ServerControl/ReleaseLogicalWorker", request, timeout, std::move(done));
  }

 private:
  void Call(const std::string& address, const std::string& rpc, const google::protobuf::MessageLite& request,
            MonotonicDuration timeout, Done done) {
    caller_.Call(address, rpc, EncodeSmall(request).bytes, timeout,
                 [done = std::move(done)](absl::Status status, IncomingMessage) mutable { done(std::move(status)); });
  }

  std::set<uint32_t>& released_;
  SimulatedCaller caller_;
};

// The object that is there while the process lives.
struct SimulatedScheduler::Process {
  std::unique_ptr<ServerCallerOnNetwork> caller;
  std::unique_ptr<Coordinator> coordinator;
  bool saving = false;
};

SimulatedScheduler::SimulatedScheduler(EventLoop& loop, SimulatedNetwork& network, SeededRandom& random,
                                       const ClusterOptions& options)
    : loop_(loop),
      network_(network),
      random_(random),
      options_(options),
      clock_(DrawClock(loop, random, options)),
      lease_(options.lease) {}

SimulatedScheduler::~SimulatedScheduler() { Kill(); }

void SimulatedScheduler::Start() {
  Kill();
  clock_->Resume();
  life_ = std::make_shared<Life>("scheduler", kSchedulerSite);
  process_ = std::make_unique<Process>();
  process_->caller = std::make_unique<ServerCallerOnNetwork>(network_, loop_, life_, released_);
  Coordinator::Options options;
  options.job = options_.job;
  options.job_id = kJobId;
  options.servers = static_cast<uint32_t>(options_.servers);
  options.heartbeat_interval = options_.heartbeat_interval;
  options.lease = lease_;
  options.start_timeout = kNever;
  options.worker_return_timeout = kNever;
  options.recovery_timeout = kNever;
  options.state_changed = [this, life = life_] {
    if (process_->saving) return;
    process_->saving = true;
    loop_.Schedule(MonotonicDuration::zero(), life, "save", [this] { BeginSave(); });
  };
  SchedulerState state;
  if (!saved_.empty() && !state.ParseFromString(saved_)) std::abort();
  if (options_.scheduler_forgets_leases) state.clear_longest_lease_ms();
  process_->coordinator =
      std::make_unique<Coordinator>(std::move(options), *clock_, *process_->caller, saved_.empty() ? nullptr : &state);
  network_.Listen(kSchedulerAddress, life_,
                  [this](const std::string& rpc, const IncomingMessage& request, MonotonicDuration timeout,
                         std::shared_ptr<const std::atomic<bool>>,
                         SimulatedNetwork::Reply reply) { Receive(rpc, request, timeout, std::move(reply)); });
  Tick();
}

void SimulatedScheduler::Kill() {
  told_anew_ = true;
  if (life_ == nullptr) return;
  life_->alive = false;
  network_.Bury(life_);
  process_.reset();
  life_ = nullptr;
}

void SimulatedScheduler::Tick() {
  loop_.Schedule(kTickInterval, life_, "scheduler's tick", [this] {
    told_anew_ = true;
    process_->coordinator->Tick();
    if (failure_.empty() && process_->coordinator->state() == FAILED) {
      if (const auto status = process_->coordinator->GetStatus(GetStatusRequest()); status.ok()) {
        failure_ = status->failure();
      }
      if (failure_.empty()) failure_ = "the scheduler does not say why";
      loop_.Note(absl::StrCat("the job has failed: ", failure_));
    }
    Tick();
  });
}

// The store takes some time, and the scheduler hears of it later: it may die at any point in between.
void SimulatedScheduler::BeginSave() {
  std::optional<UnsavedState> unsaved = process_->coordinator->TakeUnsaved();
  if (!unsaved.has_value()) {
    process_->saving = false;
    return;
  }
  const MonotonicDuration most = std::chrono::milliseconds(random_.Chance(0.02) ? 300 : 3);
  const std::shared_ptr<Life> life = life_;
  loop_.Schedule(random_.Between(std::chrono::microseconds(50), most), life, "saved",
                 [this, life, most, change = unsaved->change, bytes = unsaved->state.SerializeAsString()]() mutable {
                   saved_ = std::move(bytes);
                   loop_.Schedule(random_.Between(MonotonicDuration::zero(), most), life, "save is known", [this, change] {
                     told_anew_ = true;
                     process_->coordinator->StateIsSaved(change);
                     BeginSave();
                   });
                 });
}

void SimulatedScheduler::Receive(const std::string& rpc, const IncomingMessage& request, MonotonicDuration timeout,
                                 SimulatedNetwork::Reply reply) {
  told_anew_ = true;
  Coordinator& coordinator = *process_->coordinator;
  const auto parked =
      [&]<typename Request, typename Response>(Ticket (Coordinator::*method)(const Request&, Done<Response>)) {
        const Ticket ticket = (coordinator.*method)(MustParse<Request>(request),
                                                    [reply = std::move(reply)](absl::StatusOr<Response> answer) mutable {
                                                      if (answer.ok()) {
                                                        reply(absl::OkStatus(), EncodeSmall(*answer));
                                                      } else {
                                                        reply(answer.status(), OutgoingMessage());
                                                      }
                                                    });
        if (ticket == 0) return;
        loop_.Schedule(timeout, life_, "deadline of a call",
                       [this, ticket] { process_->coordinator->Cancel(ticket, /*deadline_passed=*/true); });
      };
  if (rpc == "/pawl.Scheduler/Register") return parked(&Coordinator::Register);
  if (rpc == "/pawl.Scheduler/GetRouting") return parked(&Coordinator::GetRouting);
  if (rpc == "/pawl.Scheduler/CreateTable") return parked(&Coordinator::CreateTable);
  if (rpc == "/pawl.Scheduler/ConfirmRouting") return parked(&Coordinator::ConfirmRouting);
  if (rpc == "/pawl.Scheduler/Goodbye") return parked(&Coordinator::Goodbye);
  if (rpc == "/pawl.Scheduler/Heartbeat") {
    const auto answer = coordinator.Heartbeat(MustParse<HeartbeatRequest>(request));
    return reply(answer.status(), answer.ok() ? EncodeSmall(*answer) : OutgoingMessage());
  }
  std::abort();
}

std::optional<RoutingTable> SimulatedScheduler::ToldRouting() {
  if (process_ == nullptr) return std::nullopt;
  auto told = std::make_shared<std::optional<RoutingTable>>();
  const Ticket ticket = process_->coordinator->GetRouting(GetRoutingRequest(), [told](absl::StatusOr<RoutingTable> table) {
    if (table.ok()) *told = *std::move(table);
  });
  process_->coordinator->Cancel(ticket, /*deadline_passed=*/false);
  return *told;
}

uint64_t SimulatedScheduler::ToldEpoch() {
  if (told_anew_) {
    told_anew_ = false;
    const auto routing = ToldRouting();
    told_epoch_ = routing.has_value() ? routing->epoch() : 0;
  }
  return told_epoch_;
}

}  // namespace pawl
