#include "client_lib/client.h"

#include <atomic>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/base/eventually.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/fake_cluster.h"
#include "client_lib/rpc/faulty_transport.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kPartitions = 16;

class ClientTest : public testing::Test {
 protected:
  void Connect(ClientOptions options = {}, std::shared_ptr<Transport> transport = nullptr) {
    if (transport == nullptr) transport = cluster_.transport();
    absl::StatusOr<std::unique_ptr<Client>> client =
        Client::Connect(std::move(options), std::move(transport), cluster_.control());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  void ConnectWorker() {
    ClientOptions options;
    options.role = WORKER_ROLE;
    Connect(std::move(options));
  }

  Table Sparse(const std::string& name, uint32_t width) {
    TableSpec spec;
    spec.set_name(name);
    spec.set_kind(SPARSE);
    spec.set_row_width(width);
    return *client_->CreateTable(spec).get();
  }

  Table Dense(const std::string& name, uint64_t elements) {
    TableSpec spec;
    spec.set_name(name);
    spec.set_kind(DENSE);
    spec.add_shape(elements);
    return *client_->CreateTable(spec).get();
  }

  // Pushes one row to a fixed key.
  std::future<absl::Status> PushRow(Session& session, const Table& table, const CallOptions& options = {}) {
    return session.Push({{.table = table, .keys = key_, .gradients = ones_}}, options);
  }

  FakeCluster cluster_{3, kPartitions};
  std::unique_ptr<Client> client_;
  const std::vector<uint64_t> key_ = {42};
  const std::vector<float> ones_ = {1, 1};
};

TEST_F(ClientTest, PushedRowsArePulledAtEveryPlaceOfTheirKey) {
  Connect();
  const Table table = Sparse("a", 3);
  const std::vector<uint64_t> keys = {7, 1000000007, 7, 9, 7};
  std::vector<float> gradients(keys.size() * 3);
  std::iota(gradients.begin(), gradients.end(), 1.f);
  ASSERT_TRUE(client_->free_running().Push({{.table = table, .keys = keys, .gradients = gradients}}).get().ok());
  EXPECT_EQ(cluster_.Row(table.id(), 7), (std::vector<float>{1 + 7 + 13, 2 + 8 + 14, 3 + 9 + 15}));
  EXPECT_EQ(cluster_.Row(table.id(), 9), (std::vector<float>{10, 11, 12}));

  const std::vector<uint64_t> wanted = {9, 7, 5, 7};
  std::vector<float> values(wanted.size() * 3, -1);
  ASSERT_TRUE(client_->free_running().Pull({{.table = table, .keys = wanted, .values = absl::MakeSpan(values)}}).get().ok());
  EXPECT_EQ(values, (std::vector<float>{10, 11, 12, 21, 24, 27, 0, 0, 0, 21, 24, 27}));
}

TEST_F(ClientTest, GradientsOfAKeyAreAddedInTheOrderOfTheCall) {
  Connect();
  const Table table = Sparse("a", 1);
  // In this order the sum is 1; in the other it is 0.
  const std::vector<uint64_t> keys = {5, 5, 5};
  const std::vector<float> gradients = {1e8f, -1e8f, 1.f};
  ASSERT_TRUE(client_->free_running().Push({{.table = table, .keys = keys, .gradients = gradients}}).get().ok());
  EXPECT_EQ(cluster_.Row(table.id(), 5), std::vector<float>{1.f});
}

TEST_F(ClientTest, DenseTensorsOfAnyLengthGoThereAndBack) {
  Connect();
  for (const uint64_t elements : {uint64_t{1}, kBlockElements, kBlockElements + 1, 20 * kBlockElements + 77}) {
    const Table table = Dense("d" + std::to_string(elements), elements);
    std::vector<float> gradients(elements);
    std::iota(gradients.begin(), gradients.end(), 1.f);
    ASSERT_TRUE(client_->free_running().Push({{.table = table, .gradients = gradients}}).get().ok());
    std::vector<float> values(elements, -1);
    ASSERT_TRUE(client_->free_running().Pull({{.table = table, .values = absl::MakeSpan(values)}}).get().ok());
    EXPECT_EQ(values, gradients);
  }
}

TEST_F(ClientTest, OneCallTakesSeveralTablesOfBothKinds) {
  Connect();
  const Table sparse = Sparse("s", 2);
  const Table other = Sparse("o", 1);
  const Table dense = Dense("d", 10);
  const std::vector<uint64_t> keys = {1, 2};
  const std::vector<float> rows = {1, 2, 3, 4};
  const std::vector<float> small = {5, 6};
  const std::vector<float> tensor(10, 7);
  std::vector<float> got_rows(4), got_small(2), got_tensor(10);
  const absl::Status status = client_->free_running()
                                  .PushPull({{.table = sparse, .keys = keys, .gradients = rows},
                                             {.table = dense, .gradients = tensor},
                                             {.table = other, .keys = keys, .gradients = small}},
                                            {{.table = dense, .values = absl::MakeSpan(got_tensor)},
                                             {.table = other, .keys = keys, .values = absl::MakeSpan(got_small)},
                                             {.table = sparse, .keys = keys, .values = absl::MakeSpan(got_rows)}})
                                  .get();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(got_rows, rows);
  EXPECT_EQ(got_small, small);
  EXPECT_EQ(got_tensor, tensor);
}

TEST_F(ClientTest, ARandomMixOfCallsEqualsAMap) {
  Connect();
  const Table table = Sparse("a", 5);
  std::mt19937_64 random(11);
  std::map<uint64_t, std::vector<float>> expected;
  for (int round = 0; round < 50; ++round) {
    std::vector<uint64_t> keys(random() % 500);
    for (uint64_t& key : keys) key = random() % 300;
    std::vector<float> gradients(keys.size() * 5);
    for (float& g : gradients) g = static_cast<float>(random() % 100);
    ASSERT_TRUE(client_->free_running().Push({{.table = table, .keys = keys, .gradients = gradients}}).get().ok());
    for (size_t i = 0; i < keys.size(); ++i) {
      std::vector<float>& row = expected[keys[i]];
      row.resize(5);
      for (int j = 0; j < 5; ++j) row[j] += gradients[i * 5 + j];
    }
    for (uint64_t& key : keys) key = random() % 300;
    std::vector<float> values(keys.size() * 5);
    ASSERT_TRUE(client_->free_running().Pull({{.table = table, .keys = keys, .values = absl::MakeSpan(values)}}).get().ok());
    for (size_t i = 0; i < keys.size(); ++i) {
      std::vector<float> row(values.begin() + i * 5, values.begin() + (i + 1) * 5);
      std::vector<float> want = expected[keys[i]];
      want.resize(5);
      ASSERT_EQ(row, want);
    }
  }
}

TEST_F(ClientTest, WrongCallsAreRefusedByNameAndSendNothing) {
  Connect();
  const Table sparse = Sparse("s", 2);
  const Table dense = Dense("d", 10);
  const std::vector<uint64_t> keys = {1, 2};
  const std::vector<float> three(3);
  std::vector<float> nine(9);
  Session& session = client_->free_running();
  EXPECT_EQ(session.Push({{.table = sparse, .keys = keys, .gradients = three}}).get(),
            absl::InvalidArgumentError("items[0] for table `s`: gradients has 3 floats; 2 keys of width 2 take 4"));
  EXPECT_EQ(session.Pull({{.table = dense, .values = absl::MakeSpan(nine)}}).get(),
            absl::InvalidArgumentError("items[0] for table `d`: values has 9 floats; the tensor has 10"));
  EXPECT_EQ(session.Push({{.table = dense, .keys = keys, .gradients = three}}).get().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session.Push({PushItem()}).get().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session.Push(std::vector<PushItem>(kMaxItemsInCall + 1)).get().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(cluster_.events().empty());
  // The session is as good as before.
  EXPECT_TRUE(PushRow(session, sparse).get().ok());
}

TEST_F(ClientTest, AnEmptyCallIsDone) {
  Connect();
  const Table table = Sparse("s", 2);
  EXPECT_TRUE(client_->free_running().Push({}).get().ok());
  EXPECT_TRUE(client_->free_running().Push({{.table = table}}).get().ok());
  EXPECT_TRUE(client_->free_running().Pull({{.table = table}}).get().ok());
}

TEST_F(ClientTest, APushToAServerThatIsDownIsSentAgainUnderTheSameId) {
  Connect();
  const Table table = Sparse("a", 2);
  std::atomic<int> failures{3};
  cluster_.SetIntercept([&](const std::string&, Method method) {
    return method == Method::kPush && failures.fetch_sub(1) > 0 ? absl::UnavailableError("down") : absl::OkStatus();
  });
  ASSERT_TRUE(PushRow(client_->free_running(), table).get().ok());
  EXPECT_EQ(cluster_.Row(table.id(), 42), ones_);
  EXPECT_EQ(client_->counters().retries, 3);
  EXPECT_EQ(cluster_.events().size(), 1);
  EXPECT_EQ(cluster_.events()[0].segments[0].ordinal, 0);
}

TEST_F(ClientTest, APushWhoseRepliesAreAllLostIsTakenOnceAndEndsAtItsDeadline) {
  FaultyTransport::Options faults;
  faults.lose_reply = 1;
  Connect({}, std::make_shared<FaultyTransport>(cluster_.transport(), faults));
  const Table table = Sparse("a", 2);
  CallOptions options;
  options.timeout = milliseconds(500);
  EXPECT_EQ(PushRow(client_->free_running(), table, options).get().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GT(cluster_.events().size(), 1);
  EXPECT_EQ(cluster_.Row(table.id(), 42), ones_);
}

TEST_F(ClientTest, StormsOfLossesAndRepetitionsLeaveTheSumsExact) {
  FaultyTransport::Options faults;
  faults.seed = 5;
  faults.lose_request = 0.25;
  faults.lose_reply = 0.25;
  faults.repeat_request = 0.1;
  faults.delay_request = 0.2;
  auto faulty = std::make_shared<FaultyTransport>(cluster_.transport(), faults);
  Connect({}, faulty);
  const Table table = Sparse("a", 2);
  std::mt19937_64 random(3);
  std::map<uint64_t, float> expected;
  std::vector<std::vector<uint64_t>> keys;
  std::vector<std::vector<float>> gradients;
  std::vector<std::future<absl::Status>> pending;
  for (int i = 0; i < 500; ++i) {
    keys.emplace_back(1 + random() % 20);
    for (uint64_t& key : keys.back()) expected[key = random() % 1000] += 1;
    gradients.emplace_back(keys.back().size() * 2, 1.f);
  }
  for (int i = 0; i < 500; ++i) {
    pending.push_back(client_->free_running().Push({{.table = table, .keys = keys[i], .gradients = gradients[i]}}));
  }
  for (std::future<absl::Status>& push : pending) {
    const absl::Status status = push.get();
    ASSERT_TRUE(status.ok()) << status;
  }
  for (const auto& [key, sum] : expected) EXPECT_EQ(cluster_.Row(table.id(), key), (std::vector<float>{sum, sum}));
  EXPECT_GT(faulty->counters().requests_lost, 100);
  EXPECT_GT(faulty->counters().replies_lost, 100);
  EXPECT_GT(client_->counters().segments_deduplicated, 100);
  EXPECT_LE(client_->counters().retries, faulty->counters().requests_lost + faulty->counters().replies_lost);
  // What was named was taken: no ordinal is missing.
  for (uint32_t p = 0; p < kPartitions; ++p) {
    const std::set<uint64_t> ordinals = cluster_.Ordinals(1000003, 0, p);
    if (ordinals.empty()) continue;
    EXPECT_EQ(*ordinals.rbegin() + 1, ordinals.size());
  }
}

TEST_F(ClientTest, ANewRoutingIsFollowedUnderTheSamePushIds) {
  Connect();
  const Table table = Sparse("a", 1);
  std::vector<uint64_t> keys(200);
  std::iota(keys.begin(), keys.end(), 0);
  const std::vector<float> gradients(keys.size(), 1.f);
  ASSERT_TRUE(client_->free_running().Push({{.table = table, .keys = keys, .gradients = gradients}}).get().ok());
  for (uint32_t shift = 1; shift <= 5; ++shift) {
    cluster_.MovePartitions(shift);
    ASSERT_TRUE(client_->free_running().Push({{.table = table, .keys = keys, .gradients = gradients}}).get().ok());
  }
  for (const uint64_t key : keys) EXPECT_EQ(cluster_.Row(table.id(), key), std::vector<float>{6.f});
  EXPECT_EQ(client_->counters().routing_changes, 5);
  for (uint32_t p = 0; p < kPartitions; ++p) {
    EXPECT_EQ(cluster_.Ordinals(1000003, 0, p), (std::set<uint64_t>{0, 1, 2, 3, 4, 5}));
  }
  std::vector<float> values(keys.size());
  cluster_.MovePartitions(0);
  ASSERT_TRUE(client_->free_running().Pull({{.table = table, .keys = keys, .values = absl::MakeSpan(values)}}).get().ok());
  EXPECT_EQ(values, std::vector<float>(keys.size(), 6.f));
}

TEST_F(ClientTest, SegmentsAreCutAlikeUnderAnyRouting) {
  using Id = std::tuple<uint32_t, uint32_t, uint64_t>;
  std::vector<std::map<Id, std::vector<uint64_t>>> runs;
  for (const int servers : {1, 2, 5}) {
    // Few partitions, so that each has several segments of full size.
    FakeCluster cluster(servers, 4);
    ClientOptions options;
    absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(options, cluster.transport(), cluster.control());
    ASSERT_TRUE(client.ok());
    client_ = *std::move(client);
    const Table wide = Sparse("wide", 4096);
    const Table dense = Dense("d", 30 * kBlockElements + 5);
    std::vector<uint64_t> keys(700);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * 7 % 650;
    const std::vector<float> rows(keys.size() * 4096);
    const std::vector<float> tensor(30 * kBlockElements + 5);
    ASSERT_TRUE(client_->free_running()
                    .Push({{.table = wide, .keys = keys, .gradients = rows}, {.table = dense, .gradients = tensor}})
                    .get()
                    .ok());
    std::map<Id, std::vector<uint64_t>>& run = runs.emplace_back();
    for (const FakeCluster::Event& event : cluster.events()) {
      size_t bytes = 0;
      for (const FakeCluster::Event::Segment& segment : event.segments) {
        EXPECT_LE(segment.values.size() * sizeof(float), size_t{1} << 20);
        bytes += segment.values.size() * sizeof(float) + segment.keys.size() * 8;
        if (segment.duplicate) continue;
        EXPECT_TRUE(run.emplace(Id(segment.table, segment.partition, segment.ordinal), segment.keys).second);
      }
      EXPECT_LE(bytes, size_t{4} << 20);
    }
    client_.reset();
  }
  // 650 rows of 16 KiB and 31 blocks of 256 KiB.
  EXPECT_GE(runs[0].size(), 18);
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

TEST_F(ClientTest, EndStepIsSentToEveryServerAfterAllPushesOfTheStep) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  absl::StatusOr<LogicalWorker*> worker = client_->OpenLogicalWorker(1, 5);
  ASSERT_TRUE(worker.ok());
  cluster_.Hold(Method::kPush);
  std::future<absl::Status> push = PushRow(**worker, table);
  EXPECT_EQ((*worker)->step(), 5);
  std::future<absl::Status> end = (*worker)->EndStep();
  EXPECT_EQ((*worker)->step(), 6);
  std::future<absl::Status> next = PushRow(**worker, table);
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kPush) == 1; }));
  EXPECT_EQ(cluster_.events().size(), 1);
  cluster_.Hold(Method::kEndStep);
  cluster_.Release(Method::kPush);
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kEndStep) == 3; }));
  EXPECT_TRUE(push.get().ok());
  // The next step's push waits for the answers.
  EXPECT_EQ(cluster_.events().size(), 4);
  cluster_.Release(Method::kEndStep);
  EXPECT_TRUE(end.get().ok());
  EXPECT_TRUE(next.get().ok());
  const std::vector<FakeCluster::Event> events = cluster_.events();
  ASSERT_EQ(events.size(), 5);
  std::set<std::string> ended;
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(events[i].method, Method::kEndStep);
    EXPECT_EQ(events[i].header.step(), 5);
    EXPECT_EQ(events[i].header.logical_worker(), 1);
    ended.insert(events[i].server);
  }
  EXPECT_EQ(ended.size(), 3);
  EXPECT_EQ(events[0].header.step(), 5);
  EXPECT_EQ(events[4].header.step(), 6);
  EXPECT_EQ(events[4].segments[0].ordinal, 0);
}

