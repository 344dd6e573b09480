// A Coordinator with fake servers, a clock that the test advances and a store that the test fills.
#ifndef PAWL_SCHEDULER_COORDINATOR_FIXTURE_H_
#define PAWL_SCHEDULER_COORDINATOR_FIXTURE_H_

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/simulated_clock.h"
#include "client_lib/job/job_file.h"
#include "gtest/gtest.h"
#include "scheduler/coordinator.h"
#include "scheduler/fake_servers.h"

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

// What came of a call that may wait.
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

// What a node says with its heartbeats, and whether it lives.
struct FakeNode {
  RegisterResponse registration;
  RegisterRequest request;
  bool silent = false;
  bool draining = false;
  // Of a server: acts by the newest routing that it has heard of; else by none.
  bool adopts = true;
  uint64_t adopted_epoch = 0;
  std::vector<CaughtUpReplica> caught_up;

  const std::string& name() const { return registration.node(); }
};

class CoordinatorFixture : public testing::Test {
 protected:
  // The job begins; `change` may change what else there is to set.
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

  // The same with a store: what is told is saved before, at once as long as nobody calls HoldSaves.
  void BeginWithStore(const std::string& job_text, uint32_t servers, uint32_t workers,
                      const std::function<void(Coordinator::Options&)>& change = nullptr) {
    Begin(job_text, servers, workers, [&](Coordinator::Options& options) {
      options.state_changed = [this] { state_has_changed_ = true; };
      if (change != nullptr) change(options);
    });
  }

  // The scheduler dies, unsaved changes with it, and another one starts from what is saved after `pause`.
  void Restart(MonotonicDuration pause = std::chrono::seconds(30)) {
    // Calls of the old life find nobody.
    servers_.Forget();
    coordinator_.reset();
    state_has_changed_ = false;
    clock_.Advance(pause);
    SchedulerState state;
    ASSERT_TRUE(state.ParseFromString(saved_));
    coordinator_ = std::make_unique<Coordinator>(options_, clock_, servers_, &state);
  }

  void HoldSaves() { hold_saves_ = true; }
  void ReleaseSaves() {
    hold_saves_ = false;
    Save();
  }
  void Save() {
    while (state_has_changed_ && !hold_saves_) {
      state_has_changed_ = false;
      std::optional<UnsavedState> unsaved = coordinator_->TakeUnsaved();
      if (!unsaved.has_value()) continue;
      saved_ = unsaved->state.SerializeAsString();
      coordinator_->StateIsSaved(unsaved->change);
    }
  }
  SchedulerState Saved() const {
    SchedulerState state;
    EXPECT_TRUE(state.ParseFromString(saved_));
    return state;
  }

  static RegisterRequest Registration(Role role, uint64_t nonce, std::vector<uint32_t> ranks = {}) {
    RegisterRequest request;
    request.set_role(role);
    request.set_process_nonce(nonce);
    request.set_description(absl::StrCat("host pid ", nonce));
    if (role == SERVER_ROLE) request.set_address(absl::StrCat("s:", nonce));
    for (const uint32_t rank : ranks) request.add_logical_workers(rank);
    return request;
  }

  absl::StatusOr<RegisterResponse> Register(const RegisterRequest& request) {
    auto answer = NewAnswer<RegisterResponse>();
    coordinator_->Register(request, Into(answer));
    Save();
    return answer->has_value() ? **answer : absl::UnavailableError("no answer yet");
  }

