// Delivery of pushes and pulls despite losses, repetitions, new routing and absent schedulers,
// under unchanged push ids.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "client_lib/rpc/testing/faulty_transport.h"
#include "client_lib/testing/client_fixture.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(ClientTest, RetriedPushKeepsItsId) {
  Connect();
  const Table table = Sparse("a", 2);
  std::atomic<int> failures{3};
  cluster_.SetIntercept([&](const std::string&, Method method) {
    return method == Method::kPush && failures.fetch_sub(1) > 0 ? absl::UnavailableError("down")
                                                                : absl::OkStatus();
  });
  ASSERT_TRUE(PushRow(client_->free_running(), table).get().ok());
  EXPECT_EQ(cluster_.Row(table.id(), 42), ones_);
  EXPECT_EQ(client_->counters().retries, 3);
  EXPECT_EQ(cluster_.events().size(), 1);
  EXPECT_EQ(cluster_.events()[0].segments[0].ordinal, 0);
}

TEST_F(ClientTest, PushWithoutRepliesIsAppliedOnce) {
  FaultyTransport::Options faults;
  faults.lose_reply = 1;
  Connect({}, std::make_shared<FaultyTransport>(cluster_.transport(), faults));
  const Table table = Sparse("a", 2);
  CallOptions options;
  options.timeout = milliseconds(500);
  EXPECT_EQ(PushRow(client_->free_running(), table, options).get().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_GT(cluster_.events().size(), 1);
  EXPECT_EQ(cluster_.Row(table.id(), 42), ones_);
}

TEST_F(ClientTest, LossesAndRepetitionsLeaveSumsExact) {
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
    pending.push_back(client_->free_running().Push(
        {{.table = table, .keys = keys[i], .gradients = gradients[i]}}));
  }
  for (std::future<absl::Status>& push : pending) {
    const absl::Status status = push.get();
    ASSERT_TRUE(status.ok()) << status;
  }
  for (const auto& [key, sum] : expected)
    EXPECT_EQ(cluster_.Row(table.id(), key), (std::vector<float>{sum, sum}));
  EXPECT_GT(faulty->counters().requests_lost, 100);
  EXPECT_GT(faulty->counters().replies_lost, 100);
  EXPECT_GT(client_->counters().segments_deduplicated, 100);
  EXPECT_LE(client_->counters().retries,
            faulty->counters().requests_lost + faulty->counters().replies_lost);
  // Every ordinal that was used was accepted: none is missing.
  for (uint32_t p = 0; p < kPartitions; ++p) {
    const std::set<uint64_t> ordinals = cluster_.Ordinals(1000003, 0, p);
    if (ordinals.empty()) continue;
    EXPECT_EQ(*ordinals.rbegin() + 1, ordinals.size());
  }
}

TEST_F(ClientTest, NewRoutingKeepsPushIds) {
  Connect();
  const Table table = Sparse("a", 1);
  std::vector<uint64_t> keys(200);
  std::iota(keys.begin(), keys.end(), 0);
  const std::vector<float> gradients(keys.size(), 1.f);
  ASSERT_TRUE(client_->free_running()
                  .Push({{.table = table, .keys = keys, .gradients = gradients}})
                  .get()
                  .ok());
  for (uint32_t shift = 1; shift <= 5; ++shift) {
    cluster_.MovePartitions(shift);
    ASSERT_TRUE(client_->free_running()
                    .Push({{.table = table, .keys = keys, .gradients = gradients}})
                    .get()
                    .ok());
  }
  for (const uint64_t key : keys) EXPECT_EQ(cluster_.Row(table.id(), key), std::vector<float>{6.f});
  EXPECT_EQ(client_->counters().routing_changes, 5);
  for (uint32_t p = 0; p < kPartitions; ++p) {
    EXPECT_EQ(cluster_.Ordinals(1000003, 0, p), (std::set<uint64_t>{0, 1, 2, 3, 4, 5}));
  }
  std::vector<float> values(keys.size());
  cluster_.MovePartitions(0);
  ASSERT_TRUE(client_->free_running()
                  .Pull({{.table = table, .keys = keys, .values = absl::MakeSpan(values)}})
                  .get()
                  .ok());
  EXPECT_EQ(values, std::vector<float>(keys.size(), 6.f));
}

