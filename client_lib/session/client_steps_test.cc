// How the steps of a logical worker end, and how the next host of a rank continues.
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/rpc/testing/faulty_transport.h"
#include "client_lib/testing/client_fixture.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;

TEST_F(ClientTest, EndStepFollowsAllPushesOfTheStep) {
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

TEST_F(ClientTest, EndStepReachesEveryPartitionDespiteNewRouting) {
  ConnectWorker();
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  std::atomic<bool> moved{false};
  cluster_.SetIntercept([&](const std::string& server, Method) {
    // One of three messages is sent under the old epoch, the others are not.
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

TEST_F(ClientTest, EndStepCarriesSegmentCounts) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  const auto counts = [&](uint64_t step) {
    std::map<uint32_t, uint64_t> counts;
    for (const FakeCluster::Event& event : cluster_.events()) {
      if (event.method != Method::kEndStep || event.header.step() != step) continue;
      EXPECT_EQ(event.segment_counts.size(), event.partitions.size());
      for (size_t i = 0; i < event.partitions.size(); ++i)
        counts[event.partitions[i]] = event.segment_counts[i];
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

TEST_F(ClientTest, TakeOverStartsAtThePartitionsClock) {
  ConnectWorker();
  for (uint32_t p = 0; p < kPartitions; ++p) cluster_.SetClock(2, p, 17);
  absl::StatusOr<LogicalWorker*> worker = client_->TakeOver(2).get();
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ((*worker)->step(), 17u);
  for (const FakeCluster::Event& event : cluster_.events())
    EXPECT_EQ(event.method, Method::kTakeOver);
  const Table table = Sparse("a", 2);
  EXPECT_TRUE(PushRow(**worker, table).get().ok());
  EXPECT_TRUE((*worker)->EndStep().get().ok());
  EXPECT_EQ(cluster_.Clock(2, 0), 18u);
  EXPECT_EQ(client_->TakeOver(2).get().status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(client_->TakeOver(4).get().status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(ClientTest, TakeOverEndsAPartlyEndedStep) {
  ConnectWorker();
  for (uint32_t p = 0; p < kPartitions; ++p) cluster_.SetClock(1, p, p < 5 ? 8 : 7);
  absl::StatusOr<LogicalWorker*> worker = client_->TakeOver(1).get();
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ((*worker)->step(), 8u);
  for (uint32_t p = 0; p < kPartitions; ++p) EXPECT_EQ(cluster_.Clock(1, p), 8u) << p;
  for (const FakeCluster::Event& event : cluster_.events()) {
    if (event.method != Method::kEndStep) continue;
    EXPECT_EQ(event.header.step(), 7u);
    // The number of segments is unknown.
    EXPECT_TRUE(event.segment_counts.empty());
    for (const uint32_t p : event.partitions) EXPECT_GE(p, 5u);
  }
}

TEST_F(ClientTest, TakeOverRefusesContradictoryClocks) {
  ConnectWorker();
  cluster_.SetClock(1, 3, 2);
  EXPECT_EQ(client_->TakeOver(1).get().status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ClientTest, TakeOverSurvivesLossesAndNewRouting) {
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

TEST_F(ClientTest, PullAfterEndStepWaitsUnlessItNamesItsStep) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.Hold(Method::kEndStep);
  std::future<absl::Status> end = worker->EndStep();
  std::vector<float> early(2), late(2);
  std::future<absl::Status> waiting =
      worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(late)}});
  CallOptions ahead;
  ahead.step = 1;
  EXPECT_TRUE(worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(early)}}, ahead)
                  .get()
                  .ok());
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

TEST_F(ClientTest, PipelinedStepsKeepTheirOrder) {
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
      EXPECT_EQ(cluster_.Ordinals(0, step, event.segments[0].partition),
                (std::set<uint64_t>{0, 1}));
    }
  }
  EXPECT_EQ(step, 49);
}

}  // namespace
}  // namespace pawl
