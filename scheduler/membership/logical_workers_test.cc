#include "scheduler/membership/logical_workers.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using Ranks = std::vector<uint32_t>;
using std::chrono::seconds;

constexpr seconds kGrace{5};

// Drives workers that join, report and leave.
class LogicalWorkersTest : public testing::Test {
 protected:
  void Begin(uint32_t total, uint32_t workers, bool rebalance = false, bool serve_only = false) {
    ranks_ = std::make_unique<LogicalWorkers>(LogicalWorkers::Options{.total = total,
                                                                      .workers = workers,
                                                                      .rebalance = rebalance,
                                                                      .takeover_grace = kGrace,
                                                                      .serve_only = serve_only});
  }
  // Joins a ready follower.
  void Join(const std::string& worker, bool ready = true) {
    JoinAs(worker, Request({}, /*follows=*/true));
    if (ready) ranks_->MarkReady(worker);
    Place();
  }
  void JoinWith(const std::string& worker, const Ranks& requested_ranks) {
    JoinAs(worker, Request(requested_ranks, /*follows=*/false));
    Place();
  }
  void JoinAs(const std::string& worker, const RegisterRequest& request) {
    ASSERT_TRUE(ranks_->CheckJoin(request, worker).ok());
    Node node = Named(worker);
    node.incarnation = ++incarnation_;
    ranks_->Join(request, node);
  }
  static RegisterRequest Request(const Ranks& requested_ranks, bool follows) {
    RegisterRequest request;
    request.mutable_logical_workers()->Add(requested_ranks.begin(), requested_ranks.end());
    request.set_follows_assignment(follows);
    return request;
  }
  static Node Named(const std::string& name) {
    Node node;
    node.name = name;
    return node;
  }
  absl::StatusCode Check(const std::string& worker, const Ranks& requested_ranks = {},
                         bool follows = false) {
    return ranks_->CheckJoin(Request(requested_ranks, follows), worker).code();
  }
  Ranks Leave(const std::string& worker, bool dead = true) {
    Ranks free;
    for (const auto& rank : ranks_->Leave(Named(worker), "died", dead, clock_.Now()))
      free.push_back(rank.rank);
    Place();
    return free;
  }
  void Place() {
    for (const std::string& worker : ranks_->Place(clock_.Now(), [this] { return ++incarnation_; }))
      changed_.insert(worker);
  }
  void Step(uint32_t rank, uint64_t steps) {
    WorkerProgress progress;
    progress.add_ranks()->set_rank(rank);
    progress.mutable_ranks(0)->set_steps(steps);
    ranks_->NoteProgress(progress);
  }
  void Pass(MonotonicDuration duration) {
    clock_.Advance(duration);
    Place();
  }
  // The worker gives up the ranks that its assignment lacks.
  void GiveUpWhatIsNotAssigned(const std::string& worker) {
    const Ranks assigned = Assigned(worker);
    for (const uint32_t rank : RanksOf(worker)) {
      if (std::find(assigned.begin(), assigned.end(), rank) != assigned.end()) continue;
      GiveUp(worker, rank, IncarnationOf(rank));
    }
    Place();
  }
  // Whether the worker hosted the rank.
  bool GiveUp(const std::string& worker, uint32_t rank, uint64_t incarnation) {
    return !ranks_->GiveUp(Named(worker), {{rank, incarnation}}, clock_.Now()).empty();
  }
  Ranks RanksOf(const std::string& worker) {
    Ranks ranks;
    for (uint32_t rank = 0; rank < ranks_->total(); ++rank) {
      if (ranks_->HostOf(rank) == worker) ranks.push_back(rank);
    }
    return ranks;
  }
  Ranks Assigned(const std::string& worker) {
    Ranks ranks;
    const auto assignment = ranks_->AssignmentOf(worker);
    if (!assignment.has_value()) return {99};
    for (const auto& rank : assignment->logical_workers()) ranks.push_back(rank.rank());
    return ranks;
  }
  uint64_t Version(const std::string& worker) { return ranks_->AssignmentOf(worker)->version(); }
  uint64_t IncarnationOf(uint32_t rank) {
    return ranks_->Save().ranks(static_cast<int>(rank)).incarnation();
  }
  void Restart() {
    const StoredRanks stored = ranks_->Save();
    Begin(static_cast<uint32_t>(stored.ranks_size()), workers_);
    ranks_->Restore(stored, clock_.Now());
  }