TEST_F(ClientTest, EndStepReachesEveryPartitionOnceWhateverTheRoutingDoes) {
  ConnectWorker();
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  std::atomic<bool> moved{false};
  cluster_.SetIntercept([&](const std::string& server, Method) {
    // One of three is told under the old epoch, the others are not.
    if (server == "server-0" || moved.exchange(true)) return absl::OkStatus();
    cluster_.MovePartitions(1);
    return absl::UnavailableError("moving");
  });
  ASSERT_TRUE(worker->EndStep().get().ok());
  std::multiset<uint32_t> ended;
  for (const FakeCluster::Event& event : cluster_.events()) {
    for (const uint32_t p : event.partitions) ended.insert(p);
  }
  EXPECT_EQ(ended.size(), kPartitions);
  for (uint32_t p = 0; p < kPartitions; ++p) {
    EXPECT_EQ(ended.count(p), 1u) << p;
    EXPECT_EQ(cluster_.Clock(0, p), 1u) << p;
  }
}

TEST_F(ClientTest, EndStepSaysHowManySegmentsEveryPartitionHas) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  const auto counts = [&](uint64_t step) {
    std::map<uint32_t, uint64_t> counts;
    for (const FakeCluster::Event& event : cluster_.events()) {
      if (event.method != Method::kEndStep || event.header.step() != step) continue;
      EXPECT_EQ(event.segment_counts.size(), event.partitions.size());
      for (size_t i = 0; i < event.partitions.size(); ++i) counts[event.partitions[i]] = event.segment_counts[i];
    }
    return counts;
  };
  PushRow(*worker, table);
  PushRow(*worker, table);
  ASSERT_TRUE(worker->EndStep().get().ok());
  // A step without pushes.
  ASSERT_TRUE(worker->EndStep().get().ok());
  std::map<uint32_t, uint64_t> expected;
  for (uint32_t p = 0; p < kPartitions; ++p) expected[p] = 0;
  EXPECT_EQ(counts(1), expected);
  expected[PartitionOf(table.id(), key_[0], kPartitions)] = 2;
  EXPECT_EQ(counts(0), expected);
}

