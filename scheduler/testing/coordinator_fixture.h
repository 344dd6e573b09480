// Runs a Coordinator with fake servers, a simulated clock and a store in memory.
#ifndef PAWL_SCHEDULER_TESTING_COORDINATOR_FIXTURE_H_
#define PAWL_SCHEDULER_TESTING_COORDINATOR_FIXTURE_H_

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/job/job_file.h"
#include "client_lib/rpc/routing_changes.h"
#include "client_lib/rpc/transport.h"
#include "client_lib/rpc/version.h"
#include "gtest/gtest.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/testing/fake_servers.h"

namespace pawl {

inline constexpr char kTraining[] = R"(
name: "flights"
data { train: "train.libsvm" eval: "eval.libsvm" format: LIBSVM }
model { fm { dim: 4 } }
optimizer { sgd { learning_rate: 0.1 } }
batch_size: 64
logical_workers: 4
partitions: 8
)";

// kTraining with these partitions and replicas, and `more` in it.
inline std::string TrainingJob(uint32_t partitions, uint32_t replicas,
                               const std::string& more = "") {
  return absl::StrReplaceAll(
      kTraining, {{"partitions: 8",
                   absl::StrCat("partitions: ", partitions, " replicas: ", replicas, " ", more)}});
}

// The answer to a call; nullopt while it waits.
template <typename Response>
using Answer = std::shared_ptr<std::optional<absl::StatusOr<Response>>>;

template <typename Response>
Answer<Response> NewAnswer() {
  return std::make_shared<std::optional<absl::StatusOr<Response>>>();
}

template <typename Response>
Done<Response> Into(Answer<Response> answer) {
  return [answer](absl::StatusOr<Response> response) {
    ASSERT_FALSE(answer->has_value()) << "answered twice";
    *answer = std::move(response);
  };
}

template <typename Response>
absl::StatusOr<Response> ResultOf(const Answer<Response>& answer) {
  return answer->has_value() ? **answer : absl::UnavailableError("no answer yet");
}

// A request of this node.
template <typename Request>
Request From(const RegisterResponse& node) {
  Request request;
  request.set_node(node.node());
  request.set_incarnation(node.incarnation());
  return request;
}

// One sample of each label; with `good`, the positive one has the higher score.
inline ReportEvaluationRequest EvaluationOf(const RegisterResponse& node, uint32_t rank,
                                            uint64_t evaluation, bool good) {
  auto request = From<ReportEvaluationRequest>(node);
  request.set_evaluation(evaluation);
  request.set_step(10 * evaluation);
  request.set_rank(rank);
  request.set_parts(1);
  const float scores[2] = {0.25f, 0.75f};
  request.set_scores(std::string(reinterpret_cast<const char*>(scores), sizeof(scores)));
  request.add_positives(good ? 0 : 1);
  request.add_positives(good ? 1 : 0);
  request.add_negatives(good ? 1 : 0);
  request.add_negatives(good ? 0 : 1);
  request.set_samples(2);
  request.set_correct(1);
  request.set_logloss_sum(1.5);
  return request;
}

// A node as the scheduler sees it.
struct FakeNode {
  RegisterResponse registration;
  RegisterRequest request;
  // Dead, or unreachable.
  bool silent = false;
  // A server that was told to end; it leaves once it has no replicas.
  bool draining = false;
  // A server adopts each routing that it receives, and its learners have caught up by its next
  // heartbeat.
  bool adopts = true;
  bool feeds = true;
  // A server confirms each routing that it adopts.
  bool confirms = true;
  // ABORTED makes the node silent; otherwise it is an error of the test.
  bool may_be_disowned = false;
  RoutingTable routing;

  const std::string& name() const { return registration.node(); }
};

// The replicas of one partition, by the names of their servers.
struct Replicas {
  std::string primary;
  std::vector<std::string> backups;
  std::vector<std::string> learners;
  uint64_t primary_since = 0;

