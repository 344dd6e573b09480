// Servers join and leave a running job, and some are killed during moves. Nothing is lost or
// applied twice, and the bits are those of one undisturbed server.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/client.h"
#include "tests/harness/generated_data.h"
#include "tests/harness/ledger/ledger.h"
#include "tests/harness/ledger/ledger_driver.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kStartTimeout{30};
constexpr std::chrono::seconds kMoveTimeout{60};
constexpr std::chrono::seconds kJobTimeout{200};
constexpr uint32_t kPartitions = 32;
// The goals are 100 and 500 ms on dedicated machines. Here all processes share the cores with other
// tests.
constexpr uint32_t kMaxPauseMs = 5000;

class ScaleTest : public ClusterTest {
 protected:
  static uint32_t Servers(const GetStatusResponse& status) {
    uint32_t servers = 0;
    for (const NodeStatus& node : status.nodes())
      servers += node.role() == SERVER_ROLE && !node.gone();
    return servers;
  }

  static void ScaleTo(ProcessCluster& cluster, uint32_t servers) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kStartTimeout);
    ScaleRequest request;
    request.set_servers(servers);
    ScaleResponse response;
    const grpc::Status status = cluster.scheduler().Scale(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }

  // Waits until there are this many servers and all replicas are in place.
  static void ExpectSettled(ProcessCluster& cluster, uint32_t servers) {
    const auto settled = cluster.WaitFor(
        [&](const auto& status) { return Servers(status) == servers && status.moves().settled(); },
        kMoveTimeout);
    ASSERT_TRUE(settled.ok()) << settled.status();
    ASSERT_EQ(settled->state(), RUNNING) << "the job ended too soon";
    uint32_t most = 0;
    uint32_t least = UINT32_MAX;
    for (const NodeStatus& node : settled->nodes()) {
      if (node.role() != SERVER_ROLE || node.gone()) continue;
      most = std::max(most, node.partitions());
      least = std::min(least, node.partitions());
    }
    EXPECT_LE(most, least + 1);
    const MovesStatus& moves = settled->moves();
    std::printf(
        "%u servers: %lu replicas and %lu bytes copied so far; pauses of %u handovers: p50 %u ms, "
        "p99 %u ms, max %u ms\n",
        servers, static_cast<unsigned long>(moves.replicas_moved()),
        static_cast<unsigned long>(moves.bytes_moved()), moves.handovers(), moves.pause_ms_p50(),
        moves.pause_ms_p99(), moves.pause_ms_max());
    EXPECT_LE(moves.pause_ms_max(), kMaxPauseMs);
  }

  // Waits until partitions are moving.
  static void AwaitMoves(ProcessCluster& cluster) {
    const auto moving = cluster.WaitFor(
        [](const auto& status) { return status.moves().replicas_left() > 0; }, kStartTimeout);
    ASSERT_TRUE(moving.ok()) << moving.status();
  }

  static void KillAndRestart(ProcessCluster& cluster, const std::string& server) {
    ASSERT_TRUE(cluster.Kill(server).ok());
    ASSERT_TRUE(cluster.Restart(server).ok());
    ASSERT_TRUE(cluster.WaitUntilMember(server, kStartTimeout).ok());
  }

  // Scales from 3 servers to 5 to 2, with kills during moves if `kills`.
  static void Grow(ProcessCluster& cluster, bool kills) {
    ASSERT_TRUE(cluster.AddServer().ok());
    ASSERT_TRUE(cluster.AddServer().ok());
    if (kills) {
      AwaitMoves(cluster);
      KillAndRestart(cluster, "server-0");
    }
    ExpectSettled(cluster, 5);
  }
  static void Shrink(ProcessCluster& cluster, bool kills) {
    ScaleTo(cluster, 2);
    if (kills) {
      AwaitMoves(cluster);
      KillAndRestart(cluster, "server-1");
    }
    ExpectSettled(cluster, 2);
    for (const char* server : {"server-2", "server-3", "server-4"}) {
      ASSERT_TRUE(cluster.node(server).WaitUntil(Clock::Real().Now() + kStartTimeout)) << server;
      EXPECT_TRUE(cluster.node(server).Succeeded())
          << server << " " << cluster.node(server).HowItEnded();
    }
  }
};