TEST_F(ClientTest, CallsWaitForAPrimaryAndGoOnAsSoonAsThereIsOne) {
  ConnectWorker();
  cluster_.AnnounceRouting();
  const Table table = Sparse("a", 2);
  const uint32_t partition = PartitionOf(table.id(), key_[0], kPartitions);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.SetPrimary(partition, std::nullopt);
  std::future<absl::Status> push = PushRow(*worker, table);
  std::future<absl::Status> end = worker->EndStep();
  std::vector<float> values(2);
  std::future<absl::Status> pull =
      client_->free_running().Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}});
  EXPECT_EQ(push.wait_for(milliseconds(100)), std::future_status::timeout);
  EXPECT_EQ(pull.wait_for(milliseconds(0)), std::future_status::timeout);
  // An epoch in which it has none still lets them wait.
  cluster_.SetPrimary(partition, std::nullopt);
  EXPECT_EQ(push.wait_for(milliseconds(50)), std::future_status::timeout);
  cluster_.SetPrimary(partition, 0);
  EXPECT_TRUE(push.get().ok());
  EXPECT_TRUE(pull.get().ok());
  // The end of a step too.
  EXPECT_TRUE(end.get().ok());
  cluster_.SetPrimary(partition, std::nullopt);
  end = worker->EndStep();
  EXPECT_EQ(end.wait_for(milliseconds(50)), std::future_status::timeout);
  cluster_.SetPrimary(partition, 1);
  EXPECT_TRUE(end.get().ok());
  for (uint32_t p = 0; p < kPartitions; ++p) EXPECT_EQ(cluster_.Clock(0, p), 2u);
}