TEST_F(ClientTest, SegmentsDoNotDependOnRouting) {
  using Id = std::tuple<uint32_t, uint32_t, uint64_t>;
  std::vector<std::map<Id, std::vector<uint64_t>>> runs;
  for (const int servers : {1, 2, 5}) {
    // Few partitions, so that each has several segments of full size.
    FakeCluster cluster(servers, 4);
    ClientOptions options;
    absl::StatusOr<std::unique_ptr<Client>> client =
        Client::Connect(options, cluster.transport(), cluster.control());
    ASSERT_TRUE(client.ok());
    client_ = *std::move(client);
    const Table wide = Sparse("wide", 4096);
    const Table dense = Dense("d", 30 * kBlockElements + 5);
    std::vector<uint64_t> keys(700);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * 7 % 650;
    const std::vector<float> rows(keys.size() * 4096);
    const std::vector<float> tensor(30 * kBlockElements + 5);
    ASSERT_TRUE(client_->free_running()
                    .Push({{.table = wide, .keys = keys, .gradients = rows},
                           {.table = dense, .gradients = tensor}})
                    .get()
                    .ok());
    std::map<Id, std::vector<uint64_t>>& run = runs.emplace_back();
    for (const FakeCluster::Event& event : cluster.events()) {
      size_t bytes = 0;
      for (const FakeCluster::Event::Segment& segment : event.segments) {
        EXPECT_LE(segment.values.size() * sizeof(float), size_t{1} << 20);
        bytes += segment.values.size() * sizeof(float) + segment.keys.size() * 8;
        if (segment.duplicate) continue;
        EXPECT_TRUE(run.emplace(Id(segment.table, segment.partition, segment.ordinal), segment.keys)
                        .second);
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

TEST_F(ClientTest, CallsWaitForAPrimary) {
  ConnectWorker();
  cluster_.AnnounceRouting();
  const Table table = Sparse("a", 2);
  const uint32_t partition = PartitionOf(table.id(), key_[0], kPartitions);
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.SetPrimary(partition, std::nullopt);
  std::future<absl::Status> push = PushRow(*worker, table);
  std::future<absl::Status> end = worker->EndStep();
  std::vector<float> values(2);
  std::future<absl::Status> pull = client_->free_running().Pull(
      {{.table = table, .keys = key_, .values = absl::MakeSpan(values)}});
  EXPECT_EQ(push.wait_for(milliseconds(100)), std::future_status::timeout);
  EXPECT_EQ(pull.wait_for(milliseconds(0)), std::future_status::timeout);
  // In an epoch without a primary the calls continue to wait.
  cluster_.SetPrimary(partition, std::nullopt);
  EXPECT_EQ(push.wait_for(milliseconds(50)), std::future_status::timeout);
  cluster_.SetPrimary(partition, 0);
  EXPECT_TRUE(push.get().ok());
  EXPECT_TRUE(pull.get().ok());
  // EndStep waits too.
  EXPECT_TRUE(end.get().ok());
  cluster_.SetPrimary(partition, std::nullopt);
  end = worker->EndStep();
  EXPECT_EQ(end.wait_for(milliseconds(50)), std::future_status::timeout);
  cluster_.SetPrimary(partition, 1);
  EXPECT_TRUE(end.get().ok());
  for (uint32_t p = 0; p < kPartitions; ++p) EXPECT_EQ(cluster_.Clock(0, p), 2u);
}

TEST_F(ClientTest, DeadlineErrorNamesPartitionWithoutPrimary) {
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
  absl::Status status =
      worker->Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}}, options)
          .get();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find(name), std::string::npos) << status;
  status = worker->EndStep(options).get();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find(name), std::string::npos) << status;
  // The other partitions have accepted it.
  for (uint32_t p = 0; p < kPartitions; ++p)
    EXPECT_EQ(cluster_.Clock(0, p), p == partition ? 0u : 1u);
}

