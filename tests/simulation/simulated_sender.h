// Processes that push and pull through the product's client and check the answers.
#ifndef PAWL_TESTS_SIMULATION_SIMULATED_SENDER_H_
#define PAWL_TESTS_SIMULATION_SIMULATED_SENDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client_lib/session/client_core.h"
#include "client_lib/table.h"
#include "proto/scheduler.pb.h"
#include "tests/simulation/event_loop.h"
#include "tests/simulation/schedule.h"
#include "tests/simulation/sim_ledger.h"
#include "tests/simulation/simulated_network.h"

namespace pawl {

// State that all senders share. It outlives them.
struct SenderWorld {
  EventLoop& loop;
  SimulatedNetwork& network;
  SeededRandom& random;
  SimLedger& ledger;
  const Schedule& schedule;
  // Reports a broken promise.
  std::function<void(const std::string&)> violation;
  RankClocks& clocks;
  // The scheduler has confirmed that the rank has finished.
  std::function<void(uint32_t rank)> finished;
  // A rank has evaluated: with the result of all ranks, or after the loss of that result.
  std::function<void(bool has_result)> evaluated;
  // The process was told that the job has completed.
  std::function<void(const std::string& process)> told_of_completion;
  // Whether `clocks` knows every rank that BOUNDED exempts. Those of a checkpoint are unknown.
  bool checks_bound = true;
};

// A sender process. It is restarted when it exits, as by a supervisor. Not thread-safe.
class SimulatedSender {
 public:
  SimulatedSender(SenderWorld& world, std::string name, int site, Role role,
                  std::vector<uint32_t> ranks = {});
  virtual ~SimulatedSender();
  SimulatedSender(const SimulatedSender&) = delete;
  SimulatedSender& operator=(const SimulatedSender&) = delete;

  void Start();
  void Kill();
  // Null if it is dead.
  const std::shared_ptr<Incarnation>& incarnation() const { return incarnation_; }
  // True if all of its work is done.
  virtual bool finished() const = 0;
  // True unless the process takes part in a job that has not ended for it.
  bool has_left() const { return incarnation_ == nullptr || !has_begun_; }
  // The current position, for messages.
  virtual std::string Progress() const = 0;

 protected:
  using Expectation = SimLedger::Expectation;
  // Wraps a callback so that it does nothing in a later incarnation.
  Callback InThisIncarnation(std::function<void(absl::Status)> then);
  void Later(std::function<void()> then);
  void Exit(const absl::Status& why);
  // True if the job has completed; the process then ends, and is not restarted.
  bool EndIfCompleted();
  // Pulls and checks; runs `then` if the values are as expected.
  void PullAndCheck(Session& session, std::vector<Expectation> expectations,
                    std::function<void()> then);
  // Assigns first if the ledger says so. `done` gets the outcome of the push, which includes that
  // of the assignment before it.
  void PushCells(Session& session, const std::vector<SimLedger::Cell>& cells,
                 std::function<void(absl::Status)> done);
  // Called when the process has joined and the table exists.
  virtual void Begin() = 0;

  SenderWorld& world_;
  std::shared_ptr<ClientCore> core_;
  Table table_;

 private:
  void CreateTable();

  const std::string name_;
  const int site_;
  const Role role_;
  const std::vector<uint32_t> ranks_;
  const MachineClock clock_;
  // The node name of the previous incarnation, if the data folder was kept.
  std::string node_;
  uint64_t job_id_ = 0;
  uint32_t starts_ = 0;
  std::shared_ptr<Incarnation> incarnation_;
  // The present incarnation has called Begin.
  bool has_begun_ = false;
  std::unique_ptr<SimulatedTransport> transport_;
  std::unique_ptr<SimulatedControlChannel> control_;
  std::unique_ptr<SimulatedControlChannel> link_;
};

// Hosts ranks and runs each through its steps.
class SimulatedWorker final : public SimulatedSender {
 public:
  SimulatedWorker(SenderWorld& world, int site, std::vector<uint32_t> ranks);

  bool finished() const override;
  std::string Progress() const override;

 private:
  void Begin() override;
  // Evaluates first, if that is due.
  void StepOrEvaluate(size_t index, LogicalWorker* worker);
  void Evaluate(size_t index, LogicalWorker* worker, uint64_t step);
  void ReportEvaluation(const ReportEvaluationRequest& request,
                        std::function<void(const ReportEvaluationResponse&)> then);
  void Step(size_t index, LogicalWorker* worker);
  void PushStep(size_t index, LogicalWorker* worker, uint64_t step);
  // The ranks whose rows the next pull reads, including the own rank.
  std::vector<uint32_t> RanksToCheck(uint32_t own);
  // The rank has ended its last step.
  void Finish(size_t index);
  // That step is closed.
  void ReportFinished(size_t index);
  // Every process of a job that finishes stays until its end.
  void AwaitEnd();
  // Checks that no rank that counted since `start` is further behind than the bound.
  void CheckBound(uint32_t rank, uint64_t step, MonotonicDuration start);

  const std::vector<uint32_t> ranks_;
  // By index: the step and the present activity.
  std::vector<uint64_t> steps_;
  // By index: whether nothing is left to do after the last step: with clip_global_norm it closes in
  // a phase of its own, and a rank with fewer steps than others is reported as finished.
  std::vector<bool> is_done_;
  std::vector<const char*> doing_;
};

// A free-running client with several concurrent pushes.
class SimulatedClient final : public SimulatedSender {
 public:
  SimulatedClient(SenderWorld& world, int site, uint32_t sender);

  bool finished() const override { return next_ == world_.schedule.pushes && in_progress_ == 0; }
  std::string Progress() const override;

 private:
  void Begin() override;
  void Act();

  const uint32_t sender_;
  uint64_t next_ = 0;
  int in_progress_ = 0;
};

// Reads all parameters once.
class SimulatedAuditor final : public SimulatedSender {
 public:
  SimulatedAuditor(SenderWorld& world, int site);

  bool finished() const override { return finished_; }
  std::string Progress() const override { return "auditor"; }

 private:
  void Begin() override;
  void Read(std::shared_ptr<std::vector<Expectation>> left);

  bool finished_ = false;
};

}  // namespace pawl

#endif  // PAWL_TESTS_SIMULATION_SIMULATED_SENDER_H_