TEST_F(ClientTest, ACallWhosePartitionHasNoPrimaryEndsAtItsDeadlineNamingThePartition) {
  ConnectWorker();
  cluster_.AnnounceRouting();
  const Table table = Sparse("a", 2);
  const uint32_t partition = PartitionOf(table.id(), key_[0], kPartitions);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.SetPrimary(partition, std::nullopt);
  ASSERT_TRUE(Eventually([&] { return client_->counters().routing_changes == 1; }));
  CallOptions options;
  options.timeout = milliseconds(100);
  const std::string name = "partition " + std::to_string(partition) + " has no primary";
  std::vector<float> values(2);
  absl::Status status = worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}, options).get();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find(name), std::string::npos) << status;
  status = worker->EndStep(options).get();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find(name), std::string::npos) << status;
  // The other partitions have it.
  for (uint32_t p = 0; p < kPartitions; ++p) EXPECT_EQ(cluster_.Clock(0, p), p == partition ? 0u : 1u);
}

TEST_F(ClientTest, ARoutingTableThatIsTooLargeForARefusalComesFromTheScheduler) {
  Connect();
  cluster_.MakeRefusalsBrief();
  const Table table = Sparse("a", 2);
  cluster_.MovePartitions(1);
  std::future<absl::Status> push = PushRow(client_->free_running(), table);
  EXPECT_EQ(push.wait_for(milliseconds(50)), std::future_status::timeout);
  cluster_.AnnounceRouting();
  EXPECT_TRUE(push.get().ok());
  EXPECT_EQ(cluster_.Row(table.id(), 42), ones_);
}