  RegisterResponse Join(Role role, std::vector<uint32_t> ranks = {}) {
    return JoinBy(Registration(role, ++nonce_, std::move(ranks)));
  }
  RegisterResponse JoinBy(const RegisterRequest& request) {
    const absl::StatusOr<RegisterResponse> response = Register(request);
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok()) return RegisterResponse();
    FakeNode node;
    node.registration = *response;
    node.request = request;
    nodes_.push_back(node);
    return *response;
  }

  // Another process takes up the node, with these partitions from its data directory; the former one is dead.
  absl::StatusOr<RegisterResponse> ComeBack(const std::string& name, const std::vector<uint32_t>& recovered = {}) {
    FakeNode& node = NodeNamed(name);
    RegisterRequest request = Registration(node.request.role(), ++nonce_);
    request.set_node(name);
    request.set_job_id(options_.job_id);
    for (const uint32_t partition : recovered) request.add_recovered()->set_partition(partition);
    const absl::StatusOr<RegisterResponse> response = Register(request);
    if (!response.ok()) return response;
    FakeNode successor;
    successor.registration = *response;
    successor.request = request;
    node = successor;
    return response;
  }

  FakeNode& NodeNamed(const std::string& name) {
    for (FakeNode& node : nodes_) {
      if (node.name() == name) return node;
    }
    ADD_FAILURE() << "there is no " << name;
    return nodes_.emplace_back();
  }
  void Kill(const std::string& name) { NodeNamed(name).silent = true; }

  absl::StatusOr<HeartbeatResponse> Beat(const RegisterResponse& node) {
    HeartbeatRequest request;
    request.set_node(node.node());
    request.set_incarnation(node.incarnation());
    return coordinator_->Heartbeat(request);
  }

  absl::StatusOr<HeartbeatResponse> Beat(FakeNode& node) {
    HeartbeatRequest request;
    request.set_node(node.name());
    request.set_incarnation(node.registration.incarnation());
    request.set_draining(node.draining);
    request.set_routing_epoch(node.adopted_epoch);
    for (const CaughtUpReplica& replica : node.caught_up) *request.add_caught_up() = replica;
    const absl::StatusOr<HeartbeatResponse> response = coordinator_->Heartbeat(request);
    if (response.ok() && node.adopts) node.adopted_epoch = response->routing_epoch();
    Save();
    return response;
  }

  // Time passes as it does in the process: ticks, and heartbeats of all but `silent` and those killed.
  void Pass(MonotonicDuration duration, const std::string& silent = "") {
    for (MonotonicDuration passed{}; passed < duration; passed += kTickInterval) {
      clock_.Advance(kTickInterval);
      for (FakeNode& node : nodes_) {
        if (!node.silent && node.name() != silent) Beat(node).IgnoreError();
      }
      coordinator_->Tick();
      Save();
    }
  }

  Answer<RoutingTable> GetRouting(uint64_t newer_than = 0) {
    auto answer = NewAnswer<RoutingTable>();
    GetRoutingRequest request;
    request.set_newer_than_epoch(newer_than);
    ticket_ = coordinator_->GetRouting(request, Into(answer));
    Save();
    return answer;
  }
  RoutingTable Routing() {
    const auto answer = GetRouting();
    EXPECT_TRUE(answer->has_value() && (*answer)->ok());
    return answer->has_value() && (*answer)->ok() ? ***answer : RoutingTable();
  }

  Answer<GetAssignmentResponse> GetAssignment(const RegisterResponse& node) {
    auto answer = NewAnswer<GetAssignmentResponse>();
    GetAssignmentRequest request;
    request.set_node(node.node());
    request.set_incarnation(node.incarnation());
    ticket_ = coordinator_->GetAssignment(request, Into(answer));
    Save();
    return answer;
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
    auto answer = NewAnswer<CreateTableResponse>();
    CreateTableRequest request;
    request.mutable_table()->set_name(name);
    request.mutable_table()->set_kind(SPARSE);
    request.mutable_table()->set_row_width(row_width);
    ticket_ = coordinator_->CreateTable(request, Into(answer));
    Save();
    return answer;
  }
  int Tables() {
    auto answer = NewAnswer<ListTablesResponse>();
    coordinator_->ListTables(ListTablesRequest(), Into(answer));
    Save();
    EXPECT_TRUE(answer->has_value());
    return (**answer)->tables_size();
  }

  Answer<BarrierResponse> Barrier(const RegisterResponse& node, uint32_t parties, uint32_t party) {
    auto answer = NewAnswer<BarrierResponse>();
    BarrierRequest request;
    request.set_name("b");
    request.set_parties(parties);
    request.set_party(party);
    request.set_node(node.node());
    request.set_incarnation(node.incarnation());
    ticket_ = coordinator_->Barrier(request, Into(answer));
    Save();
    return answer;
  }

  // One sample of each label; with `good`, the positive one has the higher score.
  Answer<ReportEvaluationResponse> Report(const RegisterResponse& node, uint32_t rank, uint64_t evaluation, bool good) {
    auto answer = NewAnswer<ReportEvaluationResponse>();
    ReportEvaluationRequest request;
    request.set_node(node.node());
    request.set_incarnation(node.incarnation());
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
    ticket_ = coordinator_->ReportEvaluation(request, Into(answer));
    Save();
    return answer;
  }

  absl::Status Finish(const RegisterResponse& node, uint64_t samples = 100, const std::string& failure = "") {
    FinishWorkRequest request;
    request.set_node(node.node());
    request.set_incarnation(node.incarnation());
    request.mutable_progress()->set_steps_min(20);
    request.mutable_progress()->set_steps_max(20);
    request.mutable_progress()->set_samples(samples);
    request.mutable_progress()->set_failure(failure);
    auto answer = NewAnswer<FinishWorkResponse>();
    coordinator_->FinishWork(request, Into(answer));
    Save();
    return answer->has_value() ? (*answer)->status() : absl::UnavailableError("no answer yet");
  }

  absl::Status Goodbye(const RegisterResponse& node) {
    GoodbyeRequest request;
    request.set_node(node.node());
    request.set_incarnation(node.incarnation());
    auto answer = NewAnswer<GoodbyeResponse>();
    coordinator_->Goodbye(request, Into(answer));
    Save();
    return answer->has_value() ? (*answer)->status() : absl::UnavailableError("no answer yet");
  }

  absl::Status StopJob(const std::string& reason) {
    StopJobRequest request;
    request.set_reason(reason);
    auto answer = NewAnswer<StopJobResponse>();
    coordinator_->StopJob(request, Into(answer));
    Save();
    return answer->has_value() ? (*answer)->status() : absl::UnavailableError("no answer yet");
  }

  GetStatusResponse Status() { return *coordinator_->GetStatus(GetStatusRequest()); }

  SimulatedClock clock_;
  FakeServers servers_;
  std::vector<JobReport> reports_;
  absl::Status write_result_;
  Coordinator::Options options_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<FakeNode> nodes_;
  uint64_t nonce_ = 0;
  Ticket ticket_ = 0;

  bool state_has_changed_ = false;
  bool hold_saves_ = false;
  std::string saved_;
};

}  // namespace pawl

#endif  // PAWL_SCHEDULER_COORDINATOR_FIXTURE_H_
