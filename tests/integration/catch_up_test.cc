// A server that is briefly absent during pushes receives the changes that it missed and no others.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/client.h"
#include "tests/harness/ledger/ledger.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr uint64_t kRows = 40000;
constexpr uint32_t kRowWidth = 64;
constexpr uint32_t kKeysInPush = 2000;

class CatchUpTest : public ClusterTest {
 protected:
  // Pushes continuously, kills server-1, and restarts it after `away`. `counters` is read when all
  // of its replicas are in sync.
  void RestartServer(const std::function<void(ProcessCluster&)>& away, ServerCounters& counters);
};

void CatchUpTest::RestartServer(const std::function<void(ProcessCluster&)>& away,
                                ServerCounters& counters) {
  ProcessClusterOptions options;
  options.job = "name: 'away' seed: 1 consistency { mode: ASYNC } partitions: 16 durability: LOG";
  options.servers = 2;
  options.replicas = 2;
  options.lease = std::chrono::seconds(3);
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  ClientOptions client_options;
  client_options.scheduler = cluster->scheduler_address();
  auto client = Client::Connect(client_options);
  ASSERT_TRUE(client.ok()) << client.status();
  const TableSpec spec = LedgerTable("rows", kRowWidth);
  const auto table = (*client)->CreateTable(spec).get();
  ASSERT_TRUE(table.ok()) << table.status();
  Session& session = (*client)->free_running();
  // Each push contains key 0.
  const auto push = [&](uint64_t first, uint64_t count) {
    std::vector<uint64_t> keys = {0};
    for (uint64_t key = std::max<uint64_t>(first, 1); key < first + count; ++key)
      keys.push_back(key);
    const std::vector<float> gradients(keys.size() * kRowWidth, -1);
    return session.Push({{.table = *table, .keys = keys, .gradients = gradients}}).get();
  };
  uint64_t pushes = 0;
  for (uint64_t first = 0; first < kRows; first += kKeysInPush, ++pushes) {
    const absl::Status pushed = push(first, kKeysInPush);
    ASSERT_TRUE(pushed.ok()) << pushed;
  }
  std::atomic<bool> stop{false};
  absl::Status pushed;
  std::thread pusher([&] {
    for (; !stop && pushed.ok(); ++pushes) pushed = push(pushes % 100, 1);
  });
  const absl::Status killed = cluster->Kill("server-1");
  away(*cluster);
  const absl::Status restarted = cluster->Restart("server-1");
  const auto member = cluster->WaitUntilMember("server-1", kPatience);
  auto in_sync = cluster->WaitFor(
      [&](const auto&) {
        return cluster->Log("scheduler").find("every partition has 2 replicas in sync again") !=
               std::string::npos;
      },
      kPatience);
  if (in_sync.ok()) {
    // The figures of later heartbeats.
    const uint64_t applied = in_sync->counters().pushes_applied();
    in_sync = cluster->WaitFor(
        [&](const auto& status) { return status.counters().pushes_applied() > applied; },
        kPatience);
  }
  stop = true;
  pusher.join();
  ASSERT_TRUE(killed.ok()) << killed;
  ASSERT_TRUE(restarted.ok()) << restarted;
  ASSERT_TRUE(member.ok()) << member.status();
  ASSERT_TRUE(in_sync.ok()) << in_sync.status();
  ASSERT_TRUE(pushed.ok()) << pushed;
  counters = in_sync->counters();
  EXPECT_GE(counters.parameter_bytes(), kRows * kRowWidth * sizeof(float));
  // Each push was applied once.
  const uint64_t key = 0;
  std::vector<float> row(kRowWidth);
  const absl::Status pulled =
      session.Pull({{.table = *table, .keys = {&key, 1}, .values = absl::MakeSpan(row)}}).get();
  ASSERT_TRUE(pulled.ok()) << pulled;
  EXPECT_EQ(row[0], static_cast<float>(pushes));
}

TEST_F(CatchUpTest, BrieflyAbsentServerGetsOnlyMissedChanges) {
  ServerCounters counters;
  // The wait is part of the fault.
  RestartServer(
      [](ProcessCluster&) { std::this_thread::sleep_for(std::chrono::milliseconds(200)); },
      counters);
  EXPECT_EQ(counters.snapshot_bytes_sent(), 0u);
  EXPECT_LT(counters.catch_up_bytes_sent(), counters.parameter_bytes() / 4);
}

TEST_F(CatchUpTest, ServerDeclaredDeadCatchesUp) {
  ServerCounters counters;
  const auto away = [](ProcessCluster& cluster) {
    const auto gone = cluster.WaitFor(
        [](const auto& status) {
          return std::any_of(
              status.nodes().begin(), status.nodes().end(),
              [](const NodeStatus& node) { return node.node() == "server-1" && node.gone(); });
        },
        kPatience);
    ASSERT_TRUE(gone.ok()) << gone.status();
    // The other server continues alone.
    const uint64_t applied = gone->counters().pushes_applied();
    const auto pushed = cluster.WaitFor(
        [&](const auto& status) { return status.counters().pushes_applied() >= applied + 100; },
        kPatience);
    EXPECT_TRUE(pushed.ok()) << pushed.status();
  };
  RestartServer(away, counters);
  EXPECT_EQ(counters.snapshot_bytes_sent(), 0u);
  EXPECT_GT(counters.catch_up_bytes_sent(), 0u);
  EXPECT_LT(counters.catch_up_bytes_sent(), counters.parameter_bytes() / 2);
}

}  // namespace
}  // namespace pawl