TEST_F(ClientTest, WhatASilentServerHasIsSentToItsSuccessorAsSoonAsThatIsKnown) {
  ConnectWorker();
  cluster_.AnnounceRouting();
  const Table table = Sparse("a", 2);
  const uint32_t partition = PartitionOf(table.id(), key_[0], kPartitions);
  const uint32_t first = partition % 3;
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.Hold(Method::kPush);
  std::future<absl::Status> push = PushRow(*worker, table);
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kPush) == 1; }));
  // It would be answered by now if it were not held: nothing but the new routing makes the client send it again.
  const MonotonicTime begin = Clock::Real().Now();
  for (uint32_t p = 0; p < kPartitions; ++p) {
    if (p % 3 == first) cluster_.SetPrimary(p, (first + 1) % 3);
  }
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kPush) == 2; }));
  EXPECT_LT(Clock::Real().Now() - begin, milliseconds(900));
  cluster_.Release(Method::kPush);
  EXPECT_TRUE(push.get().ok());
  EXPECT_EQ(client_->counters().segments_deduplicated, 1);
  EXPECT_EQ(cluster_.Row(table.id(), 42), ones_);
}

TEST_F(ClientTest, ASchedulerThatIsAwayIsNotNoticedByCalls) {
  Connect();
  const Table table = Sparse("a", 2);
  cluster_.SetSchedulerDown(true);
  EXPECT_TRUE(PushRow(client_->free_running(), table).get().ok());
  std::future<absl::StatusOr<Table>> found = client_->OpenTable("a");
  EXPECT_EQ(found.wait_for(milliseconds(100)), std::future_status::timeout);
  EXPECT_TRUE(client_->status().ok());
  cluster_.SetSchedulerDown(false);
  EXPECT_TRUE(found.get().ok());
  const uint64_t before = cluster_.heartbeats();
  EXPECT_TRUE(Eventually([&] { return cluster_.heartbeats() >= before + 2; }));
  EXPECT_EQ(cluster_.registrations().size(), 1u);
}