  SimulatedClock clock_;
  uint32_t workers_ = 2;
  uint64_t incarnation_ = 0;
  std::set<std::string> changed_;
  std::unique_ptr<LogicalWorkers> ranks_;
};

TEST_F(LogicalWorkersTest, RanksAreSharedInRunsOnceAllWorkersJoined) {
  Begin(5, 2);
  Join("worker-0");
  EXPECT_FALSE(ranks_->AssignmentOf("worker-0").has_value());
  EXPECT_FALSE(ranks_->AnyHosted());
  Join("worker-1");
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0, 1, 2}));
  EXPECT_EQ(Assigned("worker-1"), (Ranks{3, 4}));
  EXPECT_TRUE(ranks_->AllHosted());
}

TEST_F(LogicalWorkersTest, LoweredWantedCountStartsTheAssignment) {
  Begin(4, 3);
  Join("worker-0");
  Join("worker-1");
  EXPECT_FALSE(ranks_->decided());
  ranks_->SetWantedWorkers(2);
  Place();
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0, 1}));
  EXPECT_EQ(Assigned("worker-1"), (Ranks{2, 3}));
}

TEST_F(LogicalWorkersTest, DrainingWorkerDoesNotCountAsWanted) {
  Begin(4, 2);
  Join("worker-0");
  ranks_->Drain("worker-0");
  Join("worker-1");
  EXPECT_FALSE(ranks_->decided());
  Join("worker-2");
  EXPECT_EQ(Assigned("worker-0"), Ranks());
  EXPECT_EQ(Assigned("worker-1"), (Ranks{0, 1}));
  EXPECT_EQ(Assigned("worker-2"), (Ranks{2, 3}));
}

TEST_F(LogicalWorkersTest, RequestedRanksAreAssignedAtOnce) {
  Begin(4, 2);
  JoinWith("worker-0", {1, 2});
  EXPECT_EQ(Assigned("worker-0"), (Ranks{1, 2}));
  Join("worker-1");
  EXPECT_EQ(Assigned("worker-1"), (Ranks{0, 3}));
}

TEST_F(LogicalWorkersTest, ImpossibleRequestsAreRefused) {
  Begin(4, 0);
  EXPECT_EQ(Check("", {4}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Check("", {1, 1}), absl::StatusCode::kInvalidArgument);
  JoinWith("worker-0", {1});
  EXPECT_EQ(Check("", {0, 1}), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Check("", {0, 2}), absl::StatusCode::kOk);
}

TEST_F(LogicalWorkersTest, SurplusFollowerIsIdleAndOthersAreRefused) {
  Begin(4, 1);
  Join("worker-0");
  EXPECT_EQ(Check("worker-1"), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Check("worker-1", {}, /*follows=*/true), absl::StatusCode::kOk);
  Join("worker-1");
  EXPECT_EQ(Assigned("worker-1"), Ranks());
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0, 1, 2, 3}));
}

TEST_F(LogicalWorkersTest, SurplusWorkersAreIdle) {
  Begin(2, 3);
  for (const char* worker : {"worker-0", "worker-1", "worker-2"}) Join(worker);
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0}));
  EXPECT_EQ(Assigned("worker-1"), (Ranks{1}));
  EXPECT_EQ(Assigned("worker-2"), Ranks());
  Leave("worker-0");
  EXPECT_EQ(Assigned("worker-2"), (Ranks{0})) << "it waits for nothing";
}

TEST_F(LogicalWorkersTest, RanksOfALeaverCanBeRequested) {
  Begin(2, 0);
  JoinWith("worker-0", {0, 1});
  Leave("worker-0");
  EXPECT_FALSE(ranks_->AllHosted());
  EXPECT_EQ(RanksOf("worker-0"), Ranks());
  EXPECT_EQ(Check("", {0, 1}), absl::StatusCode::kOk);
}

