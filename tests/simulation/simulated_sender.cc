#include "tests/simulation/simulated_sender.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "proto/scheduler.pb.h"
#include "tests/harness/ledger/ledger.h"
#include "tests/simulation/simulated_cluster.h"

namespace pawl {
namespace {

constexpr std::chrono::minutes kNever{60};
constexpr std::chrono::milliseconds kRestartPause{300};
// The timeout of one attempt of a call that could wait forever if its request or answer is lost,
// because connections do not break here.
constexpr std::chrono::seconds kAttempt{2};
constexpr int kMaxUnderWay = 4;
constexpr size_t kRowsInAudit = 300;
// In a job with thousands of ranks each pull reads the rows of some ranks.
constexpr size_t kMaxRanksInPull = 16;

}  // namespace

SimulatedSender::SimulatedSender(SenderWorld& world, std::string name, int site, Role role,
                                 std::vector<uint32_t> ranks)
    : world_(world),
      name_(std::move(name)),
      site_(site),
      role_(role),
      ranks_(std::move(ranks)),
      clock_(world.loop, world.random.Between(std::chrono::hours(0), std::chrono::hours(9))) {}

SimulatedSender::~SimulatedSender() { Kill(); }

void SimulatedSender::Start() {
  Kill();
  has_begun_ = false;
  incarnation_ = std::make_shared<Incarnation>(name_, site_);
  transport_ = std::make_unique<SimulatedTransport>(world_.network, world_.loop, incarnation_);
  control_ = std::make_unique<SimulatedControlChannel>(world_.network, world_.loop, incarnation_,
                                                       kSchedulerAddress);
  link_ = std::make_unique<SimulatedControlChannel>(world_.network, world_.loop, incarnation_,
                                                    kSchedulerAddress);
  ClientOptions options;
  options.scheduler = kSchedulerAddress;
  options.role = role_;
  options.logical_workers = ranks_;
  options.description = name_;
  options.connect_timeout = kNever;
  options.call_timeout = kNever;
  options.clock = &clock_;
  if (role_ == WORKER_ROLE && world_.random.Chance(0.7)) {
    options.node = node_;
    options.node_job_id = job_id_;
    options.node_start_count = ++starts_;
  }
  core_ = std::make_shared<ClientCore>(std::move(options), *transport_, *control_, *link_);
  core_->Join(InThisIncarnation([this](absl::Status status) {
    if (!status.ok()) return Exit(status);
    node_ = core_->registration().node();
    job_id_ = core_->registration().job_id();
    CreateTable();
  }));
}

void SimulatedSender::CreateTable() {
  auto request = std::make_shared<CreateTableRequest>();
  *request->mutable_table() = LedgerTable("ledger", 1);
  if (world_.schedule.assigns) {
    Optimizer::Momentum& momentum =
        *request->mutable_table()->mutable_optimizer()->mutable_momentum();
    momentum.set_learning_rate(1);
    momentum.set_momentum(SimLedger::kMomentum);
  }
  auto response = std::make_shared<CreateTableResponse>();
  core_->scheduler_calls().Call(
      "CreateTable", std::move(request), response, core_->Deadline({}),
      core_->Count(InThisIncarnation([this, response](absl::Status status) {
        if (!status.ok()) return Exit(status);
        table_ = Table(response->table());
        Later([this] {
          has_begun_ = true;
          Begin();
        });
      })),
      kAttempt);
}

void SimulatedSender::Kill() {
  if (incarnation_ == nullptr) return;
  incarnation_->alive = false;
  world_.network.OnDeath(incarnation_);
  core_->Close();
  core_.reset();
  link_.reset();
  control_.reset();
  transport_.reset();
  incarnation_ = nullptr;
}

Callback SimulatedSender::InThisIncarnation(std::function<void(absl::Status)> then) {
  return [incarnation = incarnation_, then = std::move(then)](absl::Status status) {
    if (incarnation->alive) then(std::move(status));
  };
}

void SimulatedSender::Later(std::function<void()> then) {
  const MonotonicDuration pace = world_.schedule.pace;
  world_.loop.Schedule(world_.random.Between(MonotonicDuration::zero(), 2 * pace), incarnation_,
                       "sender continues", std::move(then));
}

void SimulatedSender::Exit(const absl::Status& why) {
  world_.loop.Note(absl::StrCat(name_, " ends: ", why.ToString()));
  // Deferred, because the sender's own code is on the stack.
  world_.loop.Schedule(kRestartPause, nullptr, "supervisor", [this, incarnation = incarnation_] {
    if (incarnation->alive) Start();
  });
}

bool SimulatedSender::EndIfCompleted() {
  if (const absl::Status failure = core_->failure(); !failure.ok()) {
    Exit(failure);
    return true;
  }
  if (core_->job_state() != COMPLETED) return false;
  world_.told_of_completion(name_);
  world_.loop.Note(absl::StrCat(name_, " ends with the job"));
  Kill();
  return true;
}

void SimulatedSender::PullAndCheck(Session& session, std::vector<Expectation> expectations,
                                   std::function<void()> then) {
  struct Memory {
    std::vector<uint64_t> keys;
    std::vector<float> values;
    std::vector<float> slots;
    std::vector<Expectation> expectations;
  };
  const MonotonicDuration start = world_.loop.elapsed();
  auto memory = std::make_shared<Memory>();
  for (const Expectation& expectation : expectations) memory->keys.push_back(expectation.cell.key);
  memory->values.resize(memory->keys.size());
  if (world_.schedule.assigns) memory->slots.resize(memory->keys.size());
  memory->expectations = std::move(expectations);
  const PullItem item{.table = table_,
                      .keys = memory->keys,
                      .values = absl::MakeSpan(memory->values),
                      .slots = absl::MakeSpan(memory->slots)};
  // Keeps the memory alive even if the process dies meanwhile.
  session.Pull(
      {&item, 1}, {},
      [memory, check = InThisIncarnation([this, memory, start,
                                          then = std::move(then)](absl::Status status) {
                 if (!status.ok()) return Exit(status);
                 for (size_t i = 0; i < memory->values.size(); ++i) {
                   const Expectation& expected = memory->expectations[i];
                   const float value = memory->values[i];
                   if (!memory->slots.empty() && memory->slots[i] != SimLedger::SlotOf(value)) {
                     world_.violation(absl::StrCat(
                         name_, " reads ", value, " with slot ", memory->slots[i], " for push ",
                         expected.cell.number, " of sender ", expected.cell.sender));
                   }
                   if (expected.Allows(value)) continue;
                   if (expected.unless_exempt && value == 0 &&
                       world_.clocks.WasExempt(expected.cell.sender, start)) {
                     continue;
                   }
                   world_.violation(absl::StrCat(
                       name_, " reads ", value, " for push ", expected.cell.number, " of sender ",
                       expected.cell.sender, " in partition ", expected.cell.partition,
                       ", must be ", expected.least, " or ", expected.most, ": ", expected.why));
                 }
                 then();
               })](absl::Status status) mutable { check(std::move(status)); });
}

void SimulatedSender::PushCells(Session& session, const std::vector<SimLedger::Cell>& cells,
                                std::function<void(absl::Status)> done) {
  struct Memory {
    std::vector<uint64_t> keys;
    std::vector<float> gradients;
    std::vector<float> values;
    std::vector<float> slots;
  };
  auto memory = std::make_shared<Memory>();
  for (const SimLedger::Cell& cell : cells) memory->keys.push_back(cell.key);
  for (const SimLedger::Cell& cell : cells) memory->gradients.push_back(cell.gradient);
  if (world_.ledger.IsAssigned(cells[0].sender, cells[0].number)) {
    memory->values.resize(memory->keys.size(), SimLedger::kAssignedValue);
    memory->slots.resize(memory->keys.size(), SimLedger::kAssignedSlot);
    const AssignItem assigned{
        .table = table_, .keys = memory->keys, .values = memory->values, .slots = memory->slots};
    // If it fails, so does the push.
    session.Assign({&assigned, 1}, {}, [memory](absl::Status) {});
  }
  const PushItem item{.table = table_, .keys = memory->keys, .gradients = memory->gradients};
  session.Push({&item, 1}, {},
               [memory, done = InThisIncarnation(std::move(done))](absl::Status status) mutable {
                 done(std::move(status));
               });
}

// Worker ----------------------------------------------------------------------

SimulatedWorker::SimulatedWorker(SenderWorld& world, int site, std::vector<uint32_t> ranks)
    : SimulatedSender(world, absl::StrCat("worker of rank ", ranks[0]), site, WORKER_ROLE, ranks),
      ranks_(std::move(ranks)),
      steps_(ranks_.size()),
      is_done_(ranks_.size()),
      doing_(ranks_.size(), "joining") {}

bool SimulatedWorker::finished() const {
  return std::all_of(is_done_.begin(), is_done_.end(), [](bool is_done) { return is_done; });
}

std::string SimulatedWorker::Progress() const {
  std::string text;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", "rank ", ranks_[i], " at step ", steps_[i], " ",
                    doing_[i]);
  }
  return text;
}