TEST_F(ClientTest, AClientThatTheSchedulerDoesNotKnowJoinsAgainAndPushesAsBefore) {
  Connect();
  const Table table = Sparse("a", 2);
  EXPECT_TRUE(PushRow(client_->free_running(), table).get().ok());
  cluster_.ForgetNodes();
  EXPECT_TRUE(Eventually([&] { return cluster_.registrations().size() == 2; }));
  EXPECT_TRUE(PushRow(client_->free_running(), table).get().ok());
  const std::vector<FakeCluster::Event> events = cluster_.events();
  EXPECT_EQ(events.back().header.client(), events.front().header.client());
  EXPECT_EQ(events.back().header.incarnation(), events.front().header.incarnation());
  const uint64_t before = cluster_.heartbeats();
  EXPECT_TRUE(Eventually([&] { return cluster_.heartbeats() >= before + 2; }));
  EXPECT_TRUE(client_->status().ok());
}

TEST_F(ClientTest, AWorkerThatTheSchedulerDoesNotKnowEndsWithAborted) {
  ClientOptions options;
  options.role = WORKER_ROLE;
  options.node = "worker-7";
  Connect(options);
  EXPECT_EQ(cluster_.registrations()[0].node(), "worker-7");
  cluster_.ForgetNodes();
  EXPECT_TRUE(client_->WaitForEnd(seconds(30)));
  EXPECT_EQ(client_->status(), absl::AbortedError("no such node"));
  EXPECT_EQ(client_->OpenTable("a").get().status().code(), absl::StatusCode::kAborted);
}

TEST_F(ClientTest, TakeOverBeginsWhereAllPartitionsAre) {
  ConnectWorker();
  for (uint32_t p = 0; p < kPartitions; ++p) cluster_.SetClock(2, p, 17);
  absl::StatusOr<LogicalWorker*> worker = client_->TakeOver(2).get();
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ((*worker)->step(), 17u);
  for (const FakeCluster::Event& event : cluster_.events()) EXPECT_EQ(event.method, Method::kTakeOver);
  const Table table = Sparse("a", 2);
  EXPECT_TRUE(PushRow(**worker, table).get().ok());
  EXPECT_TRUE((*worker)->EndStep().get().ok());
  EXPECT_EQ(cluster_.Clock(2, 0), 18u);
  EXPECT_EQ(client_->TakeOver(2).get().status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(client_->TakeOver(4).get().status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(ClientTest, TakeOverEndsAStepThatSomePartitionsHaveEnded) {
  ConnectWorker();
  for (uint32_t p = 0; p < kPartitions; ++p) cluster_.SetClock(1, p, p < 5 ? 8 : 7);
  absl::StatusOr<LogicalWorker*> worker = client_->TakeOver(1).get();
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ((*worker)->step(), 8u);
  for (uint32_t p = 0; p < kPartitions; ++p) EXPECT_EQ(cluster_.Clock(1, p), 8u) << p;
  for (const FakeCluster::Event& event : cluster_.events()) {
    if (event.method != Method::kEndStep) continue;
    EXPECT_EQ(event.header.step(), 7u);
    // Nobody knows how many there were.
    EXPECT_TRUE(event.segment_counts.empty());
    for (const uint32_t p : event.partitions) EXPECT_GE(p, 5u);
  }
}

TEST_F(ClientTest, TakeOverRefusesClocksThatNoWorkerLeaves) {
  ConnectWorker();
  cluster_.SetClock(1, 3, 2);
  EXPECT_EQ(client_->TakeOver(1).get().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ClientTest, TakeOverGoesThroughLossesAndNewRouting) {
  FaultyTransport::Options faults;
  faults.seed = 9;
  faults.lose_request = 0.3;
  faults.lose_reply = 0.3;
  ClientOptions options;
  options.role = WORKER_ROLE;
  Connect(options, std::make_shared<FaultyTransport>(cluster_.transport(), faults));
  for (uint32_t p = 0; p < kPartitions; ++p) cluster_.SetClock(0, p, p % 2 == 0 ? 3 : 4);
  std::atomic<int> calls{0};
  cluster_.SetIntercept([&](const std::string&, Method) {
    if (++calls == 2) cluster_.MovePartitions(2);
    return absl::OkStatus();
  });
  absl::StatusOr<LogicalWorker*> worker = client_->TakeOver(0).get();
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ((*worker)->step(), 4u);
  for (uint32_t p = 0; p < kPartitions; ++p) EXPECT_EQ(cluster_.Clock(0, p), 4u) << p;
}

TEST_F(ClientTest, APullAfterEndStepWaitsForItUnlessItAsksForItsStep) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.Hold(Method::kEndStep);
  std::future<absl::Status> end = worker->EndStep();
  std::vector<float> early(2), late(2);
  std::future<absl::Status> waiting = worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(late)}});
  CallOptions ahead;
  ahead.step = 1;
  EXPECT_TRUE(worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(early)}}, ahead).get().ok());
  EXPECT_EQ(waiting.wait_for(milliseconds(0)), std::future_status::timeout);
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kEndStep) == 3; }));
  cluster_.Release(Method::kEndStep);
  EXPECT_TRUE(end.get().ok());
  EXPECT_TRUE(waiting.get().ok());
  for (const FakeCluster::Event& event : cluster_.events()) {
    if (event.method != Method::kPull) continue;
    EXPECT_EQ(event.header.step(), 1);
  }
}