  bool InSync(const std::string& server) const {
    return primary == server || std::find(backups.begin(), backups.end(), server) != backups.end();
  }
  bool Has(const std::string& server) const {
    return InSync(server) || std::find(learners.begin(), learners.end(), server) != learners.end();
  }
  size_t in_sync() const { return !primary.empty() + backups.size(); }
};

inline std::vector<Replicas> ReplicasIn(const RoutingTable& routing) {
  const auto name = [&](uint32_t server) {
    return server < static_cast<uint32_t>(routing.servers_size())
               ? routing.servers(static_cast<int>(server)).node()
               : std::string();
  };
  std::vector<Replicas> all;
  for (int partition = 0; partition < routing.primary_size(); ++partition) {
    Replicas& set = all.emplace_back();
    set.primary = name(routing.primary(partition));
    for (const uint32_t backup : routing.replicas(partition).backups())
      set.backups.push_back(name(backup));
    for (const uint32_t learner : routing.replicas(partition).learners())
      set.learners.push_back(name(learner));
    set.primary_since = routing.replicas(partition).primary_since();
  }
  return all;
}

// "server-0 server-1 (server-2)", the learner in brackets; "-" for no primary.
inline std::string ReplicasText(const Replicas& set) {
  std::string text = set.primary.empty() ? "-" : set.primary;
  for (const std::string& backup : set.backups) absl::StrAppend(&text, " ", backup);
  for (const std::string& learner : set.learners) absl::StrAppend(&text, " (", learner, ")");
  return text;
}

class CoordinatorFixture : public testing::Test {
 protected:
  // Starts the job; `change` may change the other options.
  void Begin(const std::string& job_text, uint32_t servers, uint32_t workers,
             const std::function<void(Coordinator::Options&)>& change = nullptr) {
    options_.job = *ParseJob(job_text, "test.job");
    FillDefaults(options_.job, workers);
    options_.job_id = 99;
    options_.servers = servers;
    options_.workers = workers;
    options_.write_report = [this](const JobReport& report) {
      reports_.push_back(report);
      return write_result_;
    };
    if (change != nullptr) change(options_);
    coordinator_ = std::make_unique<Coordinator>(options_, clock_, servers_);
  }

  // The same with a store: state is saved before it is published, at once unless HoldSaves was
  // called.
  void BeginWithStore(const std::string& job_text, uint32_t servers, uint32_t workers,
                      const std::function<void(Coordinator::Options&)>& change = nullptr) {
    Begin(job_text, servers, workers, [&](Coordinator::Options& options) {
      options.state_changed = [this] { state_has_changed_ = true; };
      if (change != nullptr) change(options);
    });
  }

  // The scheduler dies with its unsaved changes; after `pause` another one starts from the saved
  // state.
  void Restart(MonotonicDuration pause = std::chrono::seconds(30)) {
    // Answers to the old scheduler's calls are lost.
    servers_.Forget();
    coordinator_.reset();
    state_has_changed_ = false;
    clock_.Advance(pause);
    SchedulerState state;
    ASSERT_TRUE(state.ParseFromString(saved_));
    coordinator_ = std::make_unique<Coordinator>(options_, clock_, servers_, &state);
  }

  // No more saves, or none after `saves` more.
  void HoldSaves() { hold_saves_ = true; }
  void HoldSavesAfter(int saves) { saves_left_ = saves; }
  void ReleaseSaves() {
    hold_saves_ = false;
    saves_left_.reset();
    Save();
  }
  void Save() {
    while (state_has_changed_ && !hold_saves_) {
      if (saves_left_.has_value() && (*saves_left_)-- == 0) {
        hold_saves_ = true;
        return;
      }
      ++saves_;
      state_has_changed_ = false;
      std::optional<UnsavedState> unsaved = coordinator_->TakeUnsaved();
      if (!unsaved.has_value()) continue;
      saved_ = unsaved->state.SerializeAsString();
      coordinator_->OnStateSaved(unsaved->change);
    }
  }
  SchedulerState Saved() const {
    SchedulerState state;
    EXPECT_TRUE(state.ParseFromString(saved_));
    return state;
  }