void SimulatedWorker::Begin() {
  // A process that a rebuilt scheduler has disowned evaluates again, also after its last step.
  if (world_.schedule.finishes || world_.schedule.evaluates) AwaitEnd();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    doing_[i] = "taking over";
    core_->TakeOver(core_->OwnRank(ranks_[i]), {},
                    [this, i, incarnation = incarnation()](absl::StatusOr<LogicalWorker*> worker) {
                      if (!incarnation->alive) return;
                      if (!worker.ok()) return Exit(worker.status());
                      if ((*worker)->step() < steps_[i]) {
                        world_.violation(absl::StrCat(
                            "rank ", ranks_[i], " had ended ", steps_[i],
                            " steps, and starts its next incarnation at step ", (*worker)->step()));
                      }
                      world_.clocks.OnTakeover(ranks_[i], core_->registration().incarnation(),
                                               (*worker)->step(), world_.loop.elapsed());
                      Later([this, i, worker = *worker] { StepOrEvaluate(i, worker); });
                    });
  }
}

void SimulatedWorker::StepOrEvaluate(size_t index, LogicalWorker* worker) {
  if (!world_.schedule.evaluates) return Step(index, worker);
  const uint64_t step = worker->step();
  steps_[index] = step;
  WorkerProgress progress;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    RankProgress& rank = *progress.add_ranks();
    rank.set_rank(ranks_[i]);
    rank.set_steps(steps_[i]);
  }
  core_->SetProgress(progress);
  if (step == 0 || step % kEvaluationSteps != 0) return Step(index, worker);
  if (world_.schedule.consistency.mode() == SYNC) return Evaluate(index, worker, step);
  doing_[index] = "arriving at an evaluation";
  ReportEvaluationRequest arrival;
  arrival.set_evaluation(step / kEvaluationSteps);
  arrival.set_step(step);
  arrival.set_rank(ranks_[index]);
  arrival.set_arrives(true);
  ReportEvaluation(arrival, [this, index, worker, step](const ReportEvaluationResponse&) {
    for (uint32_t rank = 0; rank < world_.schedule.ranks(); ++rank) {
      if (world_.clocks.least(rank) >= step) continue;
      world_.violation(absl::StrCat("rank ", ranks_[index], " evaluates at step ", step,
                                    ", but rank ", rank, " has ended ", world_.clocks.least(rank)));
    }
    Later([this, index, worker, step] { Evaluate(index, worker, step); });
  });
}