TEST_F(ClientTest, ManyStepsInAPipelineKeepTheirOrder) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  std::vector<std::future<absl::Status>> pending;
  for (int step = 0; step < 50; ++step) {
    pending.push_back(PushRow(*worker, table));
    pending.push_back(PushRow(*worker, table));
    pending.push_back(worker->EndStep());
  }
  for (std::future<absl::Status>& call : pending) {
    const absl::Status status = call.get();
    ASSERT_TRUE(status.ok()) << status;
  }
  uint64_t step = 0;
  for (const FakeCluster::Event& event : cluster_.events()) {
    EXPECT_GE(event.header.step(), step);
    step = event.header.step();
    if (event.method == Method::kPush) {
      EXPECT_EQ(cluster_.Ordinals(0, step, event.segments[0].partition), (std::set<uint64_t>{0, 1}));
    }
  }
  EXPECT_EQ(step, 49);
}

TEST_F(ClientTest, ACallThatIsNotAnsweredEndsAtItsDeadline) {
  Connect();
  const Table table = Sparse("a", 2);
  cluster_.Hold(Method::kPull);
  std::vector<float> values(2);
  CallOptions options;
  options.timeout = milliseconds(200);
  const MonotonicTime begin = Clock::Real().Now();
  EXPECT_EQ(
      client_->free_running().Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}, options).get().code(),
      absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(Clock::Real().Now() - begin, milliseconds(200));
  // A later answer finds nobody; the session goes on.
  cluster_.Release(Method::kPull);
  EXPECT_TRUE(client_->free_running().Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}).get().ok());
}

TEST_F(ClientTest, ACallWhoseTurnDoesNotComeEndsAtItsDeadline) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.Hold(Method::kEndStep);
  std::future<absl::Status> end = worker->EndStep();
  CallOptions options;
  options.timeout = milliseconds(100);
  std::vector<float> values(2);
  EXPECT_EQ(worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}, options).get().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(PushRow(*worker, table, options).get().code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kEndStep) == 3; }));
  cluster_.Release(Method::kEndStep);
  EXPECT_TRUE(end.get().ok());
}

TEST_F(ClientTest, AFailedPushBreaksTheSession) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.SetIntercept([](const std::string&, Method) { return absl::InvalidArgumentError("not finite"); });
  EXPECT_EQ(PushRow(*worker, table).get(), absl::InvalidArgumentError("not finite"));
  cluster_.SetIntercept(nullptr);
  EXPECT_EQ(PushRow(*worker, table).get(), absl::InvalidArgumentError("not finite"));
  EXPECT_EQ(worker->EndStep().get(), absl::InvalidArgumentError("not finite"));
  // Another rank has nothing to do with it.
  LogicalWorker* const other = *client_->OpenLogicalWorker(1);
  EXPECT_TRUE(PushRow(*other, table).get().ok());
}

TEST_F(ClientTest, AFailedJobEndsEveryCallWithTheSchedulersWords) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.Hold(Method::kPush);
  cluster_.Hold(Method::kPull);
  std::vector<float> values(2), more(2);
  std::vector<std::future<absl::Status>> pending;
  pending.push_back(PushRow(*worker, table));
  pending.push_back(worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}));
  pending.push_back(worker->EndStep());
  pending.push_back(PushRow(*worker, table));
  pending.push_back(worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(more)}}));
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kPush) == 1 && cluster_.held(Method::kPull) == 1; }));
  cluster_.FailJob("server-1 has died");
  const absl::Status expected = absl::FailedPreconditionError("the job has failed: server-1 has died");
  for (std::future<absl::Status>& call : pending) EXPECT_EQ(call.get(), expected);
  EXPECT_EQ(PushRow(*worker, table).get(), expected);
  EXPECT_EQ(client_->status(), expected);
  EXPECT_EQ(client_->OpenTable("a").get().status(), expected);
  EXPECT_TRUE(client_->WaitForEnd(seconds(10)));
  EXPECT_EQ(client_->job_state(), FAILED);
}