TEST_F(LogicalWorkersTest, WorkerThatLeftBeforeTheAssignmentIsNotCounted) {
  Begin(2, 2);
  Join("worker-0");
  Leave("worker-0");
  Join("worker-1");
  EXPECT_FALSE(ranks_->decided());
  Join("worker-2");
  EXPECT_EQ(Assigned("worker-1"), (Ranks{0}));
  EXPECT_EQ(Assigned("worker-2"), (Ranks{1}));
}

TEST_F(LogicalWorkersTest, FirstWorkerGetsAllRanksWithoutAWantedCount) {
  Begin(3, 0);
  JoinWith("worker-0", {1});
  EXPECT_FALSE(ranks_->decided());
  Join("worker-1");
  EXPECT_EQ(Assigned("worker-1"), (Ranks{0, 2}));
}

TEST_F(LogicalWorkersTest, WorkerThatReturnsInTimeGetsItsRanks) {
  Begin(6, 3);
  for (const char* worker : {"worker-0", "worker-1", "worker-2"}) Join(worker);
  EXPECT_EQ(Leave("worker-1"), (Ranks{2, 3}));
  Pass(kGrace);
  EXPECT_FALSE(ranks_->AllHosted());
  EXPECT_EQ(ranks_->LastHostOf(2), "worker-1");
  const uint64_t before = IncarnationOf(2);
  Join("worker-1", /*ready=*/false);
  EXPECT_EQ(Assigned("worker-1"), (Ranks{2, 3}));
  EXPECT_GT(IncarnationOf(2), before);
  EXPECT_TRUE(ranks_->FreeRanks().empty());
}

TEST_F(LogicalWorkersTest, WorkerThatDiesTwiceWithoutAStepLosesItsRanks) {
  Begin(4, 2);
  Join("worker-0");
  Join("worker-1");
  Step(0, 7);
  Leave("worker-0");
  Join("worker-0", /*ready=*/false);
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0, 1})) << "it has progressed and may have died by chance";
  Step(0, 8);
  Leave("worker-0");
  EXPECT_EQ(Assigned("worker-1"), (Ranks{1, 2, 3})) << "it has done no step of rank 1";
  Join("worker-0", /*ready=*/false);
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0})) << "rank 0 had got further";
  Leave("worker-0");
  EXPECT_EQ(Assigned("worker-1"), (Ranks{1, 2, 3})) << "the first death without a step";
  Join("worker-0", /*ready=*/false);
  Leave("worker-0");
  EXPECT_EQ(Assigned("worker-1"), (Ranks{0, 1, 2, 3})) << "without a grace period";
  Join("worker-0");
  EXPECT_EQ(Assigned("worker-0"), Ranks());
}

TEST_F(LogicalWorkersTest, RankWithRepeatedDeathsFailsTheJob) {
  Begin(1, 1);
  Join("worker-0");
  Step(0, 7);
  const auto die = [&](uint32_t times) {
    for (uint32_t i = 0; i < times; ++i) {
      Pass(seconds(20));
      Leave("worker-0");
      if (i + 1 < times) Join("worker-0", /*ready=*/false);
    }
  };
  // The first one has done a step.
  die(kMaxLossesWithoutAStep);
  EXPECT_FALSE(ranks_->CheckReturn(clock_.Now(), seconds(60)).has_value());
  Join("worker-0");
  Step(0, 8);
  die(kMaxLossesWithoutAStep);
  EXPECT_FALSE(ranks_->CheckReturn(clock_.Now(), seconds(60)).has_value()) << "there was a step";
  Join("worker-0");
  die(1);
  EXPECT_FALSE(ranks_->CheckReturn(clock_.Now(), seconds(100)).has_value())
      << "a short outage can cause fast deaths";
  EXPECT_EQ(*ranks_->CheckReturn(clock_.Now(), seconds(60)),
            "worker-0 died; it was the last of 5 in a row that died as host of rank 0 before a "
            "step was done");
  // A restart loses the count, so the rank is reserved once more.
  workers_ = 1;
  Restart();
  EXPECT_FALSE(ranks_->CheckReturn(clock_.Now(), seconds(60)).has_value());
}