void SimulatedWorker::Evaluate(size_t index, LogicalWorker* worker, uint64_t step) {
  doing_[index] = "evaluating";
  ReportEvaluationRequest part;
  part.set_evaluation(step / kEvaluationSteps);
  part.set_step(step);
  part.set_rank(ranks_[index]);
  part.set_parts(1);
  const float score = 0.5f;
  part.set_scores(std::string(reinterpret_cast<const char*>(&score), sizeof(score)));
  part.add_positives(1);
  part.add_negatives(1);
  part.set_samples(2);
  ReportEvaluation(part, [this, index, worker, step](const ReportEvaluationResponse& response) {
    const bool has_result = response.has_result();
    const EvaluationResult& result = response.result();
    if (!has_result && !world_.schedule.loses_scheduler_state)
      world_.violation(absl::StrCat("rank ", ranks_[index], " gets no result"));
    if (has_result && (result.step() != step || result.samples() != 2 * world_.schedule.ranks())) {
      world_.violation(absl::StrCat("rank ", ranks_[index], " gets the result of ",
                                    result.samples(), " samples at step ", result.step(), " at ",
                                    step));
    }
    world_.evaluated(has_result);
    Step(index, worker);
  });
}

void SimulatedWorker::ReportEvaluation(const ReportEvaluationRequest& request,
                                       std::function<void(const ReportEvaluationResponse&)> then) {
  auto sent = std::make_shared<ReportEvaluationRequest>(request);
  sent->set_node(core_->registration().node());
  sent->set_incarnation(core_->registration().incarnation());
  auto response = std::make_shared<ReportEvaluationResponse>();
  core_->scheduler_calls().Call(
      "ReportEvaluation", std::move(sent), response, core_->Deadline({}),
      core_->Count(InThisIncarnation([this, response, then = std::move(then)](absl::Status status) {
        if (absl::IsFailedPrecondition(status) && core_->failure().ok()) {
          world_.violation(status.ToString());
        }
        if (!status.ok()) return Exit(status);
        then(*response);
      })),
      kAttempt);
}

