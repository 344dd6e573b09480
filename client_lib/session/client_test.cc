#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/base/half.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/testing/client_fixture.h"

namespace pawl {
namespace {

TEST_F(ClientTest, PulledRowsAppearAtEveryPositionOfTheirKey) {
  Connect();
  const Table table = Sparse("a", 3);
  const std::vector<uint64_t> keys = {7, 1000000007, 7, 9, 7};
  std::vector<float> gradients(keys.size() * 3);
  std::iota(gradients.begin(), gradients.end(), 1.f);
  ASSERT_TRUE(client_->free_running()
                  .Push({{.table = table, .keys = keys, .gradients = gradients}})
                  .get()
                  .ok());
  EXPECT_EQ(cluster_.Row(table.id(), 7), (std::vector<float>{1 + 7 + 13, 2 + 8 + 14, 3 + 9 + 15}));
  EXPECT_EQ(cluster_.Row(table.id(), 9), (std::vector<float>{10, 11, 12}));

  const std::vector<uint64_t> wanted = {9, 7, 5, 7};
  std::vector<float> values(wanted.size() * 3, -1);
  ASSERT_TRUE(client_->free_running()
                  .Pull({{.table = table, .keys = wanted, .values = absl::MakeSpan(values)}})
                  .get()
                  .ok());
  EXPECT_EQ(values, (std::vector<float>{10, 11, 12, 21, 24, 27, 0, 0, 0, 21, 24, 27}));
}

TEST_F(ClientTest, GradientsOfAKeyAreSummedInOrder) {
  Connect();
  const Table table = Sparse("a", 1);
  // In this order the sum is 1; in the other it is 0.
  const std::vector<uint64_t> keys = {5, 5, 5};
  const std::vector<float> gradients = {1e8f, -1e8f, 1.f};
  ASSERT_TRUE(client_->free_running()
                  .Push({{.table = table, .keys = keys, .gradients = gradients}})
                  .get()
                  .ok());
  EXPECT_EQ(cluster_.Row(table.id(), 5), std::vector<float>{1.f});
}

TEST_F(ClientTest, GradientsTravelInTheRequestedType) {
  Connect();
  const Table sparse = Sparse("a", 3);
  const Table dense = Dense("d", kBlockElements + 5);
  const std::vector<uint64_t> keys = {7, 1000000007, 7};
  const std::vector<float> rows = {1.0f / 3, 2, 3, 4, 5, 6, 1.0f / 3, 1e-9f, -1};
  std::vector<float> tensor(kBlockElements + 5);
  for (size_t i = 0; i < tensor.size(); ++i) tensor[i] = 1.0f / static_cast<float>(i + 3);
  for (const ElementType type : {FLOAT32, BFLOAT16, FLOAT16}) {
    const size_t before = cluster_.events().size();
    ASSERT_TRUE(client_->free_running()
                    .Push({{.table = sparse, .keys = keys, .gradients = rows, .element_type = type},
                           {.table = dense, .gradients = tensor, .element_type = type}})
                    .get()
                    .ok());
    size_t bytes = 0;
    const std::vector<FakeCluster::Event> events = cluster_.events();
    for (size_t e = before; e < events.size(); ++e) {
      for (const FakeCluster::Event::Segment& segment : events[e].segments) {
        EXPECT_EQ(segment.element_type, type);
        bytes += segment.value_bytes;
      }
    }
    EXPECT_EQ(bytes, (2 * 3 + tensor.size()) * (type == FLOAT32 ? 4 : 2));
  }
  // Each was rounded once, after the rows of one key had been added up.
  const float sum = 1.0f / 3 + 1.0f / 3;
  EXPECT_EQ(cluster_.Row(sparse.id(), 7)[0],
            sum + FloatOfBfloat16(Bfloat16Of(sum)) + FloatOfFloat16(Float16Of(sum)));
  EXPECT_EQ(cluster_.Row(dense.id(), 1)[4], tensor.back() +
                                                FloatOfBfloat16(Bfloat16Of(tensor.back())) +
                                                FloatOfFloat16(Float16Of(tensor.back())));
  const absl::Status unknown = client_->free_running()
                                   .Push({{.table = sparse,
                                           .keys = keys,
                                           .gradients = rows,
                                           .element_type = static_cast<ElementType>(9)}})
                                   .get();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.message().find("items[0].element_type is 9"), absl::string_view::npos)
      << unknown;
}

TEST_F(ClientTest, DenseTensorsOfAnyLengthRoundTrip) {
  Connect();
  for (const uint64_t elements :
       {uint64_t{1}, kBlockElements, kBlockElements + 1, 20 * kBlockElements + 77}) {
    const Table table = Dense("d" + std::to_string(elements), elements);
    std::vector<float> gradients(elements);
    std::iota(gradients.begin(), gradients.end(), 1.f);
    ASSERT_TRUE(
        client_->free_running().Push({{.table = table, .gradients = gradients}}).get().ok());
    std::vector<float> values(elements, -1);
    ASSERT_TRUE(client_->free_running()
                    .Pull({{.table = table, .values = absl::MakeSpan(values)}})
                    .get()
                    .ok());
    EXPECT_EQ(values, gradients);
  }
}

TEST_F(ClientTest, OneCallMayMixTablesOfBothKinds) {
  Connect();
  const Table sparse = Sparse("s", 2);
  const Table other = Sparse("o", 1);
  const Table dense = Dense("d", 10);
  const std::vector<uint64_t> keys = {1, 2};
  const std::vector<float> rows = {1, 2, 3, 4};
  const std::vector<float> small = {5, 6};
  const std::vector<float> tensor(10, 7);
  std::vector<float> got_rows(4), got_small(2), got_tensor(10);
  const absl::Status status =
      client_->free_running()
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

TEST_F(ClientTest, RandomCallsMatchAMap) {
  Connect();
  const Table table = Sparse("a", 5);
  std::mt19937_64 random(11);
  std::map<uint64_t, std::vector<float>> expected;
  for (int round = 0; round < 50; ++round) {
    std::vector<uint64_t> keys(random() % 500);
    for (uint64_t& key : keys) key = random() % 300;
    std::vector<float> gradients(keys.size() * 5);
    for (float& g : gradients) g = static_cast<float>(random() % 100);
    ASSERT_TRUE(client_->free_running()
                    .Push({{.table = table, .keys = keys, .gradients = gradients}})
                    .get()
                    .ok());
    for (size_t i = 0; i < keys.size(); ++i) {
      std::vector<float>& row = expected[keys[i]];
      row.resize(5);
      for (int j = 0; j < 5; ++j) row[j] += gradients[i * 5 + j];
    }
    for (uint64_t& key : keys) key = random() % 300;
    std::vector<float> values(keys.size() * 5);
    ASSERT_TRUE(client_->free_running()
                    .Pull({{.table = table, .keys = keys, .values = absl::MakeSpan(values)}})
                    .get()
                    .ok());
    for (size_t i = 0; i < keys.size(); ++i) {
      std::vector<float> row(values.begin() + i * 5, values.begin() + (i + 1) * 5);
      std::vector<float> want = expected[keys[i]];
      want.resize(5);
      ASSERT_EQ(row, want);
    }
  }
}

TEST_F(ClientTest, InvalidCallsNameTheMistakeAndSendNothing) {
  Connect();
  const Table sparse = Sparse("s", 2);
  const Table dense = Dense("d", 10);
  const std::vector<uint64_t> keys = {1, 2};
  const std::vector<float> three(3);
  std::vector<float> nine(9);
  Session& session = client_->free_running();
  EXPECT_EQ(session.Push({{.table = sparse, .keys = keys, .gradients = three}}).get(),
            absl::InvalidArgumentError(
                "items[0] for table `s`: gradients has 3 floats; 2 keys of width 2 take 4"));
  EXPECT_EQ(
      session.Pull({{.table = dense, .values = absl::MakeSpan(nine)}}).get(),
      absl::InvalidArgumentError("items[0] for table `d`: values has 9 floats; the tensor has 10"));
  EXPECT_EQ(session.Push({{.table = dense, .keys = keys, .gradients = three}}).get().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session.Push({PushItem()}).get().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session.Push(std::vector<PushItem>(kMaxItemsInCall + 1)).get().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(cluster_.events().empty());
  // The session is not affected.
  EXPECT_TRUE(PushRow(session, sparse).get().ok());
}

TEST_F(ClientTest, EmptyCallSucceeds) {
  Connect();
  const Table table = Sparse("s", 2);
  EXPECT_TRUE(client_->free_running().Push({}).get().ok());
  EXPECT_TRUE(client_->free_running().Push({{.table = table}}).get().ok());
  EXPECT_TRUE(client_->free_running().Pull({{.table = table}}).get().ok());
}

TEST_F(ClientTest, HeartbeatsContinue) {
  Connect();
  const uint64_t before = cluster_.heartbeats();
  EXPECT_TRUE(Eventually([&] { return cluster_.heartbeats() >= before + 5; }));
}

TEST_F(ClientTest, MetricsAreReportedUntilTheSchedulerHasThem) {
  ConnectWorker();
  ASSERT_TRUE(client_->LogMetric("ctr", 3, 0.25).ok());
  ASSERT_TRUE(Eventually([&] { return !cluster_.metrics().empty(); }));
  EXPECT_EQ(cluster_.metrics()[0].name(), "ctr");
  EXPECT_EQ(cluster_.metrics()[0].step(), 3u);
  EXPECT_EQ(cluster_.metrics()[0].value(), 0.25);
  const auto wait_for_heartbeats = [&] {
    const uint64_t before = cluster_.heartbeats();
    return Eventually([&] { return cluster_.heartbeats() >= before + 20; });
  };
  ASSERT_TRUE(wait_for_heartbeats());
  const size_t reports = cluster_.metrics().size();
  ASSERT_TRUE(wait_for_heartbeats());
  EXPECT_EQ(cluster_.metrics().size(), reports);
  EXPECT_TRUE(absl::IsInvalidArgument(client_->LogMetric("c t r", 3, 0.25)));
}

TEST_F(ClientTest, CloseDeliversMetrics) {
  ConnectWorker();
  ASSERT_TRUE(client_->LogMetric("ctr", 3, 0.25).ok());
  ASSERT_TRUE(client_->LogMetric("auc", 3, 0.75).ok());
  client_.reset();
  std::set<std::string> names;
  for (const UserMetric& metric : cluster_.metrics()) names.insert(metric.name());
  EXPECT_EQ(names, (std::set<std::string>{"auc", "ctr"}));
}

TEST_F(ClientTest, ClientWithoutRanksReportsNoMetrics) {
  Connect();
  EXPECT_TRUE(absl::IsFailedPrecondition(client_->LogMetric("ctr", 3, 0.25)));
}

TEST_F(ClientTest, RankBeyondTheJobIsOutOfRange) {
  ConnectWorker();
  EXPECT_EQ(client_->OpenLogicalWorker(4).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(client_->OpenLogicalWorker(3).ok());
  EXPECT_EQ(client_->OpenLogicalWorker(3).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(ClientTest, FreeRunningPullsOfAWorkerNameNoSender) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  std::vector<float> values(2);
  EXPECT_TRUE(client_->free_running()
                  .Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}})
                  .get()
                  .ok());
  EXPECT_EQ(cluster_.events()[0].header.sender_case(), RequestHeader::SENDER_NOT_SET);
  EXPECT_EQ(PushRow(client_->free_running(), table).get().code(),
            absl::StatusCode::kFailedPrecondition);
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
        if (!client_->free_running()
                 .Pull({{.table = table, .keys = key_, .values = absl::MakeSpan(values)}})
                 .get()
                 .ok()) {
          ++failed;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(cluster_.Row(table.id(), 42)[0], 800.f);
}

TEST_F(ClientTest, CallbackMayMakeCalls) {
  Connect();
  const Table table = Sparse("a", 2);
  std::promise<absl::Status> done;
  std::atomic<int> left{100};
  std::function<void()> push = [&] {
    client_->free_running().Push({{.table = table, .keys = key_, .gradients = ones_}}, {},
                                 [&](absl::Status status) {
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