TEST_F(LogicalWorkersTest, RanksOfADeadWorkerGoToTheLiving) {
  Begin(6, 3);
  for (const char* worker : {"worker-0", "worker-1", "worker-2"}) Join(worker);
  Leave("worker-1");
  changed_.clear();
  Pass(kGrace + seconds(1));
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0, 1, 2}));
  EXPECT_EQ(Assigned("worker-2"), (Ranks{3, 4, 5}));
  EXPECT_EQ(changed_, (std::set<std::string>{"worker-0", "worker-2"}));
  Join("worker-1");
  EXPECT_EQ(Assigned("worker-1"), Ranks()) << "it joined too late and is idle";
}

TEST_F(LogicalWorkersTest, RanksOfALeaverGoToTheLivingAtOnce) {
  Begin(4, 2);
  Join("worker-0");
  Join("worker-1");
  Leave("worker-1", /*dead=*/false);
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0, 1, 2, 3}));
  Leave("worker-0", /*dead=*/false);
  EXPECT_EQ(ranks_->FreeRanks().size(), 4u) << "those of the last dead worker";
  Join("worker-2", /*ready=*/false);
  EXPECT_EQ(Assigned("worker-2"), (Ranks{0, 1, 2, 3}));
}

TEST_F(LogicalWorkersTest, NewWorkerTakesTheRanksOfOneDeadWorker) {
  Begin(4, 2);
  Join("worker-0");
  Join("worker-1");
  Leave("worker-1");
  Leave("worker-0");
  Join("worker-2", /*ready=*/false);
  EXPECT_EQ(Assigned("worker-2"), (Ranks{0, 1}));
  Join("worker-3", /*ready=*/false);
  EXPECT_EQ(Assigned("worker-3"), (Ranks{2, 3}));
  EXPECT_TRUE(ranks_->AllHosted());
}

TEST_F(LogicalWorkersTest, UnreadyWorkerTakesNothingWhileOthersAreReady) {
  Begin(4, 2);
  Join("worker-0");
  Join("worker-1");
  Join("worker-2", /*ready=*/false);
  Leave("worker-1");
  EXPECT_EQ(Assigned("worker-2"), Ranks());
  EXPECT_TRUE(ranks_->MarkReady("worker-2"));
  EXPECT_FALSE(ranks_->MarkReady("worker-2"));
  Place();
  EXPECT_EQ(Assigned("worker-2"), (Ranks{2, 3}));
}

TEST_F(LogicalWorkersTest, WorkerThatIsNoFollowerKeepsItsFirstRanks) {
  Begin(4, 2, /*rebalance=*/true);
  JoinWith("program", {});
  Join("worker-0");
  EXPECT_EQ(Assigned("program"), (Ranks{0, 1}));
  Leave("worker-0");
  Pass(kGrace + seconds(1));
  EXPECT_EQ(Assigned("program"), (Ranks{0, 1}));
  Join("worker-1");
  EXPECT_EQ(Assigned("worker-1"), (Ranks{2, 3}));
  Leave("program");
  Pass(kGrace + seconds(1));
  EXPECT_EQ(Assigned("worker-1"), (Ranks{0, 1, 2, 3}));
}

TEST_F(LogicalWorkersTest, RestartedWorkerMayJoinBeforeItsDeathIsSeen) {
  Begin(2, 1);
  JoinWith("worker-0", {});
  EXPECT_EQ(Check("worker-0"), absl::StatusCode::kOk);
  EXPECT_EQ(Check("worker-0", {1}), absl::StatusCode::kOk);
  EXPECT_EQ(Check(""), absl::StatusCode::kResourceExhausted);
}