  // Begins a call; ticket_ is then its ticket.
  template <typename Request, typename Response>
  Answer<Response> Call(Ticket (Coordinator::*method)(const Request&, Done<Response>),
                        const Request& request) {
    auto answer = NewAnswer<Response>();
    ticket_ = (*coordinator_.*method)(request, Into(answer));
    Save();
    return answer;
  }

  static RegisterRequest Registration(Role role, uint64_t nonce, std::vector<uint32_t> ranks = {}) {
    RegisterRequest request;
    request.set_role(role);
    request.set_process_nonce(nonce);
    request.set_newest_protocol(kNewestProtocol);
    request.set_description(absl::StrCat("host pid ", nonce));
    if (role == SERVER_ROLE) request.set_address(absl::StrCat("s:", nonce));
    for (const uint32_t rank : ranks) request.add_logical_workers(rank);
    return request;
  }

  absl::StatusOr<RegisterResponse> Register(const RegisterRequest& request) {
    return ResultOf(Call(&Coordinator::Register, request));
  }

  RegisterResponse Join(Role role, std::vector<uint32_t> ranks = {}) {
    return JoinBy(Registration(role, ++nonce_, std::move(ranks)));
  }
  RegisterResponse JoinBy(const RegisterRequest& request) {
    const absl::StatusOr<RegisterResponse> response = Register(request);
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok()) return RegisterResponse();
    Add(request, *response);
    // As NodeLink does.
    if (request.role() == SERVER_ROLE) {
      EXPECT_TRUE(Beat(*response).ok());
    }
    Save();
    return *response;
  }
  // The job runs, with these servers and one worker, which is the last of nodes_.
  void JoinAll(uint32_t servers) {
    for (uint32_t i = 0; i < servers; ++i) Join(SERVER_ROLE);
    worker_ = Join(WORKER_ROLE);
    Pass(std::chrono::milliseconds(100));
    ASSERT_EQ(Status().state(), RUNNING);
  }
  void Add(const RegisterRequest& request, const RegisterResponse& response) {
    FakeNode node;
    node.registration = response;
    node.request = request;
    for (FakeNode& other : nodes_) {
      if (other.name() != node.name()) continue;
      other = node;
      return;
    }
    nodes_.push_back(node);
  }

  // Another process continues the node, with these partitions from its data directory; the former
  // process is dead. Returns when the scheduler has accepted that.
  absl::StatusOr<RegisterResponse> ComeBack(const std::string& name,
                                            const std::vector<uint32_t>& recovered = {}) {
    const RegisterRequest request = Return(name, ++nonce_, recovered);
    Kill(name);
    absl::StatusOr<RegisterResponse> response = Register(request);
    while (absl::IsUnavailable(response.status()) &&
           response.status().GetPayload(kPushbackPayloadUrl).has_value()) {
      Pass(kTickInterval);
      response = Register(request);
    }
    if (response.ok()) Add(request, *response);
    return response;
  }
  RegisterRequest Return(const std::string& name, uint64_t nonce,
                         const std::vector<uint32_t>& recovered = {}) {
    RegisterRequest request = Registration(NodeNamed(name).request.role(), nonce);
    request.set_node(name);
    request.set_job_id(options_.job_id);
    for (const uint32_t partition : recovered) request.add_recovered()->set_partition(partition);
    return request;
  }
  // The partitions that the server has in sync by its adopted routing.
  std::vector<uint32_t> InSyncAt(const std::string& name) {
    std::vector<uint32_t> partitions;
    const std::vector<Replicas> all = ReplicasIn(NodeNamed(name).routing);
    for (uint32_t partition = 0; partition < all.size(); ++partition) {
      if (all[partition].InSync(name)) partitions.push_back(partition);
    }
    return partitions;
  }

  FakeNode& NodeNamed(const std::string& name) {
    for (FakeNode& node : nodes_) {
      if (node.name() == name) return node;
    }
    ADD_FAILURE() << "no node " << name;
    return nodes_.emplace_back();
  }
  void Kill(const std::string& name) { NodeNamed(name).silent = true; }

  absl::StatusOr<HeartbeatResponse> Beat(const RegisterResponse& node) {
    return coordinator_->Heartbeat(From<HeartbeatRequest>(node));
  }

  absl::StatusOr<HeartbeatResponse> Beat(FakeNode& node) {
    auto request = From<HeartbeatRequest>(node.registration);
    request.set_draining(node.draining);
    request.set_routing_epoch(node.routing.epoch());
    if (node.feeds) AddCaughtUp(node, request);
    absl::StatusOr<HeartbeatResponse> response = coordinator_->Heartbeat(request);
    Save();
    if (!response.ok() || node.request.role() != SERVER_ROLE) return response;
    node.draining = node.draining || response->drain();
    if (node.adopts && response->routing_epoch() > node.routing.epoch()) {
      const auto routing =
          GetRouting(node.routing.epoch(), /*accepts_changes=*/node.routing.epoch() > 0);
      if (routing->has_value() && (*routing)->ok()) {
        if ((**routing)->since_epoch() == 0) {
          node.routing = Noted(***routing);
        } else {
          const absl::StatusOr<RoutingTable> whole = ApplyRoutingChanges(node.routing, ***routing);
          EXPECT_TRUE(whole.ok()) << whole.status();
          if (whole.ok()) node.routing = Noted(*whole);
          ++routing_changes_;
        }
      }
    }
    if (node.confirms && node.routing.epoch() > 0) Confirm(node).IgnoreError();
    const std::vector<Replicas> all = ReplicasIn(node.routing);
    if (node.draining && std::none_of(all.begin(), all.end(),
                                      [&](const Replicas& set) { return set.Has(node.name()); })) {
      node.silent = Goodbye(node.registration).ok();
      EXPECT_TRUE(node.silent || hold_saves_);
    }
    return response;
  }
  absl::Status Confirm(const FakeNode& node) {
    auto request = From<ConfirmRoutingRequest>(node.registration);
    request.set_epoch(node.routing.epoch());
    return ResultOf(Call(&Coordinator::ConfirmRouting, request)).status();
  }
  static void AddCaughtUp(const FakeNode& node, HeartbeatRequest& request) {
    const std::vector<Replicas> all = ReplicasIn(node.routing);
    for (uint32_t partition = 0; partition < all.size(); ++partition) {
      if (all[partition].primary != node.name()) continue;
      for (const uint32_t learner : node.routing.replicas(static_cast<int>(partition)).learners()) {
        CaughtUpReplica& replica = *request.add_caught_up();
        replica.set_partition(partition);
        replica.set_node(node.routing.servers(static_cast<int>(learner)).node());
        replica.set_incarnation(node.routing.servers(static_cast<int>(learner)).incarnation());
      }
    }
  }

  // Time passes as it does in the process: ticks, and heartbeats of all who live.
  void Pass(MonotonicDuration duration) {
    for (MonotonicDuration passed{}; passed < duration; passed += kTickInterval) {
      clock_.Advance(kTickInterval);
      for (FakeNode& node : nodes_) {
        if (node.silent) continue;
        const absl::Status status = Beat(node).status();
        if (node.may_be_disowned && absl::IsAborted(status)) node.silent = true;
        EXPECT_TRUE(node.silent || !absl::IsAborted(status))
            << "declared dead in its incarnation: " << status;
      }
      coordinator_->Tick();
      Save();
      if (each_tick_ != nullptr) each_tick_();
    }
  }

  Answer<RoutingTable> GetRouting(uint64_t newer_than = 0, bool accepts_changes = false) {
    GetRoutingRequest request;
    request.set_newer_than_epoch(newer_than);
    request.set_accepts_changes(accepts_changes);
    return Call(&Coordinator::GetRouting, request);
  }
  RoutingTable Routing() {
    const auto answer = GetRouting();
    EXPECT_TRUE(answer->has_value() && (*answer)->ok());
    return answer->has_value() && (*answer)->ok() ? Noted(***answer) : RoutingTable();
  }
  const RoutingTable& Noted(const RoutingTable& table) {
    // Across all restarts of the scheduler.
    EXPECT_GE(table.epoch(), told_.empty() ? 0 : told_.rbegin()->first) << "the epoch fell";
    const std::string& told =
        told_.try_emplace(table.epoch(), table.SerializeAsString()).first->second;
    EXPECT_EQ(table.SerializeAsString(), told) << "two tables of epoch " << table.epoch();
    if (options_.state_changed != nullptr) {
      EXPECT_LE(table.epoch(), Saved().placement().epoch()) << "published and not saved";
    }
    return table;
  }
  std::vector<Replicas> Sets() { return ReplicasIn(Routing()); }
  // "server-0 server-1 | server-1 -", by partition.
  std::string SetsText() {
    return absl::StrJoin(Sets(), " | ",
                         [](std::string* out, const Replicas& set) { *out += ReplicasText(set); });
  }

  Answer<GetAssignmentResponse> GetAssignment(const RegisterResponse& node) {
    return Call(&Coordinator::GetAssignment, From<GetAssignmentRequest>(node));
  }
  // The call of a worker that has its data.
  Answer<GetAssignmentResponse> GetAssignmentWhenReady(const RegisterResponse& worker,
                                                       uint64_t newer_than = 0) {
    auto request = From<GetAssignmentRequest>(worker);
    request.set_newer_than_version(newer_than);
    request.set_ready(true);
    return Call(&Coordinator::GetAssignment, request);
  }
  RegisterResponse JoinFollower(bool ready = true) {
    RegisterRequest request = Registration(WORKER_ROLE, ++nonce_);
    request.set_follows_assignment(true);
    RegisterResponse response = JoinBy(request);
    if (ready) GetAssignmentWhenReady(response, /*newer_than=*/1000);
    return response;
  }
  // "0 1"; empty while there is no answer.
  std::string RanksOf(const RegisterResponse& node) {
    const auto answer = GetAssignment(node);
    if (!answer->has_value() || !(*answer)->ok()) return "";
    std::string text;
    for (const LogicalWorkerAssignment& rank : (**answer)->logical_workers()) {
      absl::StrAppend(&text, text.empty() ? "" : " ", rank.rank());
    }
    return text;
  }

  Answer<CreateTableResponse> CreateTable(const std::string& name, uint32_t row_width = 4) {
    CreateTableRequest request;
    *request.mutable_table() = SparseTableSpec(name, row_width);
    return Call(&Coordinator::CreateTable, request);
  }
  int Tables() {
    return ResultOf(Call(&Coordinator::ListTables, ListTablesRequest()))->tables_size();
  }

  Answer<BarrierResponse> Barrier(const RegisterResponse& node, uint32_t parties, uint32_t party) {
    auto request = From<BarrierRequest>(node);
    request.set_name("b");
    request.set_parties(parties);
    request.set_party(party);
    return Call(&Coordinator::Barrier, request);
  }

  Answer<ReportEvaluationResponse> Report(const RegisterResponse& node, uint32_t rank,
                                          uint64_t evaluation, bool good) {
    return Call(&Coordinator::ReportEvaluation, EvaluationOf(node, rank, evaluation, good));
  }

  // A heartbeat with {rank, steps, samples} each.
  void Report(const RegisterResponse& worker,
              const std::vector<std::vector<uint64_t>>& rank_steps_samples) {
    auto request = From<HeartbeatRequest>(worker);
    for (const std::vector<uint64_t>& rank : rank_steps_samples) {
      RankProgress& progress = *request.mutable_worker()->add_ranks();
      progress.set_rank(static_cast<uint32_t>(rank[0]));
      progress.set_steps(rank[1]);
      progress.set_samples(rank[2]);
    }
    ASSERT_TRUE(coordinator_->Heartbeat(request).ok());
  }

  absl::Status GiveUp(const RegisterResponse& worker, const std::map<uint32_t, uint64_t>& ranks,
                      const WorkerProgress& progress = {}) {
    GiveUpRanksRequest request;
    *request.mutable_progress() = progress;
    request.set_node(worker.node());
    request.set_incarnation(worker.incarnation());
    for (const auto& [rank, incarnation] : ranks) {
      LogicalWorkerAssignment& given_up = *request.add_logical_workers();
      given_up.set_rank(rank);
      given_up.set_incarnation(incarnation);
    }
    return ResultOf(Call(&Coordinator::GiveUpRanks, request)).status();
  }
  static std::map<uint32_t, uint64_t> RanksIn(const Answer<GetAssignmentResponse>& answer) {
    std::map<uint32_t, uint64_t> ranks;
    if (!answer->has_value() || !(*answer)->ok()) return {{99, 0}};
    for (const LogicalWorkerAssignment& rank : (**answer)->logical_workers())
      ranks[rank.rank()] = rank.incarnation();
    return ranks;
  }

  Answer<ReportEvaluationResponse> Arrive(const RegisterResponse& node, uint32_t rank,
                                          uint64_t evaluation) {
    auto request = From<ReportEvaluationRequest>(node);
    request.set_evaluation(evaluation);
    request.set_step(10 * evaluation);
    request.set_rank(rank);
    request.set_arrives(true);
    return Call(&Coordinator::ReportEvaluation, request);
  }

  // All ranks report; returns the last answer.
  Answer<ReportEvaluationResponse> ReportAll(const RegisterResponse& node, uint64_t evaluation,
                                             bool good) {
    for (uint32_t rank = 0; rank < 3; ++rank) Report(node, rank, evaluation, good);
    return Report(node, 3, evaluation, good);
  }

  absl::Status Finish(const RegisterResponse& node, uint64_t samples = 100,
                      const std::string& failure = "") {
    auto request = From<FinishWorkRequest>(node);
    request.mutable_progress()->set_steps_min(20);
    request.mutable_progress()->set_steps_max(20);
    request.mutable_progress()->set_samples(samples);
    request.mutable_progress()->set_failure(failure);
    const GetStatusResponse all = Status();
    for (const NodeStatus& status : all.nodes()) {
      if (status.node() == node.node())
        *request.mutable_logical_workers() = status.logical_workers();
    }
    return ResultOf(Call(&Coordinator::FinishWork, request)).status();
  }

  absl::Status Goodbye(const RegisterResponse& node) {
    return ResultOf(Call(&Coordinator::Goodbye, From<GoodbyeRequest>(node))).status();
  }

  absl::Status StopJob(const std::string& reason) {
    StopJobRequest request;
    request.set_reason(reason);
    return ResultOf(Call(&Coordinator::StopJob, request)).status();
  }

  GetStatusResponse Status() { return coordinator_->GetStatus(); }

  SimulatedClock clock_;
  FakeServers servers_;
  std::vector<JobReport> reports_;
  absl::Status write_result_;
  Coordinator::Options options_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<FakeNode> nodes_;
  // The worker of a job that has one.
  RegisterResponse worker_;
  // All published routings, by epoch.
  std::map<uint64_t, std::string> told_;
  // The number of routings that nodes received as changes.
  int routing_changes_ = 0;
  std::function<void()> each_tick_;
  uint64_t nonce_ = 0;
  Ticket ticket_ = 0;

  bool state_has_changed_ = false;
  bool hold_saves_ = false;
  std::optional<int> saves_left_;
  int saves_ = 0;
  std::string saved_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_TESTING_COORDINATOR_FIXTURE_H_
