#include "worker/dense/dense_replica.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client_lib/base/mutex.h"
#include "client_lib/base/testing/eventually.h"
#include "gtest/gtest.h"
#include "worker/dense/dense_store.h"
#include "worker/dense/testing/dense_process.h"
#include "worker/device/testing/remote_memory_device.h"

namespace pawl {
namespace {

// How many runs are concurrent; most of their time passes in waits. No run starts after a failure.
void InParallel(const std::vector<std::function<void()>>& runs) {
  constexpr int kAtOnce = 16;
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kAtOnce; ++i) {
    threads.emplace_back([&] {
      for (size_t run = next++; run < runs.size() && !testing::Test::HasFailure(); run = next++)
        runs[run]();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class DenseReplicaTest : public testing::TestWithParam<DenseSetting> {
 protected:
  std::vector<float> Expected(uint64_t steps) const {
    return DenseReference(steps, GetParam().optimizer);
  }
  // Checks the state after a death that lost no gradients.
  void ExpectAfterADeath(const std::vector<DenseProcess*>& processes, uint64_t steps) const {
    const std::vector<float> weights = processes[0]->Weights(steps);
    if (!GetParam().LosesSlots()) {
      EXPECT_EQ(weights, Expected(steps));
    }
    for (DenseProcess* process : processes) EXPECT_EQ(process->Weights(steps), weights);
  }
  // More operations than any run of this many steps has.
  uint64_t OperationsIn(uint64_t steps) const { return 6 + steps * (GetParam().sharded ? 4 : 2); }

  void KillAt(uint64_t number, uint64_t end_lag, bool to_survivor);
};

INSTANTIATE_TEST_SUITE_P(
    All, DenseReplicaTest,
    testing::Values(DenseSetting{.name = "Whole"},
                    DenseSetting{.name = "WithoutSlots", .optimizer = Sgd(), .sharded = true},
                    DenseSetting{.name = "WrittenBackAlways",
                                 .optimizer = Adam(),
                                 .sharded = true,
                                 .write_back_steps = 1},
                    DenseSetting{.name = "Adam", .optimizer = Adam(), .sharded = true},
                    DenseSetting{.name = "Adagrad", .optimizer = Adagrad(), .sharded = true}),
    [](const auto& of) { return of.param.name; });

TEST_P(DenseReplicaTest, AnyNumberOfProcessesMatchesAPlainLoop) {
  constexpr uint64_t kSteps = 12;
  const std::vector<std::vector<std::vector<uint32_t>>> placements = {
      {{0, 1, 2, 3}}, {{0, 1}, {2, 3}}, {{0}, {1, 2}, {3}}, {{3}, {1}, {2}, {0}}};
  for (const uint64_t bucket_bytes : {1024, 1 << 20}) {
    for (const auto& placement : placements) {
      FakeGroups groups(kRanks);
      DenseServers servers;
      std::vector<std::unique_ptr<DenseProcess>> processes;
      for (const auto& ranks : placement) {
        const std::string name = "p" + std::to_string(ranks[0]);
        DenseSetting setting = GetParam();
        setting.bucket_bytes = bucket_bytes;
        processes.push_back(std::make_unique<DenseProcess>(groups, servers, name, kSteps, setting));
        processes.back()->Host(ranks);
      }
      for (auto& process : processes) EXPECT_EQ(process->Weights(kSteps), Expected(kSteps));
      EXPECT_EQ(servers.loads, 1);
      EXPECT_EQ(groups.groups_formed(), 1u);
      for (auto& process : processes) process->Join();
    }
  }
}

TEST_P(DenseReplicaTest, BrokenGroupChangesNoStep) {
  constexpr uint64_t kSteps = 4;
  const std::vector<float> expected = Expected(kSteps);
  const auto break_at = [&](uint64_t number, const std::set<std::string>& witnesses) {
    FakeGroups groups(kRanks);
    DenseServers servers;
    uint64_t counter = 0;
    groups.BeforeEach([&](const FakeGroups::Operation&) {
      return counter++ == number ? witnesses : std::set<std::string>();
    });
    DenseProcess a(groups, servers, "a", kSteps, GetParam());
    DenseProcess b(groups, servers, "b", kSteps, GetParam());
    DenseProcess c(groups, servers, "c", kSteps, GetParam());
    a.Host({0});
    b.Host({1, 2});
    c.Host({3});
    for (DenseProcess* process : {&a, &b, &c}) {
      EXPECT_EQ(process->Weights(kSteps), expected)
          << "operation " << number << ", " << witnesses.size() << " members see it";
    }
    for (DenseProcess* process : {&a, &b, &c}) process->Join();
  };
  std::vector<std::function<void()>> runs;
  for (uint64_t number = 0; number < OperationsIn(kSteps); ++number) {
    for (const auto& members :
         std::vector<std::set<std::string>>{{"a"}, {"b"}, {"c"}, {"a", "b"}, {"a", "b", "c"}}) {
      runs.emplace_back([&break_at, number, members] { break_at(number, members); });
    }
  }
  InParallel(runs);
}

// A process dies at an operation; its rank moves to a survivor or to a process without state.
void DenseReplicaTest::KillAt(uint64_t number, uint64_t end_lag, bool to_survivor) {
  constexpr uint64_t kSteps = 6;
  SCOPED_TRACE("operation " + std::to_string(number) + ", " + std::to_string(end_lag) +
               " ends lost" + (to_survivor ? ", to a survivor" : ", to a new process"));
  FakeGroups groups(kRanks);
  DenseServers servers;
  std::atomic<bool> reached = false;
  uint64_t counter = 0;
  groups.BeforeEach([&](const FakeGroups::Operation&) -> std::set<std::string> {
    if (counter++ != number) return {};
    reached = true;
    reached.notify_all();
    // The survivors either see the end of the operation or not, and differ in it.
    return number % 2 == 0 ? std::set<std::string>{"b", "c"} : std::set<std::string>{"a", "c"};
  });
  DenseProcess a(groups, servers, "a", kSteps, GetParam());
  DenseProcess b(groups, servers, "b", kSteps, GetParam());
  DenseProcess d(groups, servers, "d", kSteps, GetParam());
  auto c = std::make_unique<DenseProcess>(groups, servers, "c", kSteps, GetParam());
  for (DenseProcess* process : {&a, &b, &d, c.get()}) process->end_lag = end_lag;
  a.Host({0});
  b.Host({1, 2});
  c->Host({3});
  reached.wait(false);
  c->Kill();
  // Steps that the dead process had not ended are repeated.
  DenseProcess& successor = to_survivor ? b : d;
  successor.Host({3});
  // Steps whose end the servers have not seen lose nothing.
  if (end_lag > 0) {
    ExpectAfterADeath({&a, &b, &successor}, kSteps);
  } else {
    EXPECT_EQ(a.Weights(kSteps), b.Weights(kSteps));
    EXPECT_EQ(a.Weights(kSteps), successor.Weights(kSteps));
  }
  EXPECT_EQ(servers.loads, 1);
  for (DenseProcess* process : {&a, &b, &d}) process->Join();
  for (const auto& clock : servers.clocks) EXPECT_EQ(clock, kSteps);
}

TEST_P(DenseReplicaTest, SurvivorsContinueAfterADeathAtAnyOperation) {
  std::vector<std::function<void()>> runs;
  for (uint64_t number = 4; number < OperationsIn(6); ++number) {
    for (const uint64_t end_lag : {0, 1, 2}) {
      for (const bool to_survivor : {true, false}) {
        runs.emplace_back(
            [this, number, end_lag, to_survivor] { KillAt(number, end_lag, to_survivor); });
      }
    }
  }
  InParallel(runs);
}

TEST_P(DenseReplicaTest, SuccessorWithoutStateComputesAPartlyDoneStep) {
  constexpr uint64_t kSteps = 6;
  FakeGroups groups(kRanks);
  DenseServers servers;
  std::atomic<bool> reached = false;
  std::atomic<bool> killed = false;
  int buckets = 0;
  // The first bucket of step 2 is complete everywhere, the second nowhere.
  groups.BeforeEach([&](const FakeGroups::Operation& operation) -> std::set<std::string> {
    if (GetParam().CompletesBucket(operation) && buckets++ == 5) reached = true;
    return reached && !killed ? std::set<std::string>{"a", "b", "c"} : std::set<std::string>();
  });
  DenseProcess a(groups, servers, "a", kSteps, GetParam());
  DenseProcess b(groups, servers, "b", kSteps, GetParam());
  DenseProcess d(groups, servers, "d", kSteps, GetParam());
  auto c = std::make_unique<DenseProcess>(groups, servers, "c", kSteps, GetParam());
  for (DenseProcess* process : {&a, &b, &d, c.get()}) process->end_lag = 1;
  a.Host({0});
  b.Host({1, 2});
  c->Host({3});
  while (!reached) std::this_thread::yield();
  c->Kill();
  killed = true;
  ASSERT_EQ(servers.clocks[3], 2u);
  d.Host({3});
  ExpectAfterADeath({&a, &b, &d}, kSteps);
  EXPECT_EQ(servers.loads, 1);
  for (DenseProcess* process : {&a, &b, &d}) process->Join();
}

TEST_P(DenseReplicaTest, JoiningProcessGetsTheStateFromTheOthers) {
  constexpr uint64_t kSteps = 20;
  FakeGroups groups(kRanks);
  DenseServers servers;
  DenseProcess a(groups, servers, "a", kSteps, GetParam());
  DenseProcess joiner(groups, servers, "joiner", kSteps, GetParam());
  auto b = std::make_unique<DenseProcess>(groups, servers, "b", kSteps, GetParam());
  std::atomic<uint64_t> step = 0;
  std::atomic<bool> go_on = false;
  // Rank 3 stops before its gradients of step 10, which all other ranks have handed in; nothing of
  // that step is lost.
  b->in_step = [&](uint32_t rank, uint64_t at) {
    step = at;
    while (at == 10 && rank == 3 && !go_on) std::this_thread::yield();
  };
  a.Host({0, 1});
  b->Host({2, 3});
  while (step < 10 || servers.clocks[0] < 11 || servers.clocks[1] < 11 || servers.clocks[2] < 11)
    std::this_thread::yield();
  std::thread killer([&] { b->Stop(); });
  go_on = true;
  killer.join();
  // Rank 2's share of step 10 is lost with its process, for which no rank waited; the joiner
  // computes rank 3's.
  joiner.Host({2, 3});
  EXPECT_EQ(a.Weights(kSteps), joiner.Weights(kSteps));
  EXPECT_EQ(servers.loads, 1);
  a.Join();
  joiner.Join();
}

TEST_P(DenseReplicaTest, MovedRankLosesNothing) {
  constexpr uint64_t kSteps = 12;
  for (const bool to_joiner : {false, true}) {
    FakeGroups groups(kRanks);
    DenseServers servers;
    DenseProcess a(groups, servers, "a", kSteps, GetParam());
    DenseProcess b(groups, servers, "b", kSteps, GetParam());
    DenseProcess joiner(groups, servers, "joiner", kSteps, GetParam());
    std::atomic<bool> waits = false;
    std::atomic<bool> go_on = false;
    // Rank 0 blocks step 5 until rank 1, which has ended it, belongs to another process.
    a.in_step = [&](uint32_t rank, uint64_t step) {
      if (rank != 0 || step != 5) return;
      waits = true;
      while (!go_on) std::this_thread::yield();
    };
    a.Host({0, 1});
    b.Host({2, 3});
    while (!waits || servers.clocks[1] < 6) std::this_thread::yield();
    a.Release(1);
    DenseProcess& to = to_joiner ? joiner : b;
    to.Host({1});
    go_on = true;
    for (DenseProcess* process : {&a, &b, &to})
      EXPECT_EQ(process->Weights(kSteps), Expected(kSteps));
    EXPECT_GT(groups.groups_formed(), 1u);
    EXPECT_EQ(servers.loads, 1);
    for (DenseProcess* process : {&a, &b, &joiner}) process->Join();
  }
}

TEST_P(DenseReplicaTest, ServersRestoreTheStateAfterAllWorkersDied) {
  constexpr uint64_t kSteps = 12;
  FakeGroups groups(kRanks);
  DenseServers servers;
  // Written back after 5 steps; two ranks have ended step 7, two have not.
  servers.stored_steps = 5;
  const uint64_t clocks[] = {8, 7, 8, 7};
  for (uint32_t rank = 0; rank < kRanks; ++rank) servers.clocks[rank] = clocks[rank];
  DenseProcess a(groups, servers, "a", kSteps, GetParam());
  DenseProcess b(groups, servers, "b", kSteps, GetParam());
  std::atomic<uint64_t> first_seen = UINT64_MAX;
  b.in_step = [&](uint32_t, uint64_t step) { first_seen = std::min<uint64_t>(first_seen, step); };
  a.Host({0, 1});
  b.Host({2, 3});
  EXPECT_EQ(a.Weights(kSteps), b.Weights(kSteps));
  EXPECT_EQ(servers.loads, 1);
  EXPECT_EQ(first_seen, 7u);
  a.Join();
  b.Join();
  for (const auto& clock : servers.clocks) EXPECT_EQ(clock, kSteps);
}

DenseStore StoreOf(const DenseReplica& replica) {
  std::vector<TableSpec> models;
  for (const uint64_t elements : kElements) {
    TableSpec& spec = models.emplace_back();
    spec.set_name("t" + std::to_string(models.size()));
    spec.set_kind(DENSE);
    spec.add_shape(elements);
  }
  std::vector<Table> tables;
  for (TableSpec spec : DenseStore::Specs(models, replica.rule())) {
    spec.set_id(static_cast<uint32_t>(tables.size() + 1));
    tables.emplace_back(spec);
  }
  return DenseStore(replica.layout(), replica.rule(), std::move(tables));
}

TEST_P(DenseReplicaTest, StepsWithoutGradientsAreCountedAsLost) {
  FakeGroups groups(kRanks);
  DenseServers servers;
  DenseProcess a(groups, servers, "a", 0, GetParam());
  a.Host({0, 1, 2, 3});
  ASSERT_TRUE(a.replica().AwaitSteps(0, kLimit, Interrupt()).ok());
  // All ranks return after 3 steps elsewhere. This process, whose parameters are at version 0, has
  // not seen these steps.
  for (uint32_t rank = 0; rank < kRanks; ++rank) a.replica().Expect(rank, 2);
  for (uint32_t rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(a.replica().Begin(rank, 3).ok());
  ASSERT_TRUE(a.replica().AwaitSteps(3, kLimit, Interrupt()).ok());
  EXPECT_EQ(servers.loads, 1);
  const DenseStore store = StoreOf(a.replica());
  std::vector<float> steps;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const DenseStore::WriteBackPart share = (*a.replica().WriteBack(store, 3, rank)).value();
    for (const PushItem& item : share.items) {
      if (item.table.name() == "dense/steps")
        steps.assign(item.gradients.begin(), item.gradients.end());
    }
  }
  // After 3 steps without an update.
  EXPECT_EQ(steps, (std::vector<float>{0, 3, 0, 0}));
}

TEST_P(DenseReplicaTest, ProcessThatLostAllRanksDiscardsItsState) {
  FakeGroups groups(kRanks);
  DenseServers servers;
  std::atomic<bool> reached = false;
  std::atomic<bool> go_on = false;
  int buckets = 0;
  // The process's thread misses that moment: it waits for the last bucket of step 1.
  groups.BeforeEach([&](const FakeGroups::Operation& operation) -> std::set<std::string> {
    if (!GetParam().CompletesBucket(operation) || buckets++ != 3) return {};
    reached = true;
    while (!go_on) std::this_thread::yield();
    return {};
  });
  DenseProcess a(groups, servers, "a", 10, GetParam());
  a.Host({0, 1, 2, 3});
  while (!reached) std::this_thread::yield();
  for (uint32_t rank = 0; rank < kRanks; ++rank) a.Release(rank);
  for (uint32_t rank = 0; rank < kRanks; ++rank) a.replica().Expect(rank, 2);
  for (uint32_t rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(a.replica().Begin(rank, 2).ok());
  go_on = true;
  EXPECT_EQ(a.Weights(2), Expected(0));
  EXPECT_EQ(servers.loads, 2);
}

TEST_P(DenseReplicaTest, LeavingMemberLetsOthersEndTheirOperations) {
  FakeGroups groups(kRanks);
  DenseServers servers;
  int buckets = 0;
  // The last bucket of step 1 is with a, and on its way to b.
  groups.BeforeEach([&](const FakeGroups::Operation& operation) -> std::set<std::string> {
    if (GetParam().CompletesBucket(operation) && buckets++ == 3) groups.HoldEnds("b");
    return {};
  });
  DenseSetting setting = GetParam();
  setting.leave_limit = kLimit;
  DenseProcess a(groups, servers, "a", 2, setting);
  DenseProcess b(groups, servers, "b", 2, setting);
  a.Host({0, 1});
  b.Host({2, 3});
  ASSERT_TRUE(a.replica().AwaitSteps(2, kLimit, Interrupt()).ok());
  a.Join();
  for (const uint32_t rank : {0, 1}) a.replica().End(rank, 2);
  EXPECT_EQ(b.replica().AwaitSteps(2, std::chrono::milliseconds(200), Interrupt()).code(),
            absl::StatusCode::kDeadlineExceeded);
  groups.ReleaseEnds();
  // The bucket could not be computed again, because two ranks have no host.
  EXPECT_TRUE(b.replica().AwaitSteps(2, std::chrono::seconds(10), Interrupt()).ok());
  groups.Kill("a");
  b.Join();
}

TEST_P(DenseReplicaTest, ReadVersionIsNotOverwrittenForALaggingRank) {
  constexpr uint64_t kSteps = 8;
  FakeGroups groups(kRanks);
  DenseServers servers;
  int buckets = 0;
  // All but b have the end of step 3.
  groups.BeforeEach([&](const FakeGroups::Operation& operation) -> std::set<std::string> {
    if (GetParam().CompletesBucket(operation) && buckets++ == 3) groups.HoldEnds("b");
    return {};
  });
  DenseSetting setting = GetParam();
  setting.bucket_bytes = 1 << 20;
  DenseProcess a(groups, servers, "a", kSteps, setting);
  DenseProcess b(groups, servers, "b", kSteps, setting);
  DenseProcess c(groups, servers, "c", kSteps, setting);
  std::atomic<bool> waits = false;
  // a's rank has handed in its gradients of step 3, and its ends of steps 2 and 3 are lost.
  a.end_lag = 2;
  a.in_step = [&](uint32_t rank, uint64_t step) {
    if (step != 4) return;
    waits = true;
    while (a.interrupt(rank).reason().ok()) std::this_thread::yield();
  };
  // Its successor repeats step 2 until b has what the others have.
  b.in_step = [&](uint32_t rank, uint64_t step) {
    if (rank == 1 && step == 2) {
      EXPECT_TRUE(b.replica().AwaitSteps(4, kLimit, Interrupt()).ok());
    }
  };
  a.Host({1});
  b.Host({2, 3});
  c.Host({0});
  while (!waits) std::this_thread::yield();
  a.Kill();
  // b gets an error instead of the end; later ends are not held.
  groups.ReleaseEnds();
  ASSERT_EQ(servers.clocks[1], 2u);
  b.Host({1});
  ExpectAfterADeath({&b, &c}, kSteps);
  for (DenseProcess* process : {&b, &c}) process->Join();
}

TEST_P(DenseReplicaTest, ForwardPassReadsABucketWhileAnotherTravels) {
  FakeGroups groups(kRanks);
  DenseServers servers;
  std::atomic<int> buckets = 0;
  std::atomic<bool> seen = false;
  DenseProcess a(groups, servers, "a", 2, GetParam());
  DenseProcess b(groups, servers, "b", 2, GetParam());
  // The last bucket of step 0 does not arrive before a rank has read the first table of step 1.
  groups.BeforeEach([&](const FakeGroups::Operation& operation) -> std::set<std::string> {
    if (!GetParam().CompletesBucket(operation) || buckets++ != 1) return {};
    // The last tables are in the bucket that travels first.
    for (size_t t = kElements.size(); t-- > 0 && !seen;)
      seen = a.replica().AwaitTable(t, 1, std::chrono::seconds(5), Interrupt()).ok();
    return {};
  });
  a.Host({0, 1});
  b.Host({2, 3});
  EXPECT_EQ(a.Weights(2), Expected(2));
  EXPECT_TRUE(seen);
  a.Join();
  b.Join();
}

TEST_P(DenseReplicaTest, NoBucketIsSummedWithoutARankThatMovesInTheStep) {
  FakeGroups groups(kRanks);
  DenseServers servers;
  std::atomic<int> buckets = 0;
  std::atomic<bool> waits = false;
  std::atomic<bool> go_on = false;
  // Rank 1 has handed in all gradients of step 0, and the first bucket is about to arrive.
  groups.BeforeEach([&](const FakeGroups::Operation& operation) -> std::set<std::string> {
    if (!GetParam().CompletesBucket(operation) || buckets++ != 0) return {};
    waits = true;
    while (!go_on) std::this_thread::yield();
    return {};
  });
  DenseProcess a(groups, servers, "a", 1, GetParam());
  DenseProcess b(groups, servers, "b", 1, GetParam());
  a.Host({0, 1});
  b.Host({2, 3});
  while (!waits) std::this_thread::yield();
  a.Join();
  // It moves before the servers have the end of the step, so its successor repeats the step.
  servers.clocks[1] = 0;
  a.replica().End(1, 0);
  go_on = true;
  // Without a change of its other member the group would sum the next bucket now.
  const MonotonicTime until = Clock::Real().Now() + std::chrono::milliseconds(100);
  while (buckets < 2 && Clock::Real().Now() < until) std::this_thread::yield();
  b.Host({1});
  for (DenseProcess* process : {&a, &b}) EXPECT_EQ(process->Weights(1), Expected(1));
  b.Join();
}

TEST_P(DenseReplicaTest, MemberAheadDoesNotBlockReadyBuckets) {
  FakeGroups groups(kRanks);
  DenseServers servers;
  DenseProcess ahead(groups, servers, "a", 0, GetParam());
  DenseProcess behind(groups, servers, "b", 0, GetParam());
  ahead.Host({0, 1});
  behind.Host({2, 3});
  const auto give = [](DenseProcess& process, std::vector<uint32_t> ranks, size_t table) {
    for (const uint32_t rank : ranks) {
      absl::Span<float> gradient = process.replica().GradientBuffer(rank, table);
      std::fill(gradient.begin(), gradient.end(), 0.0f);
      process.replica().MarkReady(rank, 0, table);
    }
  };
  for (DenseProcess* process : {&ahead, &behind})
    ASSERT_TRUE(process->replica().AwaitSteps(0, kLimit, Interrupt()).ok());
  // One member has all of its gradients before the other has any. The other's first table is ready
  // after the last table has arrived.
  for (size_t t = kElements.size(); t-- > 0;) give(ahead, {0, 1}, t);
  const size_t last = kElements.size() - 1;
  give(behind, {2, 3}, last);
  if (GetParam().bucket_bytes > kElements[last] * sizeof(float)) {
    // All tables are in one bucket.
    for (size_t t = last; t-- > 0;) give(behind, {2, 3}, t);
  }
  for (DenseProcess* process : {&ahead, &behind}) {
    EXPECT_EQ(process->replica().AwaitTable(last, 1, kLimit, Interrupt()), absl::OkStatus());
  }
  for (size_t t = last; t-- > 0;) give(behind, {2, 3}, t);
  for (DenseProcess* process : {&ahead, &behind}) {
    EXPECT_EQ(process->replica().AwaitSteps(1, kLimit, Interrupt()), absl::OkStatus());
    process->Join();
  }
}

TEST_P(DenseReplicaTest, NonFiniteGradientEndsTheTraining) {
  FakeGroups groups(kRanks);
  DenseServers servers;
  DenseProcess a(groups, servers, "a", 0, GetParam());
  a.Host({0, 1, 2, 3});
  ASSERT_TRUE(a.replica().AwaitSteps(0, kLimit, Interrupt()).ok());
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    for (size_t t = 3; t-- > 0;) {
      a.replica().GradientBuffer(rank, t)[0] =
          rank == 2 ? std::numeric_limits<float>::infinity() : 0;
      a.replica().MarkReady(rank, 0, t);
    }
  }
  const absl::Status status = a.replica().AwaitSteps(1, kLimit, Interrupt());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("diverged"), absl::string_view::npos) << status;
}

TEST(ShardedDenseReplicaTest, SharesOfADeadMemberRevertToTheLastWriteBack) {
  constexpr uint64_t kSteps = 9;
  const DenseSetting setting = {.optimizer = Adam(), .sharded = true};
  FakeGroups groups(kRanks);
  DenseServers servers;
  DenseProcess a(groups, servers, "a", kSteps, setting);
  DenseProcess b(groups, servers, "b", kSteps, setting);
  auto c = std::make_unique<DenseProcess>(groups, servers, "c", kSteps, setting);
  std::atomic<bool> reached = false;
  // It dies at version 5; the last write-back was at version 3. No gradient is lost.
  c->in_step = [&](uint32_t rank, uint64_t step) {
    if (step != 5) return;
    reached = true;
    while (c->interrupt(rank).reason().ok()) std::this_thread::yield();
  };
  a.Host({0});
  b.Host({1, 2});
  c->Host({3});
  while (!reached) std::this_thread::yield();
  c->Kill();
  b.Host({3});
  // Buckets of 50 and 300 elements, in shares of 17 and 100.
  const LostSlots loss = {.step = 5, .as_of = 3, .elements = {{34, 50}, {250, 350}}};
  const std::vector<float> expected = DenseReference(kSteps, Adam(), loss);
  EXPECT_NE(expected, DenseReference(kSteps, Adam()));
  EXPECT_EQ(a.Weights(kSteps), expected);
  EXPECT_EQ(b.Weights(kSteps), expected);
  EXPECT_EQ(servers.loads, 1);
  for (DenseProcess* process : {&a, &b}) process->Join();
}

TEST(ShardedDenseReplicaTest, NothingIsWrittenBackWithoutAllSlots) {
  const DenseSetting setting = {.optimizer = Adam(), .sharded = true};
  FakeGroups groups(kRanks);
  DenseServers servers;
  DenseProcess a(groups, servers, "a", 0, setting);
  a.Host({0, 1, 2, 3});
  ASSERT_TRUE(a.replica().AwaitSteps(0, kLimit, Interrupt()).ok());
  const DenseStore store = StoreOf(a.replica());
  EXPECT_TRUE(a.replica().WriteBack(store, 0, 0)->has_value());
  for (uint32_t rank = 0; rank < kRanks; ++rank) a.replica().SkipStep(rank, 0);
  ASSERT_TRUE(a.replica().AwaitSteps(1, kLimit, Interrupt()).ok());
  EXPECT_FALSE(a.replica().WriteBack(store, 1, 0)->has_value());
}

TEST(ShardedDenseReplicaTest, NonFiniteShareEndsTheTraining) {
  const DenseSetting setting = {.sharded = true};
  FakeGroups groups(kRanks);
  DenseServers servers;
  DenseProcess a(groups, servers, "a", 0, setting);
  DenseProcess b(groups, servers, "b", 0, setting);
  a.Host({0, 1});
  b.Host({2, 3});
  for (DenseProcess* process : {&a, &b})
    ASSERT_TRUE(process->replica().AwaitSteps(0, kLimit, Interrupt()).ok());
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    DenseReplica& replica = rank < 2 ? a.replica() : b.replica();
    for (size_t t = 3; t-- > 0;) {
      // In the first member's share.
      replica.GradientBuffer(rank, t)[0] =
          rank == 2 && t == 2 ? std::numeric_limits<float>::infinity() : 0;
      replica.MarkReady(rank, 0, t);
    }
  }
  // One that fails leaves at once, so that the other may see only the end of the group.
  const auto state_of = [](DenseProcess& process) {
    return process.replica().AwaitSteps(1, std::chrono::milliseconds(1), Interrupt()).code();
  };
  EXPECT_TRUE(Eventually([&] {
    return state_of(a) == absl::StatusCode::kInvalidArgument ||
           state_of(b) == absl::StatusCode::kInvalidArgument;
  }));
  EXPECT_NE(state_of(a), absl::StatusCode::kOk);
  EXPECT_NE(state_of(b), absl::StatusCode::kOk);
}

TEST(ShardedDenseReplicaTest, RowwiseRuleIsRefused) {
  FakeGroups groups(kRanks);
  const auto former = groups.Join("a");
  for (const bool clips : {false, true}) {
    DenseReplica::Options options;
    options.elements = kElements;
    options.sharded = true;
    options.is_write_back = [](uint64_t) { return false; };
    if (clips) {
      options.optimizer = Momentum();
      options.optimizer.set_clip_norm(1);
    } else {
      options.optimizer.mutable_rowwise_adagrad()->set_learning_rate(1);
    }
    const absl::Status status = DenseReplica::Create(std::move(options), *former).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("all_reduce.sharded_optimizer"), absl::string_view::npos)
        << status;
  }
}

TEST(DenseReplicaOnDeviceTest, MemoryOfAHangingGroupIsNeitherFreedNorReused) {
  // Never destroyed: memory of it is leaked.
  static auto* const device = new RemoteMemoryDevice(RemoteMemoryDevice::Reads::kLate);
  FakeGroups groups(1);
  // The memory that the operations of the current group have read and written.
  Mutex mu;
  std::set<char*> given;
  groups.SetDeviceMemory([&](void* address, size_t bytes) {
    MutexLock lock(mu);
    given.insert(static_cast<char*>(address));
    return device->Real(static_cast<char*>(address), bytes);
  });
  const auto former = groups.Join("a");
  DenseReplica::Options options;
  options.elements = kElements;
  options.optimizer = Momentum();
  options.bucket_bytes = 1024;
  options.device = device;
  options.retry_interval = std::chrono::milliseconds(1);
  // All zeros.
  options.load = [](const Interrupt&, DenseState& state) -> absl::StatusOr<uint64_t> {
    for (size_t b = 0; b < state.versions().size(); ++b) state.Publish(b, 0);
    return 0;
  };
  const auto replica = *DenseReplica::Create(std::move(options), *former);
  replica->Expect(0, 1);
  ASSERT_TRUE(replica->Begin(0, 0).ok());
  ASSERT_TRUE(replica->AwaitSteps(0, kLimit, Interrupt()).ok());
  replica->SkipStep(0, 0);
  ASSERT_TRUE(replica->AwaitSteps(1, kLimit, Interrupt()).ok());
  std::set<char*> hanging;
  {
    MutexLock lock(mu);
    hanging.swap(given);
  }
  // Two flights, each with an input and an output.
  EXPECT_EQ(hanging.size(), 4u);

  groups.SetHangs(true);
  groups.BeforeEach([&](const FakeGroups::Operation& operation) -> std::set<std::string> {
    if (operation.generation == 1) return {"a"};
    groups.SetHangs(false);
    // The first operations of the new group; no bucket travels.
    MutexLock lock(mu);
    if (operation.number == 0) given.clear();
    return {};
  });
  replica->SkipStep(0, 1);
  ASSERT_TRUE(replica->AwaitSteps(2, kLimit, Interrupt()).ok());
  EXPECT_EQ(groups.groups_formed(), 2u);
  MutexLock lock(mu);
  EXPECT_EQ(given.size(), 4u);
  for (char* const address : hanging) {
    EXPECT_FALSE(given.contains(address));
    // Aborts if it was freed.
    device->Real(address, 1);
  }
}

// A process that no group accepts.
class RefusedFormer final : public GroupFormer {
 public:
  absl::StatusOr<Group> Form(const std::vector<GroupRank>&, std::optional<uint64_t>,
                             const Interrupt&) override {
    return absl::InvalidArgumentError("worker-0 has gloo, worker-1 has nccl");
  }
};

TEST(DenseReplicaRefusalTest, RefusedProcessTellsItsRanks) {
  RefusedFormer former;
  DenseReplica::Options options;
  options.elements = kElements;
  options.optimizer = Momentum();
  const auto replica = *DenseReplica::Create(std::move(options), former);
  EXPECT_FALSE(replica->refused());
  replica->Expect(0, 1);
  ASSERT_TRUE(replica->Begin(0, 0).ok());
  EXPECT_EQ(replica->AwaitSteps(0, kLimit, Interrupt()),
            absl::InvalidArgumentError("worker-0 has gloo, worker-1 has nccl"));
  EXPECT_TRUE(replica->refused());
}

}  // namespace
}  // namespace pawl