TEST_F(LogicalWorkersTest, JoinerGetsRanksThatOthersGaveUp) {
  Begin(6, 2, /*rebalance=*/true);
  Join("worker-0");
  Join("worker-1");
  const uint64_t known = Version("worker-0");
  Join("worker-2", /*ready=*/false);
  EXPECT_EQ(Version("worker-0"), known) << "not before it is ready";
  ranks_->MarkReady("worker-2");
  changed_.clear();
  Place();
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0, 1}));
  EXPECT_EQ(Assigned("worker-1"), (Ranks{3, 4}));
  EXPECT_EQ(Assigned("worker-2"), Ranks());
  EXPECT_EQ(ranks_->HostOf(2), "worker-0") << "it has not given it up";
  EXPECT_EQ(changed_, (std::set<std::string>{"worker-0", "worker-1"}));
  const uint64_t before = IncarnationOf(2);
  EXPECT_FALSE(GiveUp("worker-0", 2, before + 100));
  EXPECT_FALSE(GiveUp("worker-1", 2, before));
  GiveUpWhatIsNotAssigned("worker-0");
  EXPECT_EQ(Assigned("worker-2"), (Ranks{2}));
  EXPECT_GT(IncarnationOf(2), before);
  GiveUpWhatIsNotAssigned("worker-1");
  EXPECT_EQ(Assigned("worker-2"), (Ranks{2, 5}));
  EXPECT_FALSE(GiveUp("worker-0", 2, before))
      << "a repeated release is about the former incarnation";
}

TEST_F(LogicalWorkersTest, MovingRankGoesToAWorkerPresentAtItsRelease) {
  Begin(4, 1, /*rebalance=*/true);
  Join("worker-0");
  Join("worker-1");
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0, 1}));
  Leave("worker-1");
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0, 1})) << "it is giving them up";
  GiveUpWhatIsNotAssigned("worker-0");
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0, 1, 2, 3}));
  Join("worker-2");
  Leave("worker-0");
  Pass(kGrace + seconds(1));
  EXPECT_EQ(Assigned("worker-2"), (Ranks{0, 1, 2, 3}));
}

TEST_F(LogicalWorkersTest, DrainedWorkerGivesUpAllRanksIfOthersExist) {
  Begin(4, 2);
  Join("worker-0");
  Join("worker-1");
  EXPECT_TRUE(ranks_->Drain("worker-1"));
  EXPECT_FALSE(ranks_->Drain("worker-1"));
  Place();
  EXPECT_EQ(Assigned("worker-1"), Ranks());
  GiveUpWhatIsNotAssigned("worker-1");
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0, 1, 2, 3}));
  EXPECT_TRUE(ranks_->Drain("worker-0"));
  Place();
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0, 1, 2, 3})) << "the last logical worker is never lost";
}

TEST_F(LogicalWorkersTest, IdleWorkerGetsItsShareByRebalancing) {
  Begin(4, 1);
  Join("worker-0");
  Join("worker-1");
  EXPECT_EQ(Assigned("worker-1"), Ranks());
  ranks_->Rebalance();
  Restart();
  Place();
  GiveUpWhatIsNotAssigned("worker-0");
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0, 1}));
  EXPECT_EQ(Assigned("worker-1"), (Ranks{2, 3}));
}

TEST_F(LogicalWorkersTest, FinishedRanksStayWithTheirLastHost) {
  Begin(2, 2);
  Join("worker-0");
  JoinWith("worker-1", {});
  ranks_->Finish("worker-0");
  EXPECT_TRUE(Leave("worker-0").empty());
  EXPECT_TRUE(ranks_->FreeRanks().empty());
  EXPECT_EQ(RanksOf("worker-0"), (Ranks{0}));
  EXPECT_FALSE(ranks_->AllFinished());
  Join("worker-0");
  EXPECT_EQ(Assigned("worker-0"), Ranks()) << "it has nothing to do";
  ranks_->Finish("worker-1", {1});
  EXPECT_TRUE(ranks_->AllFinished());
  EXPECT_TRUE(Leave("worker-1").empty());
  JoinWith("worker-1", {});
  EXPECT_EQ(Assigned("worker-1"), (Ranks{1})) << "it may not know that it had finished";
}

TEST_F(LogicalWorkersTest, OnlyNamedRanksFinish) {
  Begin(3, 1);
  Join("worker-0");
  ranks_->Finish("worker-0", {1});
  EXPECT_EQ(Leave("worker-0"), (Ranks{0, 2}));
  ranks_->Finish("worker-0", {0});
  EXPECT_FALSE(GiveUp("worker-0", 1, IncarnationOf(1)));
  EXPECT_EQ(ranks_->FreeRanks().size(), 2u);
}

