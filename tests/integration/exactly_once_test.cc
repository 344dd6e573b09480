// The ledger stays exact when pushes are lost, repeated, delayed and reordered, and answers are
// lost.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/client.h"
#include "client_lib/rpc/grpc/grpc_transport.h"
#include "client_lib/rpc/testing/faulty_transport.h"
#include "tests/harness/ledger/ledger.h"
#include "tests/harness/ledger/ledger_driver.h"
#include "tests/harness/plain_client.h"
#include "tests/integration/cluster_test.h"

namespace pawl {
namespace {

constexpr uint32_t kWorkers = 4;
constexpr uint32_t kPartitions = 8;
// 256 floats make a push of about 8 KiB, so that a few of them exceed a socket's buffer.
constexpr uint32_t kRowWidth = 256;

class ExactlyOnceTest : public ClusterTest {
 protected:
  struct Member {
    std::unique_ptr<Client> client;
    std::shared_ptr<FaultyTransport> transport;
  };

  ProcessCluster* StartServing(const std::string& consistency, uint32_t workers) {
    ProcessClusterOptions options;
    options.job =
        absl::StrCat("name: 'ledger' seed: 3 partitions: ", kPartitions,
                     " logical_workers: ", kWorkers, " consistency { ", consistency, " }");
    options.servers = 2;
    options.expected_workers = workers;
    cluster_ = StartCluster(options);
    return cluster_;
  }

  // A client whose transport injects all faults.
  Member Join(Role role, std::vector<uint32_t> ranks, uint64_t seed) {
    FaultyTransport::Options faults;
    faults.seed = seed;
    faults.lose_request = 0.25;
    faults.lose_reply = 0.25;
    faults.repeat_request = 0.25;
    faults.delay_request = 0.25;
    faults.max_delay = std::chrono::milliseconds(8);
    Member member;
    member.transport = std::make_shared<FaultyTransport>(
        std::make_shared<GrpcTransport>(grpc::InsecureChannelCredentials()), faults);
    ClientOptions options;
    options.scheduler = cluster_->scheduler_address();
    options.role = role;
    options.logical_workers = std::move(ranks);
    auto client =
        Client::Connect(options, member.transport,
                        std::make_shared<GrpcControlChannel>(cluster_->scheduler_address(),
                                                             grpc::InsecureChannelCredentials()));
    EXPECT_TRUE(client.ok()) << client.status();
    if (client.ok()) member.client = *std::move(client);
    return member;
  }

  // Pulls all rows through a client without faults and compares them with the servers' counters.
  void ExpectExact(const Ledger& ledger, const std::string& table_name, uint64_t sequences,
                   float unit) {
    ClientOptions options;
    options.scheduler = cluster_->scheduler_address();
    auto reader = Client::Connect(options);
    ASSERT_TRUE(reader.ok()) << reader.status();
    auto table = (*reader)->OpenTable(table_name).get();
    ASSERT_TRUE(table.ok()) << table.status();
    const LedgerScope scope = {kWorkers, sequences, kPartitions, kRowWidth, unit};
    const auto verdict =
        CheckLedger(ledger, scope, ReadThrough((*reader)->free_running(), *table, kPartitions));
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    EXPECT_TRUE(verdict->exact()) << verdict->ToString();
    // Every push was retried until it was acknowledged, except the sequence that is never sent.
    EXPECT_EQ(ledger.acknowledged(), kWorkers * (sequences - 1));
    EXPECT_EQ(verdict->applied, kWorkers * (sequences - 1) * kPartitions);

    auto plain = PlainClient::Join(cluster_->scheduler_address());
    ASSERT_TRUE(plain.ok()) << plain.status();
    const auto answers = (*plain)->Inspect();
    ASSERT_TRUE(answers.ok()) << answers.status();
    uint64_t applied = 0, deduplicated = 0, refused = 0;
    for (const InspectResponse& answer : *answers) {
      applied += answer.counters().pushes_applied();
      deduplicated += answer.counters().pushes_deduplicated();
      refused += answer.counters().requests_refused();
    }
    EXPECT_EQ(applied, verdict->applied);
    // The faults occurred.
    EXPECT_GT(deduplicated, applied / 10);
    EXPECT_EQ(refused, 0u);
  }