TEST_F(ScaleTest, SyncJobEndsWithTheBitsOfOneServer) {
  const std::string train = absl::StrCat(std::getenv("TEST_TMPDIR"), "/train.libsvm");
  ASSERT_TRUE(WriteClicks({.samples = 2000}, train).ok());
  const auto start = [&](uint32_t servers, uint32_t replicas,
                         const std::vector<std::string>& worker_flags) {
    ProcessClusterOptions options;
    options.job = absl::StrCat(
        "name: 'scaled' seed: 5 data { train: '", train, "' format: LIBSVM }\n",
        "model { fm { dim: 4 } } optimizer { adam { learning_rate: 0.01 } } consistency { mode: "
        "SYNC }\n",
        "batch_size: 64 epochs: 20 logical_workers: 2 elastic: true partitions: ", kPartitions);
    options.servers = servers;
    options.workers = 2;
    options.fixed_ports = true;
    options.replicas = replicas;
    for (const char* worker : {"worker-0", "worker-1"}) options.flags[worker] = worker_flags;
    return StartCluster(options);
  };
  ProcessCluster* const quiet = start(1, 1, {});
  ASSERT_NE(quiet, nullptr);
  ASSERT_TRUE(quiet->WaitForSuccess(kJobTimeout).ok());
  ProcessCluster* const cluster = start(3, 2, {"--step_delay_ms=100"});
  ASSERT_NE(cluster, nullptr);
  ASSERT_TRUE(
      cluster->WaitFor([](const auto& status) { return status.steps() > 8; }, kStartTimeout).ok());
  Grow(*cluster, /*kills=*/true);
  if (HasFatalFailure()) return;
  Shrink(*cluster, /*kills=*/true);
  if (HasFatalFailure()) return;
  ASSERT_TRUE(cluster->WaitUntilAllEnded(kJobTimeout).ok());
  for (const char* worker : {"worker-0", "worker-1"})
    EXPECT_TRUE(cluster->node(worker).Succeeded()) << worker;
  const auto expected = quiet->Metrics();
  const auto metrics = cluster->Metrics();
  ASSERT_TRUE(expected.ok() && metrics.ok());
  EXPECT_EQ((*metrics)["state"], "COMPLETED");
  EXPECT_EQ((*metrics)["digest"], (*expected)["digest"]);
  EXPECT_EQ((*metrics)["steps"], (*expected)["steps"]);
}

TEST_F(ScaleTest, LedgerIsExactInAsyncMode) {
  constexpr uint32_t kWorkers = 2;
  constexpr uint64_t kSequences = 200;
  constexpr uint32_t kRowWidth = 64;
  ProcessClusterOptions options;
  options.job = absl::StrCat(
      "name: 'ledger' seed: 3 elastic: true consistency { mode: ASYNC } partitions: ", kPartitions);
  options.servers = 3;
  options.replicas = 2;
  options.fixed_ports = true;
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);

  // Pushes round after round until the scaling is done, each round with a table of its own.
  std::atomic<bool> stop{false};
  uint64_t rounds = 0;
  std::thread pushing([&] {
    for (; !stop || rounds < 2; ++rounds) {
      Ledger ledger;
      std::vector<std::thread> threads;
      const std::string name = absl::StrCat("ledger-", rounds);
      for (uint32_t worker = 0; worker < kWorkers; ++worker) {
        threads.emplace_back([&, worker] {
          ClientOptions client_options;
          client_options.scheduler = cluster->scheduler_address();
          auto client = Client::Connect(client_options);
          ASSERT_TRUE(client.ok()) << client.status();
          auto table = (*client)->CreateTable(LedgerTable(name, kRowWidth)).get();
          ASSERT_TRUE(table.ok()) << table.status();
          const absl::Status status = DriveFreeRunning((*client)->free_running(), *table,
                                                       {.partitions = kPartitions,
                                                        .worker = worker,
                                                        .sequences = kSequences - 1,
                                                        .in_flight = 4},
                                                       ledger);
          EXPECT_TRUE(status.ok()) << status;
        });
      }
      for (std::thread& thread : threads) thread.join();
      if (HasFailure()) return;
      ClientOptions client_options;
      client_options.scheduler = cluster->scheduler_address();
      auto reader = Client::Connect(client_options);
      ASSERT_TRUE(reader.ok()) << reader.status();
      auto table = (*reader)->OpenTable(name).get();
      ASSERT_TRUE(table.ok()) << table.status();
      const auto verdict = CheckLedger(ledger, {kWorkers, kSequences, kPartitions, kRowWidth, 1.0f},
                                       ReadThrough((*reader)->free_running(), *table, kPartitions));
      ASSERT_TRUE(verdict.ok()) << verdict.status();
      EXPECT_TRUE(verdict->exact()) << verdict->ToString();
      EXPECT_EQ(verdict->applied, kWorkers * (kSequences - 1) * kPartitions);
    }
  });
  Grow(*cluster, /*kills=*/true);
  if (!HasFatalFailure()) Shrink(*cluster, /*kills=*/true);
  stop = true;
  pushing.join();
  std::printf("%lu rounds of %lu pushes\n", static_cast<unsigned long>(rounds),
              static_cast<unsigned long>(kWorkers * (kSequences - 1)));
}

