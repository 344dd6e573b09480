// Assignments: order, slots, and delivery despite losses and new routing.
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/rpc/testing/faulty_transport.h"
#include "client_lib/testing/client_fixture.h"

namespace pawl {
namespace {

class AssignTest : public ClientTest {
 protected:
  Table Adam(TableSpec spec) {
    spec.mutable_optimizer()->mutable_adam()->set_learning_rate(0.5f);
    return *client_->CreateTable(spec).get();
  }
  static std::vector<float> Numbers(size_t count, float first) {
    std::vector<float> numbers(count);
    for (float& number : numbers) number = first++;
    return numbers;
  }
};

TEST_F(AssignTest, SetsRowsWithTheirSlots) {
  Connect();
  const Table table = Adam(SparseTableSpec("a", 2));
  // In no order of partitions.
  std::vector<uint64_t> keys(500);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * 7919;
  const std::vector<float> values = Numbers(keys.size() * 2, 1);
  const std::vector<float> slots = Numbers(keys.size() * 5, 10000);
  Session& session = client_->free_running();
  ASSERT_TRUE(session.Assign({{.table = table, .keys = keys, .values = values, .slots = slots}})
                  .get()
                  .ok());
  EXPECT_EQ(cluster_.Row(table.id(), keys[3]), (std::vector<float>{7, 8}));
  EXPECT_EQ(cluster_.Slots(table.id(), keys[1]),
            (std::vector<float>{10005, 10006, 10007, 10008, 10009}));
  // Repeated keys get the same slots.
  std::vector<uint64_t> wanted = {keys[9], keys[2], keys[9]};
  std::vector<float> rows(wanted.size() * 2);
  std::vector<float> row_slots(wanted.size() * 5);
  ASSERT_TRUE(session
                  .Pull({{.table = table,
                          .keys = wanted,
                          .values = absl::MakeSpan(rows),
                          .slots = absl::MakeSpan(row_slots)}})
                  .get()
                  .ok());
  EXPECT_EQ(rows, (std::vector<float>{19, 20, 5, 6, 19, 20}));
  EXPECT_EQ(row_slots, (std::vector<float>{10045, 10046, 10047, 10048, 10049, 10010, 10011, 10012,
                                           10013, 10014, 10045, 10046, 10047, 10048, 10049}));
}

TEST_F(AssignTest, SetsATensorWithItsSlots) {
  Connect();
  const Table table = Adam(DenseTableSpec("d", {2 * kBlockElements + 3}));
  const std::vector<float> values = Numbers(table.elements(), 0);
  const size_t slot_floats = 2 * table.SlotFloats(kBlockElements) + table.SlotFloats(3);
  const std::vector<float> slots = Numbers(slot_floats, 1);
  Session& session = client_->free_running();
  ASSERT_TRUE(session.Assign({{.table = table, .values = values, .slots = slots}}).get().ok());
  EXPECT_EQ(cluster_.Slots(table.id(), 2), Numbers(7, static_cast<float>(slot_floats - 6)));
  std::vector<float> pulled(values.size());
  std::vector<float> pulled_slots(slots.size());
  ASSERT_TRUE(session
                  .Pull({{.table = table,
                          .values = absl::MakeSpan(pulled),
                          .slots = absl::MakeSpan(pulled_slots)}})
                  .get()
                  .ok());
  EXPECT_EQ(pulled, values);
  EXPECT_EQ(pulled_slots, slots);
  // One block of it.
  const std::vector<uint64_t> block = {2};
  const std::vector<float> three = {-1, -2, -3};
  ASSERT_TRUE(session.Assign({{.table = table, .keys = block, .values = three}}).get().ok());
  EXPECT_EQ(cluster_.Row(table.id(), 2), three);
}

TEST_F(AssignTest, EffectFollowsTheItem) {
  Connect();
  const Table table = Adam(SparseTableSpec("a", 2));
  Session& session = client_->free_running();
  const std::vector<float> slots(5, 1);
  ASSERT_TRUE(session.Assign({{.table = table, .keys = key_, .values = ones_}}).get().ok());
  ASSERT_TRUE(
      session.Assign({{.table = table, .keys = key_, .values = ones_, .slots = slots}}).get().ok());
  ASSERT_TRUE(session.Assign({{.table = table, .keys = key_, .values = ones_, .keep_slots = true}})
                  .get()
                  .ok());
  const std::vector<FakeCluster::Event> events = cluster_.events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].segments[0].effect, ASSIGN_RESET_SLOTS);
  EXPECT_EQ(events[1].segments[0].effect, ASSIGN_WITH_SLOTS);
  EXPECT_EQ(events[2].segments[0].effect, ASSIGN_KEEP_SLOTS);
}

