#include "tests/chaos/storm/storm_check.h"

#include <memory>
#include <string>
#include <vector>

#include "client_lib/client.h"
#include "gtest/gtest.h"
#include "tests/chaos/storm/bulk_table.h"
#include "tests/harness/ledger/ledger.h"
#include "tests/harness/ledger/ledger_sender.h"
#include "tests/harness/process_cluster.h"

namespace pawl {
namespace {

constexpr uint64_t kPushes = 5;
constexpr size_t kBallastBytes = 4 << 20;

// A cluster with a ledger, ballast and a bulk table.
class StormCheckTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.servers = 2;
    options_.replicas = 0;
    options_.partitions = 4;
    options_.row_width = 4;
    options_.bulk_rows = 100;
    ProcessClusterOptions cluster;
    cluster.job = "name: 'check' partitions: 4 logical_workers: 1 consistency { mode: ASYNC }";
    cluster.servers = options_.servers;
    cluster.expected_workers = 0;
    cluster.fixed_ports = cluster.proxies = true;
    auto started = ProcessCluster::Start(cluster);
    ASSERT_TRUE(started.ok()) << started.status();
    cluster_ = *std::move(started);
    ClientOptions options;
    options.scheduler = cluster_->scheduler_address();
    auto client = Client::Connect(options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    ASSERT_TRUE(WriteBulkTable(*client_, options_.bulk_rows, options_.row_width).ok());
    LedgerSenderOptions sender;
    sender.scheduler = cluster_->scheduler_address();
    sender.row_width = options_.row_width;
    sender.pushes_per_second = 0;
    sender.ballast_bytes = kBallastBytes;
    const auto summary = RunLedgerSender(sender, ledger_, [] { return kPushes; });
    ASSERT_TRUE(summary.ok()) << summary.status();
  }

  // Pushes to the row of the first push in partition 0.
  absl::Status PushAgain(float gradient) {
    const auto table = client_->OpenTable("ledger").get();
    if (!table.ok()) return table.status();
    const std::vector<uint64_t> keys = {LedgerKey(table->id(), 0, 0, 0, options_.partitions)};
    const std::vector<float> gradients(options_.row_width, gradient);
    return client_->free_running()
        .Push({{.table = *table, .keys = keys, .gradients = gradients}})
        .get();
  }

  std::vector<std::string> Violations() {
    StormReport report;
    std::vector<std::string> violations;
    StormCheck check(options_, *cluster_, servers_, BallastRows(kBallastBytes), report,
                     [&](const std::string& what) { violations.push_back(what); });
    EXPECT_TRUE(check.CheckRows(*client_, ledger_).ok());
    return violations;
  }

  StormOptions options_;
  std::unique_ptr<ProcessCluster> cluster_;
  const std::vector<std::string> servers_ = {"server-0", "server-1"};
  std::unique_ptr<Client> client_;
  Ledger ledger_;
};

TEST_F(StormCheckTest, RowsOfAllTablesAreCounted) { EXPECT_EQ(Violations().size(), 0u); }

TEST_F(StormCheckTest, RowAppliedTwiceIsAViolation) {
  ASSERT_TRUE(PushAgain(-1).ok());
  EXPECT_EQ(Violations().size(), 1u);
}

// As if a server had counted a segment twice, or lost the effect of one.
TEST_F(StormCheckTest, AppliedRowThatNoTableShowsIsAViolation) {
  ASSERT_TRUE(PushAgain(0).ok());
  const std::vector<std::string> violations = Violations();
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_NE(violations[0].find("the servers counted"), std::string::npos) << violations[0];
}

}  // namespace
}  // namespace pawl