TEST_F(ClientTest, LargeRoutingTableIsFetchedFromTheScheduler) {
  Connect();
  cluster_.OmitRoutingFromRefusals();
  const Table table = Sparse("a", 2);
  cluster_.MovePartitions(1);
  std::future<absl::Status> push = PushRow(client_->free_running(), table);
  EXPECT_EQ(push.wait_for(milliseconds(50)), std::future_status::timeout);
  cluster_.AnnounceRouting();
  EXPECT_TRUE(push.get().ok());
  EXPECT_EQ(cluster_.Row(table.id(), 42), ones_);
}

TEST_F(ClientTest, CallsAtASilentServerMoveToItsSuccessor) {
  ConnectWorker();
  cluster_.AnnounceRouting();
  const Table table = Sparse("a", 2);
  const uint32_t partition = PartitionOf(table.id(), key_[0], kPartitions);
  const uint32_t first = partition % 3;
  LogicalWorker* const worker = *client_->OpenLogicalWorker(0);
  cluster_.Hold(Method::kPush);
  std::future<absl::Status> push = PushRow(*worker, table);
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kPush) == 1; }));
  // The held call is unanswered: only the new routing makes the client send it again.
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

TEST_F(ClientTest, CallsSucceedWithoutAScheduler) {
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

// Shortens long timers, because the test's clock jumps.
class HastyTransport final : public Transport {
 public:
  explicit HastyTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}
  void Call(const std::string& address, Method method, OutgoingMessage request,
            MonotonicDuration timeout, Done done) override {
    inner_->Call(address, method, std::move(request), timeout, std::move(done));
  }
  void After(MonotonicDuration delay, absl::AnyInvocable<void()> action) override {
    if (delay <= kLongest) return inner_->After(delay, std::move(action));
    inner_->After(kLongest, [timers = timers_, action = std::move(action)]() mutable {
      action();
      ++*timers;
    });
  }
  void Shutdown() override { inner_->Shutdown(); }
  // The shortened timers that have run.
  int timers() const { return *timers_; }

 private:
  static constexpr milliseconds kLongest{10};

  const std::shared_ptr<Transport> inner_;
  const std::shared_ptr<std::atomic<int>> timers_ = std::make_shared<std::atomic<int>>(0);
};

// A base, because timers of the cluster read the clock until the cluster is destroyed.
struct WithClock {
  SimulatedClock clock_;
};

class DesertedClientTest : public WithClock, public ClientTest {
 protected:
  DesertedClientTest() : transport_(std::make_shared<HastyTransport>(cluster_.transport())) {
    ClientOptions options;
    options.clock = &clock_;
    Connect(options, transport_);
  }

  // The limit of client.h.
  static constexpr seconds kSilence{3600};

  void ExpectFailureWithTime() {
    // Step by step: an answer in flight may end the silence once more, and a check that is late
    // does not count.
    for (int i = 0; i < 10 && client_->status().ok(); ++i) {
      const int timers = transport_->timers();
      clock_.Advance(kSilence);
      ASSERT_TRUE(Eventually(
          [&] { return !client_->status().ok() || transport_->timers() >= timers + 2; }));
    }
    EXPECT_TRUE(client_->WaitForEnd(seconds(0)));
    EXPECT_EQ(client_->status().code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(client_->status().message().find("has not answered for"), std::string::npos)
        << client_->status();
  }

  const std::shared_ptr<HastyTransport> transport_;
};

TEST_F(DesertedClientTest, ClientFailsWithoutASchedulerOnceItIsIdle) {
  const Table table = Sparse("a", 2);
  cluster_.SetSchedulerDown(true);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(PushRow(client_->free_running(), table).get(), absl::OkStatus());
    clock_.Advance(kSilence / 2);
    const int timers = transport_->timers();
    ASSERT_TRUE(Eventually([&] { return transport_->timers() >= timers + 2; }));
  }
  EXPECT_TRUE(client_->status().ok()) << client_->status();
  ExpectFailureWithTime();
}

