// A server that is away for a moment, under pushes: it gets what it has missed, and no more.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/client.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr uint64_t kRows = 40000;
constexpr uint32_t kRowWidth = 64;
constexpr uint32_t kKeysInPush = 2000;

class CatchUpTest : public ClusterTest {
 protected:
  static uint64_t BytesSent(const ServerCounters& counters) {
    return counters.snapshot_bytes_sent() + counters.catch_up_bytes_sent();
  }
};

TEST_F(CatchUpTest, AServerThatIsAwayForAMomentGetsOnlyWhatItMissed) {
  ProcessClusterOptions options;
  options.job = "name: 'away' seed: 1 consistency { mode: ASYNC } partitions: 16 durability: LOG";
  options.servers = 2;
  options.replicas = 2;
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);
  ClientOptions client_options;
  client_options.scheduler = cluster->scheduler_address();
  auto client = Client::Connect(client_options);
  ASSERT_TRUE(client.ok()) << client.status();
  TableSpec spec;
  spec.set_name("rows");
  spec.set_kind(SPARSE);
  spec.set_row_width(kRowWidth);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
  const auto table = (*client)->CreateTable(spec).get();
  ASSERT_TRUE(table.ok()) << table.status();
  Session& session = (*client)->free_running();
  // Key 0 is in each push.
  const auto push = [&](uint64_t first, uint64_t count) {
    std::vector<uint64_t> keys = {0};
    for (uint64_t key = std::max<uint64_t>(first, 1); key < first + count; ++key) keys.push_back(key);
    const std::vector<float> gradients(keys.size() * kRowWidth, -1);
    return session.Push({{.table = *table, .keys = keys, .gradients = gradients}}).get();
  };
  uint64_t pushes = 0;
  for (uint64_t first = 0; first < kRows; first += kKeysInPush, ++pushes) {
    const absl::Status pushed = push(first, kKeysInPush);
    ASSERT_TRUE(pushed.ok()) << pushed;
  }
  std::atomic<bool> over{false};
  absl::Status pushed;
  std::thread pusher([&] {
    for (; !over && pushed.ok(); ++pushes) pushed = push(pushes % 100, 10);
  });
  const auto before = cluster->GetStatus();
  ASSERT_TRUE(cluster->Kill("server-1").ok());
  // Part of the fault.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ASSERT_TRUE(cluster->Restart("server-1").ok());
  const auto member = cluster->WaitUntilMember("server-1", kPatience);
  // What it sent before it was killed it tells no more, and it had sent nothing.
  const auto in_sync = cluster->WaitFor(
      [&](const GetStatusResponse& status) {
        return cluster->Log("scheduler").find("every partition has 2 replicas in sync again") != std::string::npos &&
               BytesSent(status.counters()) > 0;
      },
      kPatience);
  over = true;
  pusher.join();
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_TRUE(member.ok()) << member.status();
  ASSERT_TRUE(in_sync.ok()) << in_sync.status();
  ASSERT_TRUE(pushed.ok()) << pushed;
  EXPECT_EQ(BytesSent(before->counters()), 0u);
  const ServerCounters& counters = in_sync->counters();
  EXPECT_EQ(counters.snapshot_bytes_sent(), 0u);
  EXPECT_GT(counters.parameter_bytes(), 10u << 20);
  EXPECT_LT(counters.catch_up_bytes_sent(), counters.parameter_bytes() / 4);
  // Each push once.
  const uint64_t key = 0;
  std::vector<float> row(kRowWidth);
  const absl::Status pulled = session.Pull({{.table = *table, .keys = {&key, 1}, .values = absl::MakeSpan(row)}}).get();
  ASSERT_TRUE(pulled.ok()) << pulled;
  EXPECT_EQ(row[0], static_cast<float>(pushes));
}

}  // namespace
}  // namespace pawl
