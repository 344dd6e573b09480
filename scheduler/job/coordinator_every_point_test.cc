// A scheduler that dies at every point of one job.
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/job/coordinator.h"
#include "scheduler/testing/coordinator_fixture.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// One job with all kinds of events, in steps that can be repeated as callers repeat them.
class EveryPointTest : public CoordinatorFixture {
 protected:
  EveryPointTest() {
    const auto join = [this](Role role, uint64_t nonce) {
      return [=, this] { JoinAs(Registration(role, nonce)); };
    };
    steps_ = {
        join(SERVER_ROLE, 1),
        join(SERVER_ROLE, 2),
        join(SERVER_ROLE, 3),
        join(WORKER_ROLE, 4),
        join(WORKER_ROLE, 5),
        [this] { CreateTable("t"); },
        [this] { Evaluate(1); },
        [this] {
          Kill("server-1");
          Pass(milliseconds(1500));
        },
        [this] { JoinAs(Return("server-1", 6)); },
        [this] { Pass(seconds(1)); },
        [this] {
          Kill("worker-0");
          Pass(milliseconds(1500));
        },
        [this] { JoinAs(Registration(WORKER_ROLE, 7)); },
        // Both replicas of some partitions at once.
        [this] {
          if (NodeNamed("server-0").request.process_nonce() == 1) Kill("server-0");
          if (NodeNamed("server-2").request.process_nonce() == 3) Kill("server-2");
          Pass(milliseconds(1500));
        },
        [this] { JoinAs(Return("server-0", 8, All())); },
        [this] { JoinAs(Return("server-2", 9, All())); },
        [this] { Pass(seconds(1)); },
        [this] {
          NodeNamed("server-2").draining = true;
          Pass(seconds(4));
        },
        [this] { Evaluate(2); },
        [this] { FinishAs("worker-2"); },
        [this] { FinishAs("worker-1"); },
        [this] { Pass(milliseconds(200)); },
    };
    for (uint32_t partition = 0; partition < 6; ++partition) all_.push_back(partition);
  }

  void BeginJob() {
    BeginWithStore(TrainingJob(6, 2, "evaluation { early_stopping { patience: 5 } }"), 3, 2);
  }

  std::vector<uint32_t> All() const { return all_; }

  void JoinAs(const RegisterRequest& request) {
    for (const FakeNode& node : nodes_) {
      if (node.request.process_nonce() == request.process_nonce()) {
        // It has had its answer.
        return;
      }
    }
    const absl::StatusOr<RegisterResponse> response = Register(request);
    if (!response.ok()) return;
    Add(request, *response);
    if (request.role() == SERVER_ROLE) Beat(*response).IgnoreError();
    Save();
  }
  // Every living worker reports its ranks.
  void Evaluate(uint64_t evaluation) {
    std::vector<RegisterResponse> workers;
    for (const FakeNode& node : nodes_) {
      if (node.request.role() == WORKER_ROLE && !node.silent) workers.push_back(node.registration);
    }
    for (const RegisterResponse& worker : workers) {
      const auto assignment = GetAssignment(worker);
      if (!assignment->has_value() || !(*assignment)->ok()) continue;
      for (const LogicalWorkerAssignment& rank : (**assignment)->logical_workers()) {
        Report(worker, rank.rank(), evaluation, true);
      }
    }
  }
  void FinishAs(const std::string& worker) { Finish(NodeNamed(worker).registration).IgnoreError(); }

  // The scheduler dies after so many saves, at the end of that step, which is then repeated.
  // Returns whether it died.
  bool RunAndDieAfter(int saves) {
    bool died = false;
    HoldSavesAfter(saves);
    for (const std::function<void()>& step : steps_) {
      step();
      if (!hold_saves_) continue;
      died = true;
      hold_saves_ = false;
      saves_left_.reset();
      if (saved_.empty()) {
        // Nothing was published.
        BeginJob();
      } else {
        Restart(seconds(20));
      }
      Pass(milliseconds(4500));
      step();
    }
    return died;
  }

  void ExpectTheResult(const std::string& where) {
    const GetStatusResponse status = Status();
    EXPECT_EQ(status.state(), COMPLETED) << where << ": " << status.failure();
    EXPECT_EQ(status.evaluations_size(), 2) << where;
    EXPECT_GE(reports_.size(), 1u) << where;
    const SchedulerState saved = Saved();
    EXPECT_EQ(saved.tables().tables_size(), 1) << where;
    EXPECT_TRUE(saved.tables().tables(0).ready()) << where;
    for (const StoredReplicaSet& set : saved.placement().partitions()) {
      EXPECT_NE(set.primary(), UINT32_MAX) << where;
      EXPECT_EQ(set.backups_size(), 1) << where;
    }
  }

  std::vector<std::function<void()>> steps_;
  std::vector<uint32_t> all_;
};

TEST_F(EveryPointTest, JobCompletesWithoutARestart) {
  BeginJob();
  EXPECT_FALSE(RunAndDieAfter(1000000));
  ExpectTheResult("no restart");
  EXPECT_TRUE(NodeNamed("server-2").silent) << "it could not leave";
}

class EveryPointRestartTest : public EveryPointTest, public testing::WithParamInterface<int> {};

TEST_P(EveryPointRestartTest, JobCompletesFromEverySavedState) {
  // The saves of one run; a run without a restart has fewer than a hundred.
  for (int saves = GetParam(); saves < 200; saves += 4) {
    SCOPED_TRACE(absl::StrCat("after ", saves, " saves"));
    nodes_.clear();
    told_.clear();
    reports_.clear();
    saved_.clear();
    state_has_changed_ = hold_saves_ = false;
    BeginJob();
    const bool died = RunAndDieAfter(saves);
    ExpectTheResult(absl::StrCat("after ", saves, " saves"));
    if (!died || HasFailure()) return;
  }
  FAIL() << "more saves than expected";
}

INSTANTIATE_TEST_SUITE_P(Quarter, EveryPointRestartTest, testing::Range(0, 4));

}  // namespace
}  // namespace pawl