TEST_F(LogicalWorkersTest, OrphanedRanksFailTheJobByName) {
  Begin(3, 1);
  Join("worker-0");
  Leave("worker-0");
  EXPECT_EQ(ranks_->FreeRanks().at(2).incarnation, IncarnationOf(2));
  Pass(seconds(5));
  EXPECT_FALSE(ranks_->CheckReturn(clock_.Now(), seconds(5)).has_value());
  Pass(seconds(1));
  EXPECT_EQ(*ranks_->CheckReturn(clock_.Now(), seconds(5)),
            "worker-0 died; no worker has taken over its ranks 0, 1, 2 within 5.0 s");
  Join("worker-1");
  EXPECT_FALSE(ranks_->CheckReturn(clock_.Now(), seconds(5)).has_value());
}

TEST_F(LogicalWorkersTest, ServeOnlyJobWaitsForNoSuccessor) {
  Begin(1, 0, /*rebalance=*/false, /*serve_only=*/true);
  JoinWith("worker-0", {0});
  Leave("worker-0", /*dead=*/false);
  Pass(seconds(1000));
  EXPECT_FALSE(ranks_->CheckReturn(clock_.Now(), seconds(5)).has_value());
}

TEST_F(LogicalWorkersTest, ProgressOfARankOnlyGrows) {
  Begin(2, 1);
  EXPECT_EQ(ranks_->ProgressOf(1), nullptr);
  WorkerProgress report;
  RankProgress& progress = *report.add_ranks();
  progress.set_rank(1);
  progress.set_steps(7);
  progress.set_samples(70);
  ranks_->NoteProgress(report);
  progress.set_steps(6);
  progress.set_samples(60);
  ranks_->NoteProgress(report);
  EXPECT_EQ(ranks_->ProgressOf(1)->samples(), 70u);
  Restart();
  EXPECT_EQ(ranks_->ProgressOf(1)->steps(), 7u);
  progress.set_rank(2);
  ranks_->NoteProgress(report);
}

TEST_F(LogicalWorkersTest, RestoredAssignmentContinues) {
  workers_ = 3;
  Begin(6, 3);
  for (const char* worker : {"worker-0", "worker-1", "worker-2"}) Join(worker);
  ranks_->Finish("worker-0", {0});
  Leave("worker-1");
  const uint64_t version = Version("worker-2");
  const uint64_t incarnation = IncarnationOf(2);
  Restart();
  Place();
  EXPECT_TRUE(ranks_->decided());
  EXPECT_EQ(Assigned("worker-2"), (Ranks{4, 5}));
  EXPECT_GE(Version("worker-2"), version);
  EXPECT_EQ(RanksOf("worker-0"), (Ranks{0, 1}));
  ASSERT_EQ(ranks_->FreeRanks().size(), 2u);
  EXPECT_EQ(ranks_->FreeRanks()[0].incarnation, incarnation);
  Join("worker-1");
  EXPECT_EQ(Assigned("worker-1"), (Ranks{2, 3}));
}

TEST_F(LogicalWorkersTest, LeavingRankSurvivesARestart) {
  Begin(2, 1, /*rebalance=*/true);
  Join("worker-0");
  Join("worker-1");
  ASSERT_EQ(Assigned("worker-0"), (Ranks{0}));
  Restart();
  Place();
  EXPECT_EQ(Assigned("worker-0"), (Ranks{0}));
  GiveUpWhatIsNotAssigned("worker-0");
  EXPECT_EQ(ranks_->HostOf(1), "worker-1");
}

TEST_F(LogicalWorkersTest, AssignmentIsMadeAfterARestart) {
  Begin(4, 2);
  Join("worker-1");
  Restart();
  EXPECT_FALSE(ranks_->decided());
  Join("worker-0");
  EXPECT_EQ(Assigned("worker-1"), (Ranks{0, 1})) << "it joined first";
}