void SimulatedWorker::Step(size_t index, LogicalWorker* worker) {
  const uint64_t step = worker->step();
  steps_[index] = step;
  doing_[index] = "done";
  if (step >= world_.schedule.StepsOf(ranks_[index])) return Finish(index);
  std::vector<Expectation> expectations;
  const auto expect = [&](uint32_t rank, uint64_t number, float least, float most, const char* why,
                          bool unless_exempt = false) {
    for (const SimLedger::Cell& cell : world_.ledger.CellsOf(rank, number)) {
      expectations.push_back({cell, least, most, least, why, unless_exempt});
    }
  };
  const ConsistencyMode mode = world_.schedule.consistency.mode();
  const uint64_t staleness = world_.schedule.consistency.staleness();
  for (const uint32_t rank : RanksToCheck(ranks_[index])) {
    const auto unit = [&](uint64_t number) { return world_.ledger.UnitOf(rank, number); };
    if (mode == SYNC) {
      if (step > 0) {
        expect(rank, step - 1, unit(step - 1), unit(step - 1), "SYNC, and that step has ended");
      }
      // A predecessor may have assigned.
      expect(rank, step, 0, world_.ledger.IsAssigned(rank, step) ? SimLedger::kAssignedValue : 0,
             "SYNC, and that step has not ended");
    } else if (rank == ranks_[index]) {
      if (step > 0) {
        expect(rank, step - 1, unit(step - 1), unit(step - 1), "the rank's own previous step");
      }
    } else if (mode == BOUNDED && step > staleness && world_.checks_bound) {
      const uint64_t number = step - staleness - 1;
      if (number >= world_.schedule.StepsOf(rank)) continue;
      expect(rank, number, unit(number), unit(number), "the staleness bound",
             /*unless_exempt=*/true);
    }
  }
  if (step > 0) {
    for (const SimLedger::Cell& cell : world_.ledger.SharedCellsOf(0, step - 1)) {
      const float unit = world_.ledger.UnitOf(0, step - 1);
      expectations.push_back({cell, unit, unit, unit, "the sum in the order of the ranks"});
    }
  }
  for (const SimLedger::Cell& cell : world_.ledger.SharedCellsOf(0, step))
    expectations.push_back({cell, 0, 0, 0, "SYNC, and that step has not ended"});
  doing_[index] = "pulling";
  auto after = [this, index, worker, step, start = world_.loop.elapsed()] {
    if (world_.schedule.consistency.mode() == BOUNDED && world_.checks_bound)
      CheckBound(ranks_[index], step, start);
    PushStep(index, worker, step);
  };
  if (expectations.empty()) return after();
  PullAndCheck(*worker, std::move(expectations), std::move(after));
}

