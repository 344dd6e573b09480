// Cut links between machines, on a private network. No acknowledged push is lost, none is applied
// twice, and every machine that was cut off returns.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/eventually.h"
#include "gtest/gtest.h"
#include "tests/harness/ledger/ledger.h"
#include "tests/harness/ledger/ledger_driver.h"
#include "tests/harness/ledger/ledger_sender.h"
#include "tests/harness/ledger/write_pauses.h"
#include "tests/harness/network_namespaces.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr uint32_t kPartitions = 16;
constexpr uint32_t kServers = 4;
constexpr uint32_t kReplicas = 3;
constexpr uint32_t kRowWidth = 64;
constexpr std::chrono::seconds kTimeout{40};
constexpr std::chrono::milliseconds kLease{1000};
// Longer than the lease, after which others take over.
constexpr std::chrono::milliseconds kCut{2500};
constexpr std::chrono::milliseconds kFlap{300};
constexpr int kFlaps = 5;

class NetworkPartitionTest : public ClusterTest {
 protected:
  static void SetUpTestSuite() {
    auto network = NetworkNamespaces::Enter();
    if (network.ok()) network_ = network->release();
    why_not_ = network.status();
  }

  void SetUp() override {
    if (network_ == nullptr)
      GTEST_SKIP() << "this machine permits no network namespaces: " << why_not_;
  }

  static void Do(const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; }

  // Outlives all tests, as the namespaces do.
  static NetworkNamespaces* network_;
  static absl::Status why_not_;
};

NetworkNamespaces* NetworkPartitionTest::network_ = nullptr;
absl::Status NetworkPartitionTest::why_not_;

TEST_F(NetworkPartitionTest, LedgerIsExactThroughNetworkCuts) {
  ProcessClusterOptions options;
  options.job =
      absl::StrCat("name: 'ledger' seed: 5 consistency { mode: ASYNC } partitions: ", kPartitions);
  options.servers = kServers;
  options.replicas = kReplicas;
  options.network = network_;
  options.lease = kLease;
  ProcessCluster* const cluster = StartCluster(options);
  ASSERT_NE(cluster, nullptr);

  Ledger ledger;
  std::atomic<bool> stop{false};
  absl::StatusOr<LedgerSenderSummary> summary = absl::UnknownError("not ended");
  std::thread sender([&] {
    LedgerSenderOptions sending;
    sending.scheduler = cluster->scheduler_address();
    sending.security.insecure = true;
    sending.row_width = kRowWidth;
    sending.pushes_per_second = 200;
    sending.ballast_bytes = 200'000;
    summary = RunLedgerSender(sending, ledger,
                              [&] { return stop ? NextSequence(ledger, 0) : UINT64_MAX; });
  });

  const auto expect_pushes = [&] {
    const uint64_t acknowledged = ledger.acknowledged();
    ASSERT_TRUE(Eventually([&] { return ledger.acknowledged() >= acknowledged + 20; }, kTimeout))
        << "pushes are no longer acknowledged";
  };
  const auto wait_until_settled = [&] {
    const auto status = cluster->WaitFor(
        [](const auto& now) {
          uint32_t replicas = 0;
          uint32_t present = 0;
          for (const NodeStatus& node : now.nodes()) {
            if (node.role() != SERVER_ROLE || node.gone()) continue;
            ++present;
            replicas += node.partitions();
          }
          return present == kServers && replicas == kReplicas * kPartitions &&
                 now.moves().settled();
        },
        kTimeout);
    ASSERT_TRUE(status.ok()) << status.status();
    expect_pushes();
  };
  struct Fault {
    std::string name;
    std::function<void()> begin;
    std::function<void()> end;
  };
  const auto silence = [&](const std::string& from, const std::string& to) {
    return Fault{absl::StrCat(from, " cannot be heard by ", to),
                 [=] { Do(network_->Silence(from, to)); },
                 [=] { Do(network_->Restore(from, to)); }};
  };
  const auto both_ways = [&](const std::string& one, const std::string& other) {
    const Fault there = silence(one, other);
    const Fault back = silence(other, one);
    return Fault{absl::StrCat(one, " and ", other, " cannot hear each other"),
                 [=] { there.begin(), back.begin(); }, [=] { there.end(), back.end(); }};
  };
  const std::vector<Fault> faults = {
      {"server-0 is isolated", [] { Do(network_->Disconnect("server-0")); },
       [] { Do(network_->Connect("server-0")); }},
      silence("server-1", "scheduler"),
      silence("scheduler", "server-2"),
      both_ways("server-0", "server-1"),
      silence("server-2", "server-1"),
      silence("test", "server-0"),
      silence("server-1", "test"),
      both_ways("test", "scheduler"),
      {"the scheduler is isolated", [] { Do(network_->Disconnect("scheduler")); },
       [] { Do(network_->Connect("scheduler")); }},
      {"server-2 flaps",
       [] {
         for (int i = 0; i < kFlaps; ++i) {
           Do(network_->Disconnect("server-2"));
           std::this_thread::sleep_for(kFlap);
           Do(network_->Connect("server-2"));
           std::this_thread::sleep_for(kFlap);
         }
       },
       [] {}},
  };
  wait_until_settled();
  for (const Fault& fault : faults) {
    if (HasFailure()) break;
    SCOPED_TRACE(fault.name);
    const MonotonicTime start = Clock::Real().Now();
    fault.begin();
    // The duration of the fault; the checks follow.
    std::this_thread::sleep_for(kCut);
    // Cuts between servers and scheduler must not stop pushes for long. (A sender that cannot reach
    // a server is not rescued by others.)
    if (fault.name.find("test") == std::string::npos) expect_pushes();
    fault.end();
    const MonotonicTime ended = Clock::Real().Now();
    wait_until_settled();
    const auto pauses = LongestPauses(ledger.AcknowledgementTimes(), {start, Clock::Real().Now()},
                                      Clock::Real().Now());
    std::printf("%-45s pushes paused for %.2f s; recovered %.2f s after the cut\n",
                fault.name.c_str(), pauses.empty() ? 0.0 : Seconds(pauses.begin()->second),
                Seconds(Clock::Real().Now() - ended));
  }
  stop = true;
  sender.join();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->failed, 0u);
  EXPECT_GT(summary->acknowledged, 500u);

  ClientOptions client_options;
  client_options.scheduler = cluster->scheduler_address();
  client_options.security.insecure = true;
  auto reader = Client::Connect(client_options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  auto table = (*reader)->OpenTable("ledger").get();
  ASSERT_TRUE(table.ok()) << table.status();
  const auto verdict = CheckLedger(ledger, ScopeOf(ledger, kPartitions, kRowWidth),
                                   ReadThrough((*reader)->free_running(), *table, kPartitions));
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_TRUE(verdict->exact()) << verdict->ToString();
  std::printf(
      "%lu pushes, %lu lost, %lu doubled\n", static_cast<unsigned long>(summary->acknowledged),
      static_cast<unsigned long>(verdict->lost), static_cast<unsigned long>(verdict->doubled));
}

}  // namespace
}  // namespace pawl