  static void ExpectFewResends(const std::vector<Member>& members) {
    uint64_t injected = 0, retries = 0;
    for (const Member& member : members) {
      injected +=
          member.transport->counters().requests_lost + member.transport->counters().replies_lost;
      retries += member.client->counters().retries;
    }
    EXPECT_GT(injected, 50u);
    EXPECT_LE(static_cast<double>(retries), 1.5 * static_cast<double>(injected));
  }

  static LedgerDriverOptions Driver(uint32_t worker, uint64_t sequences) {
    return {
        .partitions = kPartitions, .worker = worker, .sequences = sequences - 1, .in_flight = 8};
  }

  // Runs each rank in a client and a thread of its own.
  void RunSteps(uint64_t steps, Ledger& ledger, std::vector<Member>& members) {
    std::vector<LogicalWorker*> ranks;
    std::vector<Table> tables;
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      members.push_back(Join(WORKER_ROLE, {rank}, 100 + rank));
      ASSERT_NE(members.back().client, nullptr);
      auto table = members.back().client->CreateTable(LedgerTable("ledger", kRowWidth)).get();
      ASSERT_TRUE(table.ok()) << table.status();
      tables.push_back(*table);
      auto worker = members.back().client->OpenLogicalWorker(rank);
      ASSERT_TRUE(worker.ok()) << worker.status();
      ranks.push_back(*worker);
    }
    std::vector<absl::Status> statuses(kWorkers);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kWorkers; ++rank) {
      threads.emplace_back([&, rank] {
        statuses[rank] = DriveSteps(*ranks[rank], tables[rank], Driver(rank, steps), ledger);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  }

  ProcessCluster* cluster_ = nullptr;
};

TEST_F(ExactlyOnceTest, FreeRunningClientsInAsyncMode) {
  constexpr uint64_t kSequences = 150;
  ASSERT_NE(StartServing("mode: ASYNC", 0), nullptr);
  Ledger ledger;
  std::vector<Member> members;
  std::vector<Table> tables;
  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    members.push_back(Join(CLIENT_ROLE, {}, worker + 1));
    ASSERT_NE(members.back().client, nullptr);
    auto table = members.back().client->CreateTable(LedgerTable("ledger", kRowWidth)).get();
    ASSERT_TRUE(table.ok()) << table.status();
    tables.push_back(*table);
  }
  std::vector<absl::Status> statuses(kWorkers);
  std::vector<std::thread> threads;
  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      statuses[worker] = DriveFreeRunning(members[worker].client->free_running(), tables[worker],
                                          Driver(worker, kSequences), ledger);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  ExpectExact(ledger, "ledger", kSequences, 1.0f);
  ExpectFewResends(members);
}

TEST_F(ExactlyOnceTest, LogicalWorkersInBoundedMode) {
  constexpr uint64_t kSteps = 50;
  ASSERT_NE(StartServing("mode: BOUNDED staleness: 2", kWorkers), nullptr);
  Ledger ledger;
  std::vector<Member> members;
  RunSteps(kSteps, ledger, members);
  ExpectExact(ledger, "ledger", kSteps, 1.0f);
  ExpectFewResends(members);
}

TEST_F(ExactlyOnceTest, LogicalWorkersInSyncMode) {
  constexpr uint64_t kSteps = 25;
  ASSERT_NE(StartServing("mode: SYNC", kWorkers), nullptr);
  Ledger ledger;
  std::vector<Member> members;
  RunSteps(kSteps, ledger, members);
  // The servers divide a step's sum by the number of ranks.
  ExpectExact(ledger, "ledger", kSteps, 1.0f / kWorkers);
  ExpectFewResends(members);
}

}  // namespace
}  // namespace pawl