void SimulatedWorker::AwaitEnd() {
  Later([this] {
    if (!EndIfCompleted()) AwaitEnd();
  });
}

void SimulatedWorker::Finish(size_t index) {
  const bool reports =
      world_.schedule.finishes || world_.schedule.StepsOf(ranks_[index]) < world_.schedule.steps;
  const bool closes = world_.schedule.clip_global_norm > 0;
  if (!reports && !closes) is_done_[index] = true;
  // A restarted process reports again.
  if (is_done_[index] && !reports) return;
  if (!closes) return ReportFinished(index);
  doing_[index] = "closing the last step";
  const uint32_t ranks[] = {ranks_[index]};
  core_->step_closings().WhenClosed(
      ranks, core_->Deadline({}),
      core_->Count(InThisIncarnation([this, index, reports](absl::Status status) {
        if (!status.ok()) return Exit(status);
        if (reports) return ReportFinished(index);
        is_done_[index] = true;
        doing_[index] = "done";
      })));
}

void SimulatedWorker::ReportFinished(size_t index) {
  const uint64_t number = core_->registration().incarnation();
  doing_[index] = "finishing";
  auto request = std::make_shared<FinishWorkRequest>();
  request->set_node(core_->registration().node());
  request->set_incarnation(number);
  request->add_logical_workers(ranks_[index]);
  core_->scheduler_calls().Call(
      "FinishWork", std::move(request), std::make_shared<FinishWorkResponse>(), core_->Deadline({}),
      core_->Count(InThisIncarnation([this, index, number](absl::Status status) {
        if (!status.ok()) return Exit(status);
        world_.clocks.OnFinished(ranks_[index], number);
        world_.finished(ranks_[index]);
        is_done_[index] = true;
        doing_[index] = "done";
      })),
      kAttempt);
}

std::vector<uint32_t> SimulatedWorker::RanksToCheck(uint32_t own) {
  const uint32_t ranks = world_.schedule.ranks();
  std::vector<uint32_t> checked;
  if (ranks <= kMaxRanksInPull) {
    for (uint32_t rank = 0; rank < ranks; ++rank) checked.push_back(rank);
    return checked;
  }
  checked.push_back(own);
  while (checked.size() < kMaxRanksInPull)
    checked.push_back(static_cast<uint32_t>(world_.random.Below(ranks)));
  // A pull names each row once.
  std::sort(checked.begin(), checked.end());
  checked.erase(std::unique(checked.begin(), checked.end()), checked.end());
  return checked;
}

void SimulatedWorker::CheckBound(uint32_t rank, uint64_t step, MonotonicDuration start) {
  const uint64_t staleness = world_.schedule.consistency.staleness();
  for (uint32_t other = 0; other < world_.schedule.ranks(); ++other) {
    if (other == rank || world_.clocks.most(other) + staleness >= step ||
        world_.clocks.WasExempt(other, start))
      continue;
    world_.violation(absl::StrCat("rank ", rank, " was answered at step ", step, ", bound ",
                                  staleness, ", while rank ", other, " had ended ",
                                  world_.clocks.most(other), " steps at most and was not exempt"));
  }
}