// Each rank pulls the newest rows of the other rank that the bound guarantees, pushes its own rows,
// and ends the step. The second rank has more work, so that the first runs ahead as far as allowed.
TEST_F(ScaleTest, LedgerIsExactInBoundedMode) {
  constexpr uint32_t kWorkers = 2;
  constexpr uint32_t kRowWidth = 64;
  constexpr uint64_t kStaleness = 2;
  constexpr std::array<uint32_t, kWorkers> kPulls = {1, 5};
  constexpr CallOptions kPatient = {.timeout = kMoveTimeout};
  ProcessClusterOptions options;
  options.job = absl::StrCat("name: 'bounded' seed: 3 elastic: true logical_workers: ", kWorkers,
                             " consistency { mode: BOUNDED staleness: ", kStaleness,
                             " } partitions: ", kPartitions);
  options.servers = 2;
  options.replicas = 2;
  options.expected_workers = kWorkers;
  options.fixed_ports = true;
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);

  Ledger ledger;
  std::array<std::atomic<uint64_t>, kWorkers> steps = {};
  std::atomic<uint64_t> last{UINT64_MAX};
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    ranks.emplace_back([&, rank] {
      ClientOptions client_options;
      client_options.scheduler = cluster->scheduler_address();
      client_options.role = WORKER_ROLE;
      client_options.logical_workers = {rank};
      auto client = Client::Connect(client_options);
      ASSERT_TRUE(client.ok()) << client.status();
      auto table = (*client)->CreateTable(LedgerTable("ledger", kRowWidth)).get();
      ASSERT_TRUE(table.ok()) << table.status();
      const auto opened = (*client)->OpenLogicalWorker(rank);
      ASSERT_TRUE(opened.ok()) << opened.status();
      LogicalWorker& worker = **opened;
      Session& session = worker;
      const std::vector<float> gradients(kPartitions * kRowWidth, -1.0f);
      std::vector<float> values(gradients.size());
      const auto keys_of = [&](uint32_t of_rank, uint64_t step) {
        std::vector<uint64_t> keys;
        for (uint32_t p = 0; p < kPartitions; ++p)
          keys.push_back(LedgerKey(table->id(), of_rank, step, p, kPartitions));
        return keys;
      };
      for (uint64_t step = 0; step < last; ++step) {
        const std::vector<uint64_t> keys = keys_of(rank, step);
        const bool promised = step > kStaleness;
        const std::vector<uint64_t> seen =
            promised ? keys_of(1 - rank, step - kStaleness - 1) : keys;
        for (uint32_t pull = 0; pull < kPulls[rank]; ++pull) {
          const absl::Status pulled =
              session
                  .Pull({{.table = *table, .keys = seen, .values = absl::MakeSpan(values)}},
                        kPatient)
                  .get();
          ASSERT_TRUE(pulled.ok()) << pulled;
          const size_t there = std::count(values.begin(), values.end(), 1.0f);
          ASSERT_EQ(there, promised ? values.size() : 0) << "rank " << rank << " at step " << step;
        }
        ledger.Sent(rank, step);
        const absl::Status pushed =
            session.Push({{.table = *table, .keys = keys, .gradients = gradients}}, kPatient).get();
        ASSERT_TRUE(pushed.ok()) << pushed;
        ledger.Acknowledged(rank, step);
        const absl::Status ended = worker.EndStep(kPatient).get();
        ASSERT_TRUE(ended.ok()) << ended;
        steps[rank] = step + 1;
      }
    });
  }
  const auto grow_and_shrink = [&] {
    ASSERT_TRUE(cluster->AddServer().ok());
    ASSERT_TRUE(cluster->AddServer().ok());
    AwaitMoves(*cluster);
    if (!HasFatalFailure()) KillAndRestart(*cluster, "server-0");
    if (!HasFatalFailure()) ExpectSettled(*cluster, 4);
    if (!HasFatalFailure()) ScaleTo(*cluster, 2);
    if (!HasFatalFailure()) ExpectSettled(*cluster, 2);
  };
  grow_and_shrink();
  // Neither rank is that far.
  last = std::max(steps[0], steps[1]) + kStaleness + 2;
  for (std::thread& rank : ranks) rank.join();
  if (HasFailure()) return;
  EXPECT_EQ(steps[0], last);
  EXPECT_EQ(steps[1], last);

  ClientOptions client_options;
  client_options.scheduler = cluster->scheduler_address();
  auto reader = Client::Connect(client_options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  auto table = (*reader)->OpenTable("ledger").get();
  ASSERT_TRUE(table.ok()) << table.status();
  const auto verdict = CheckLedger(ledger, {kWorkers, last + 1, kPartitions, kRowWidth, 1.0f},
                                   ReadThrough((*reader)->free_running(), *table, kPartitions));
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_TRUE(verdict->exact()) << verdict->ToString();
  EXPECT_EQ(verdict->applied, kWorkers * last * kPartitions);
  std::printf("%lu steps\n", static_cast<unsigned long>(last.load()));
}

}  // namespace
}  // namespace pawl