TEST_F(ClientTest, DestructionEndsEveryCallAndSaysGoodbye) {
  Connect();
  const Table table = Sparse("a", 2);
  cluster_.Hold(Method::kPush);
  std::future<absl::Status> push = PushRow(client_->free_running(), table);
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kPush) == 1; }));
  client_.reset();
  EXPECT_EQ(push.get().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(cluster_.said_goodbye());
}

TEST_F(ClientTest, HeartbeatsGoOn) {
  Connect();
  const uint64_t before = cluster_.heartbeats();
  EXPECT_TRUE(Eventually([&] { return cluster_.heartbeats() >= before + 5; }));
}

TEST_F(ClientTest, BytesInFlightAreBoundedAndTheRestFollows) {
  ClientOptions options;
  options.max_bytes_in_flight = size_t{1} << 20;
  Connect(options);
  const Table table = Dense("d", kBlockElements);  // 256 KiB
  const std::vector<float> gradients(kBlockElements, 1.f);
  cluster_.Hold(Method::kPush);
  std::vector<std::future<absl::Status>> pending;
  for (int i = 0; i < 12; ++i) {
    pending.push_back(client_->free_running().Push({{.table = table, .gradients = gradients}}));
  }
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kPush) == 4; }));
  while (cluster_.events().size() < 12) {
    cluster_.Release(Method::kPush);
    cluster_.Hold(Method::kPush);
  }
  cluster_.Release(Method::kPush);
  for (std::future<absl::Status>& push : pending) EXPECT_TRUE(push.get().ok());
  EXPECT_LE(cluster_.max_bytes_held(), options.max_bytes_in_flight);
  EXPECT_EQ(cluster_.Row(table.id(), 0)[0], 12.f);
}

TEST_F(ClientTest, ACallLargerThanTheBoundGoesAlone) {
  ClientOptions options;
  options.max_bytes_in_flight = 1;
  Connect(options);
  const Table table = Sparse("a", 2);
  std::future<absl::Status> first = PushRow(client_->free_running(), table);
  std::future<absl::Status> second = PushRow(client_->free_running(), table);
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
}

TEST_F(ClientTest, PushesStayWithinTheWindowOfTheServers) {
  Connect();
  const Table table = Sparse("a", 2);
  cluster_.Hold(Method::kPush);
  std::vector<std::future<absl::Status>> pending;
  for (uint64_t i = 0; i < kMaxSegmentsAhead + 10; ++i) pending.push_back(PushRow(client_->free_running(), table));
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kPush) == kMaxSegmentsAhead; }));
  EXPECT_EQ(cluster_.events().size(), kMaxSegmentsAhead);
  cluster_.Release(Method::kPush);
  for (std::future<absl::Status>& push : pending) EXPECT_TRUE(push.get().ok());
  EXPECT_EQ(cluster_.Row(table.id(), 42)[0], kMaxSegmentsAhead + 10);
}

TEST_F(ClientTest, ARankBeyondTheJobIsOutOfRange) {
  ConnectWorker();
  EXPECT_EQ(client_->OpenLogicalWorker(4).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(client_->OpenLogicalWorker(3).ok());
  EXPECT_EQ(client_->OpenLogicalWorker(3).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(ClientTest, AWorkersFreeRunningPullsNameNoSender) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  std::vector<float> values(2);
  EXPECT_TRUE(client_->free_running().Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}).get().ok());
  EXPECT_EQ(cluster_.events()[0].header.sender_case(), RequestHeader::SENDER_NOT_SET);
  EXPECT_EQ(PushRow(client_->free_running(), table).get().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ClientTest, TablesAreFoundByName) {
  Connect();
  const Table table = Sparse("a", 2);
  EXPECT_EQ(client_->OpenTable("a").get()->id(), table.id());
  EXPECT_EQ(client_->OpenTable("b").get().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(client_->ListTables().get()->size(), 1);
}

TEST_F(ClientTest, CallsFromManyThreadsAllArrive) {
  Connect();
  const Table table = Sparse("a", 2);
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      std::vector<float> values(2);
      for (int i = 0; i < 100; ++i) {
        if (!PushRow(client_->free_running(), table).get().ok()) ++failed;
        if (!client_->free_running().Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}).get().ok()) {
          ++failed;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(cluster_.Row(table.id(), 42)[0], 800.f);
}

TEST_F(ClientTest, ACallbackMayCallAgain) {
  Connect();
  const Table table = Sparse("a", 2);
  std::promise<absl::Status> done;
  std::atomic<int> left{100};
  std::function<void()> push = [&] {
    client_->free_running().Push({{.table = table, .keys = key_, .gradients = ones_}}, {}, [&](absl::Status status) {
      if (!status.ok() || --left == 0) {
        done.set_value(status);
      } else {
        push();
      }
    });
  };
  push();
  EXPECT_TRUE(done.get_future().get().ok());
  EXPECT_EQ(cluster_.Row(table.id(), 42)[0], 100.f);
}

}  // namespace
}  // namespace pawl