void SimulatedWorker::PushStep(size_t index, LogicalWorker* worker, uint64_t step) {
  const uint32_t rank = ranks_[index];
  world_.ledger.Sent(rank, step);
  std::vector<SimLedger::Cell> cells = world_.ledger.CellsOf(rank, step);
  if (rank < kSharingRanks) {
    for (const SimLedger::Cell& cell : world_.ledger.SharedCellsOf(rank, step))
      cells.push_back(cell);
  }
  // Two calls, so that there are several ordinals.
  const size_t half = step % 2 == 0 ? cells.size() : cells.size() / 2;
  for (const auto& part : {std::vector(cells.begin(), cells.begin() + static_cast<int64_t>(half)),
                           std::vector(cells.begin() + static_cast<int64_t>(half), cells.end())}) {
    if (!part.empty()) PushCells(*worker, part, [](absl::Status) {});
  }
  doing_[index] = "ending the step";
  world_.clocks.OnEndingStep(rank, step);
  worker->EndStep({}, InThisIncarnation([this, index, worker, rank, step](absl::Status status) {
                    if (!status.ok()) return Exit(status);
                    world_.ledger.Acknowledged(rank, step);
                    world_.clocks.OnEndedStep(rank, step, world_.loop.elapsed());
                    steps_[index] = step + 1;
                    Later([this, index, worker] { StepOrEvaluate(index, worker); });
                  }));
}

// Client ----------------------------------------------------------------------

SimulatedClient::SimulatedClient(SenderWorld& world, int site, uint32_t sender)
    : SimulatedSender(world, absl::StrCat("client ", sender), site, CLIENT_ROLE), sender_(sender) {}

std::string SimulatedClient::Progress() const {
  return absl::StrCat("client ", sender_, " at push ", next_, ", ", in_progress_, " in progress");
}

void SimulatedClient::Begin() {
  in_progress_ = 0;
  Act();
}

void SimulatedClient::Act() {
  if (EndIfCompleted()) return;
  Session& session = core_->free_running();
  if (next_ < world_.schedule.pushes && in_progress_ < kMaxUnderWay) {
    const uint64_t number = next_++;
    ++in_progress_;
    world_.ledger.Sent(sender_, number);
    PushCells(session, world_.ledger.CellsOf(sender_, number), [this, number](absl::Status status) {
      if (!status.ok()) return Exit(status);
      --in_progress_;
      world_.ledger.Acknowledged(sender_, number);
    });
  }
  if (const auto push = world_.ledger.RandomAcknowledgedPush(world_.random); push.has_value()) {
    std::vector<Expectation> expectations;
    const float unit = world_.ledger.UnitOf(push->first, push->second);
    for (const SimLedger::Cell& cell : world_.ledger.CellsOf(push->first, push->second)) {
      expectations.push_back(
          {cell, unit, unit, unit, "it was acknowledged before the pull started"});
    }
    PullAndCheck(session, std::move(expectations), [] {});
  }
  if (!finished() || world_.schedule.finishes) Later([this] { Act(); });
}

// Auditor ---------------------------------------------------------------------

SimulatedAuditor::SimulatedAuditor(SenderWorld& world, int site)
    : SimulatedSender(world, "auditor", site, CLIENT_ROLE) {}

void SimulatedAuditor::Begin() {
  // A rank repeats its step until it has ended.
  auto all = std::make_shared<std::vector<Expectation>>(
      world_.ledger.Expect([&](uint32_t sender, uint64_t, bool acknowledged) {
        return acknowledged || world_.ledger.IsRank(sender) ? SimLedger::Fate::kApplied
                                                            : SimLedger::Fate::kUnknown;
      }));
  Read(std::move(all));
}

void SimulatedAuditor::Read(std::shared_ptr<std::vector<Expectation>> left) {
  const size_t count = std::min(left->size(), kRowsInAudit);
  std::vector<Expectation> now(left->end() - static_cast<int64_t>(count), left->end());
  left->resize(left->size() - count);
  if (now.empty()) {
    finished_ = true;
    return;
  }
  PullAndCheck(core_->free_running(), std::move(now), [this, left] { Read(left); });
}

}  // namespace pawl