TEST_F(AssignTest, InvalidItemsAreRefusedWithTheMistake) {
  Connect();
  const Table table = Adam(SparseTableSpec("a", 2));
  const std::vector<uint64_t> twice = {7, 8, 7};
  const std::vector<float> values(6, 1);
  const std::vector<float> short_slots(4, 1);
  const std::vector<float> slots(5, 1);
  const auto refusal = [&](const AssignItem& item) {
    const absl::Status status = client_->free_running().Assign({&item, 1}).get();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_NE(refusal({.table = table, .keys = twice, .values = values}).find("key 7 is repeated"),
            std::string::npos);
  EXPECT_NE(refusal({.table = table, .keys = key_, .values = values}).find("values has 6 floats"),
            std::string::npos);
  EXPECT_NE(refusal({.table = table, .keys = key_, .values = ones_, .slots = short_slots})
                .find("optimizer take 5"),
            std::string::npos);
  EXPECT_NE(
      refusal({.table = table, .keys = key_, .values = ones_, .slots = slots, .keep_slots = true})
          .find("keep_slots"),
      std::string::npos);
  EXPECT_TRUE(cluster_.events().empty());
}

// The order of the calls holds although several are in flight.
TEST_F(AssignTest, IsOrderedWithThePushesOfItsSession) {
  Connect();
  const Table table = Sparse("a", 2);
  Session& session = client_->free_running();
  cluster_.Hold(Method::kPush);
  const std::vector<float> tens = {10, 10};
  std::vector<std::future<absl::Status>> calls;
  calls.push_back(PushRow(session, table));
  calls.push_back(session.Assign({{.table = table, .keys = key_, .values = tens}}));
  calls.push_back(PushRow(session, table));
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kPush) == 1; }));
  EXPECT_EQ(cluster_.events().size(), 1u) << "the assignment waits for the push before it";
  cluster_.Release(Method::kPush);
  for (auto& call : calls) EXPECT_TRUE(call.get().ok());
  EXPECT_EQ(cluster_.Row(table.id(), 42), (std::vector<float>{11, 11}));
  // While an assignment is in flight, the push after it waits.
  cluster_.Hold(Method::kPush);
  calls.clear();
  calls.push_back(session.Assign({{.table = table, .keys = key_, .values = tens}}));
  calls.push_back(PushRow(session, table));
  ASSERT_TRUE(Eventually([&] { return cluster_.held(Method::kPush) == 1; }));
  EXPECT_EQ(cluster_.events().size(), 4u);
  cluster_.Release(Method::kPush);
  for (auto& call : calls) EXPECT_TRUE(call.get().ok());
  EXPECT_EQ(cluster_.Row(table.id(), 42), (std::vector<float>{11, 11}));
}

TEST_F(AssignTest, FailedAssignmentBreaksTheSession) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  LogicalWorker& worker = **client_->OpenLogicalWorker(0);
  cluster_.SetIntercept([](const std::string&, Method method) {
    return method == Method::kPush ? absl::FailedPreconditionError("too late") : absl::OkStatus();
  });
  auto assigned = worker.Assign({{.table = table, .keys = key_, .values = ones_}});
  auto pushed = PushRow(worker, table);
  EXPECT_EQ(assigned.get().message(), "too late");
  EXPECT_EQ(pushed.get().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(worker.EndStep().get().code(), absl::StatusCode::kFailedPrecondition);
}