// After random events a rank has one host and a new incarnation with each host, versions grow with
// each change, and in the end all ranks have hosts.
TEST_F(LogicalWorkersTest, RandomEventsKeepTheInvariants) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    const auto below = [&](uint32_t bound) {
      return std::uniform_int_distribution<uint32_t>(0, bound - 1)(random);
    };
    const uint32_t total = 1 + below(12);
    const bool rebalance = below(2) == 0;
    incarnation_ = 0;
    Begin(total, 1 + below(3), rebalance);
    std::set<std::string> present;
    std::map<uint32_t, std::pair<std::string, uint64_t>> held;
    std::map<std::string, std::pair<uint64_t, Ranks>> known;
    for (int step = 0; step < 60; ++step) {
      const std::string worker = absl::StrCat("worker-", below(6));
      switch (below(6)) {
        case 0:
        case 1:
          if (present.insert(worker).second) Join(worker, below(2) == 0);
          break;
        case 2:
          if (present.erase(worker) > 0) Leave(worker, below(2) == 0);
          known.erase(worker);
          break;
        case 3:
          Pass(seconds(below(8)));
          break;
        case 4:
          ranks_->MarkReady(worker);
          Place();
          break;
        default:
          if (present.contains(worker) && ranks_->decided()) GiveUpWhatIsNotAssigned(worker);
      }
      for (uint32_t rank = 0; rank < total; ++rank) {
        const std::string& host = ranks_->HostOf(rank);
        if (host.empty()) continue;
        ASSERT_TRUE(present.contains(host)) << host;
        auto& [last, incarnation] = held[rank];
        if (last != host) {
          ASSERT_GT(IncarnationOf(rank), incarnation) << "rank " << rank;
        }
        last = host;
        incarnation = IncarnationOf(rank);
      }
      for (const std::string& name : present) {
        if (!ranks_->AssignmentOf(name).has_value()) continue;
        auto& [version, ranks] = known[name];
        const Ranks now = Assigned(name);
        if (version != 0 && now != ranks) {
          ASSERT_GT(Version(name), version) << name;
        }
        version = Version(name);
        ranks = now;
      }
    }
    // No more events: the assignment settles.
    while (!ranks_->decided()) {
      const std::string worker = absl::StrCat("worker-", present.size() + 10);
      present.insert(worker);
      Join(worker);
    }
    if (present.insert("worker-9").second) Join("worker-9");
    for (const std::string& name : present) ranks_->MarkReady(name);
    Pass(kGrace + seconds(1));
    for (int round = 0; round < 2; ++round) {
      for (const std::string& name : present) GiveUpWhatIsNotAssigned(name);
    }
    ASSERT_TRUE(ranks_->AllHosted());
    if (!rebalance) continue;
    size_t min = total;
    size_t max = 0;
    for (const std::string& name : present) {
      min = std::min(min, Assigned(name).size());
      max = std::max(max, Assigned(name).size());
    }
    ASSERT_LE(max, min + 1);
  }
}

TEST_F(LogicalWorkersTest, HostHasNotHeardOfWhatItWasNeverTold) {
  const auto unheard = [&](uint64_t known_version) {
    Ranks ranks;
    for (const auto& rank : ranks_->LeavingUnheard("worker-0", known_version))
      ranks.push_back(rank.rank);
    return ranks;
  };
  Begin(4, 1, /*rebalance=*/true);
  Join("worker-0");
  // Its call is still pending when half of its ranks go to another worker.
  Join("worker-1");
  ASSERT_EQ(Assigned("worker-0"), (Ranks{0, 1}));
  EXPECT_EQ(unheard(0), (Ranks{2, 3}));
  const StoredRanks saved = ranks_->Save();
  ranks_.reset();
  Begin(4, 1, /*rebalance=*/true);
  ranks_->Restore(saved, clock_.Now());
  // Answers tell it only of the ranks that it keeps, under a version after those of the others.
  ranks_->MarkTold("worker-0");
  EXPECT_EQ(unheard(Version("worker-0")), (Ranks{2, 3}));
}

TEST_F(LogicalWorkersTest, HostGivesUpByItselfWhatItHasHeardOf) {
  Begin(4, 1, /*rebalance=*/true);
  Join("worker-0");
  ranks_->MarkTold("worker-0");
  const uint64_t told = Version("worker-0");
  Join("worker-1");
  ASSERT_EQ(Assigned("worker-0"), (Ranks{0, 1}));
  EXPECT_TRUE(ranks_->LeavingUnheard("worker-0", told).empty());
  EXPECT_EQ(ranks_->LeavingUnheard("worker-0", 0).size(), 2u) << "the answer was lost";
}

}  // namespace
}  // namespace pawl