TEST_F(DesertedClientTest, ClientThatCannotJoinAgainFails) {
  cluster_.RefuseRegistrations(absl::UnavailableError("the job has completed"));
  cluster_.ForgetNodes();
  ASSERT_TRUE(Eventually([&] { return cluster_.registrations().size() > 1; }));
  ExpectFailureWithTime();
}

TEST_F(DesertedClientTest, ClientThatWasStoppedAsksTheSchedulerFirst) {
  for (int i = 0; i < 3; ++i) {
    const int timers = transport_->timers();
    // So that no answer ends the silence before the client looks.
    cluster_.SetSchedulerDown(true);
    clock_.Advance(2 * kSilence);
    ASSERT_TRUE(Eventually([&] { return transport_->timers() >= timers + 2; }));
    cluster_.SetSchedulerDown(false);
    const uint64_t before = cluster_.heartbeats();
    ASSERT_TRUE(Eventually([&] { return cluster_.heartbeats() >= before + 3; }));
    EXPECT_TRUE(client_->status().ok()) << client_->status();
  }
}

TEST_F(DesertedClientTest, IdleClientStaysWithItsScheduler) {
  for (int i = 0; i < 6; ++i) {
    const uint64_t before = cluster_.heartbeats();
    clock_.Advance(kSilence / 4);
    ASSERT_TRUE(Eventually([&] { return cluster_.heartbeats() >= before + 3; }));
  }
  EXPECT_TRUE(client_->status().ok()) << client_->status();
}

TEST_F(ClientTest, DisownedClientJoinsAgainAndKeepsPushing) {
  Connect();
  const Table table = Sparse("a", 2);
  EXPECT_TRUE(PushRow(client_->free_running(), table).get().ok());
  cluster_.ForgetNodes();
  EXPECT_TRUE(Eventually([&] { return cluster_.registrations().size() == 2; }));
  EXPECT_TRUE(PushRow(client_->free_running(), table).get().ok());
  const std::vector<FakeCluster::Event> events = cluster_.events();
  EXPECT_EQ(events.back().header.client(), events.front().header.client());
  EXPECT_EQ(events.back().header.incarnation(), events.front().header.incarnation());
  // It asks for the number under which it continues to push.
  EXPECT_EQ(cluster_.registrations()[1].node(), client_->node());
  EXPECT_EQ(cluster_.registrations()[1].job_id(), client_->job_id());
  // It hears of the end of that job.
  EXPECT_TRUE(cluster_.registrations()[1].that_job_only());
  const uint64_t before = cluster_.heartbeats();
  EXPECT_TRUE(Eventually([&] { return cluster_.heartbeats() >= before + 2; }));
  EXPECT_TRUE(client_->status().ok());
}

TEST_F(ClientTest, DisownedClientOfAnEndedJobFails) {
  const struct {
    absl::Status refusal;
    absl::StatusCode code;
  } cases[] = {{absl::OutOfRangeError("the job has ended"), absl::StatusCode::kFailedPrecondition},
               {absl::NotFoundError("another job"), absl::StatusCode::kAborted}};
  for (const auto& one : cases) {
    cluster_.RefuseRegistrations(absl::OkStatus());
    Connect();
    const Table table = Sparse("a", 2);
    cluster_.RefuseRegistrations(one.refusal);
    cluster_.ForgetNodes();
    EXPECT_TRUE(Eventually([&] { return !client_->status().ok(); }));
    EXPECT_EQ(client_->status().code(), one.code);
    EXPECT_EQ(PushRow(client_->free_running(), table).get().code(), one.code);
  }
}

TEST_F(ClientTest, RejoinedClientCallsTheScheduler) {
  Connect();
  EXPECT_TRUE(client_->Barrier("first", 1, 0).get().ok());
  cluster_.ForgetNodes();
  const uint64_t before = cluster_.heartbeats();
  ASSERT_TRUE(Eventually([&] { return cluster_.heartbeats() > before; }));
  EXPECT_EQ(client_->Barrier("second", 1, 0).get(), absl::OkStatus());
}

TEST_F(ClientTest, DisownedWorkerEndsWithAborted) {
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

}  // namespace
}  // namespace pawl