// Servers that do not know the effect of a push would apply it as a gradient.
TEST_F(AssignTest, OlderServersAreAskedForNothing) {
  cluster_.SetProtocol(kEffectsProtocol - 1);
  Connect();
  const Table table = Adam(SparseTableSpec("a", 2));
  Session& session = client_->free_running();
  std::vector<float> values(2);
  std::vector<float> slots(5);
  EXPECT_EQ(session.Assign({{.table = table, .keys = key_, .values = ones_}}).get().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(session
                .Pull({{.table = table,
                        .keys = key_,
                        .values = absl::MakeSpan(values),
                        .slots = absl::MakeSpan(slots)}})
                .get()
                .code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(cluster_.events().empty());
  EXPECT_TRUE(PushRow(session, table).get().ok());
}

TEST_F(AssignTest, LossesRepetitionsAndNewRoutingApplyEachOnce) {
  FaultyTransport::Options faults;
  faults.seed = 7;
  faults.lose_request = 0.25;
  faults.lose_reply = 0.25;
  faults.repeat_request = 0.2;
  faults.delay_request = 0.2;
  auto faulty = std::make_shared<FaultyTransport>(cluster_.transport(), faults);
  Connect({}, faulty);
  const Table table = Adam(SparseTableSpec("a", 2));
  Session& session = client_->free_running();
  std::mt19937_64 random(5);
  std::vector<uint64_t> keys(60);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  const std::vector<float> ones(keys.size() * 2, 1);
  for (uint32_t round = 1; round <= 20; ++round) {
    const auto first = static_cast<float>(round * 1000);
    const std::vector<float> values = Numbers(keys.size() * 2, first);
    const std::vector<float> slots = Numbers(keys.size() * 5, first);
    if (round % 5 == 0) cluster_.MovePartitions(round);
    auto assigned =
        session.Assign({{.table = table, .keys = keys, .values = values, .slots = slots}});
    auto pushed = session.Push({{.table = table, .keys = keys, .gradients = ones}});
    ASSERT_TRUE(assigned.get().ok());
    ASSERT_TRUE(pushed.get().ok());
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(cluster_.Row(table.id(), keys[i]),
                Numbers(2, first + 1 + static_cast<float>(2 * i)));
      ASSERT_EQ(cluster_.Slots(table.id(), keys[i]), Numbers(5, first + static_cast<float>(5 * i)));
    }
  }
  EXPECT_GT(client_->counters().segments_deduplicated, 20);
}

TEST_F(AssignTest, LearningRatesGoToEveryPartitionAsPartOfTheStep) {
  ConnectWorker();
  const Table first = Sparse("a", 2);
  const Table second = Sparse("b", 2);
  LogicalWorker& worker = **client_->OpenLogicalWorker(0);
  auto pushed = PushRow(worker, first);
  auto set = worker.SetLearningRates(
      {{.table = second, .learning_rate = 0.5f}, {.table = first, .learning_rate = 0.25f}});
  ASSERT_TRUE(pushed.get().ok());
  ASSERT_TRUE(set.get().ok());
  ASSERT_TRUE(worker.EndStep().get().ok());
  std::set<uint32_t> partitions;
  uint64_t segments = 0;
  for (const FakeCluster::Event& event : cluster_.events()) {
    for (const uint64_t count : event.segment_counts) segments += count;
    for (const FakeCluster::Event::Segment& segment : event.segments) {
      if (segment.effect != SET_LEARNING_RATES) continue;
      EXPECT_EQ(segment.table, 0u);
      EXPECT_EQ(segment.keys, (std::vector<uint64_t>{second.id(), first.id()}));
      EXPECT_EQ(segment.values, (std::vector<float>{0.5f, 0.25f}));
      partitions.insert(segment.partition);
    }
  }
  EXPECT_EQ(partitions.size(), kPartitions);
  EXPECT_EQ(segments, kPartitions + 1) << "the end of the step counts them";
}

TEST_F(AssignTest, OnlyRank0SetsLearningRates) {
  ConnectWorker();
  const Table table = Sparse("a", 2);
  const LearningRateItem item = {.table = table, .learning_rate = 0.5f};
  const LearningRateItem zero = {.table = table, .learning_rate = 0};
  LogicalWorker& other = **client_->OpenLogicalWorker(1);
  EXPECT_EQ(other.SetLearningRates({&item, 1}).get().code(), absl::StatusCode::kFailedPrecondition);
  LogicalWorker& worker = **client_->OpenLogicalWorker(0);
  EXPECT_EQ(worker.SetLearningRates({&zero, 1}).get().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(cluster_.events().empty());
}

}  // namespace
}  // namespace pawl
