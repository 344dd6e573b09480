// Assignments of weights and slots.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "client_lib/table.h"
#include "gtest/gtest.h"
#include "server/optimizer/testing/scalar_reference.h"
#include "server/shard/partition.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/shard/testing/partition_fixture.h"

namespace pawl {
namespace {

constexpr uint32_t kSparseWidth = 3;
constexpr uint64_t kDenseElements = 5;
constexpr float kInitialAccumulator = 0.25f;

template <typename T>
ByteView View(const std::vector<T>& values) {
  return ByteView(values.data(), values.size() * sizeof(T));
}

// All kinds of optimizers, and the initial values of their slots for a row of `width`.
std::vector<Optimizer> Optimizers() {
  std::vector<Optimizer> all(9);
  all[0].mutable_sgd()->set_learning_rate(0.5f);
  all[1].mutable_momentum()->set_learning_rate(0.5f);
  all[2].mutable_adagrad()->set_learning_rate(0.5f);
  all[2].mutable_adagrad()->set_initial_accumulator(kInitialAccumulator);
  all[3].mutable_rowwise_adagrad()->set_learning_rate(0.5f);
  all[3].mutable_rowwise_adagrad()->set_initial_accumulator(kInitialAccumulator);
  all[4].mutable_rmsprop()->set_learning_rate(0.5f);
  all[5].mutable_adam()->set_learning_rate(0.5f);
  all[6].mutable_adamw()->set_learning_rate(0.5f);
  all[7].mutable_ftrl()->set_learning_rate(0.5f);
  all[7].mutable_ftrl()->set_initial_accumulator(kInitialAccumulator);
  all[8].mutable_assign();
  return all;
}

Floats InitialSlots(const Optimizer& optimizer, size_t width) {
  switch (optimizer.kind_case()) {
    case Optimizer::kMomentum:
    case Optimizer::kRmsprop:
      return Floats(width, 0.0f);
    case Optimizer::kAdagrad:
      return Floats(width, kInitialAccumulator);
    case Optimizer::kRowwiseAdagrad:
      return {kInitialAccumulator};
    case Optimizer::kAdam:
    case Optimizer::kAdamw:
      return Floats(2 * width, 0.0f);
    case Optimizer::kFtrl: {
      Floats slots(2 * width, 0.0f);
      std::fill_n(slots.begin(), width, kInitialAccumulator);
      return slots;
    }
    default:
      return {};
  }
}

bool Counts(const Optimizer& optimizer) { return optimizer.has_adam() || optimizer.has_adamw(); }

TableSpec Spec(const Optimizer& optimizer, bool is_dense) {
  TableSpec spec = is_dense ? DenseTableSpec("t", {kDenseElements}, kBlocks)
                            : SparseTableSpec("t", kSparseWidth, kBlocks);
  *spec.mutable_optimizer() = optimizer;
  spec.mutable_initializer()->mutable_constant()->set_value(10);
  return spec;
}

// A table as plain rows.
class ScalarTable {
 public:
  ScalarTable(const Optimizer& optimizer, size_t width) : optimizer_(optimizer), width_(width) {}

  void Push(uint64_t key, const float* gradient) {
    Row& row = At(key);
    UpdatePosition position;
    position.prior_updates = row.updates++;
    ScalarApply(optimizer_, position, 1.0f, gradient, width_, 0, width_, row.weights.data(),
                row.slots.data());
  }
  // `slots` null: reset, or kept.
  void Assign(uint64_t key, const float* weights, const float* slots, bool keep) {
    Row& row = At(key);
    row.weights.assign(weights, weights + width_);
    if (keep) return;
    row.slots = InitialSlots(optimizer_, width_);
    row.updates = 0;
    if (slots == nullptr) return;
    row.slots.assign(slots, slots + row.slots.size());
    if (Counts(optimizer_)) row.updates = static_cast<uint32_t>(slots[row.slots.size()]);
  }

  Floats Weights(uint64_t key) { return At(key).weights; }
  // With the number of updates, if they are counted.
  Floats Slots(uint64_t key) {
    const Row& row = At(key);
    Floats slots = row.slots;
    if (Counts(optimizer_)) slots.push_back(static_cast<float>(row.updates));
    return slots;
  }

 private:
  struct Row {
    Floats weights;
    Floats slots;
    uint32_t updates = 0;
  };
  Row& At(uint64_t key) {
    const auto [found, is_new] = rows_.try_emplace(key);
    if (is_new) found->second = {Floats(width_, 10.0f), InitialSlots(optimizer_, width_), 0};
    return found->second;
  }

  const Optimizer optimizer_;
  const size_t width_;
  std::map<uint64_t, Row> rows_;
};

Floats Weights(Partition& partition, uint64_t key, size_t width) {
  const ByteView keys(&key, sizeof(key));
  Floats weights(width);
  if (!partition.FindTable(kBlocks)->table().is_dense()) {
    partition.Pull(kBlocks, keys, reinterpret_cast<char*>(weights.data()));
    return weights;
  }
  std::vector<BlockLoan> loans;
  partition.Lend(kBlocks, keys, loans);
  return Floats(loans[0].data(), loans[0].data() + loans[0].size());
}

Floats Slots(Partition& partition, uint64_t key, size_t width) {
  Floats slots(partition.FindTable(kBlocks)->table().StateFloats(width));
  partition.PullSlots(kBlocks, ByteView(&key, sizeof(key)), reinterpret_cast<char*>(slots.data()));
  return slots;
}

Partition Reloaded(const Partition& partition) {
  std::string bytes;
  SavePartition(partition, [&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  });
  auto loaded = LoadPartition(0, partition.options(), ByteView(bytes.data(), bytes.size()));
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return *std::move(loaded);
}

// Random pushes and assignments give the rows that plain loops give, through snapshots too.
TEST(PartitionAssignTest, RandomCallsEqualPlainLoops) {
  std::mt19937 random(3);
  for (const Optimizer& optimizer : Optimizers()) {
    for (const bool is_dense : {false, true}) {
      SCOPED_TRACE(optimizer.ShortDebugString() + (is_dense ? " dense" : " sparse"));
      const size_t width = is_dense ? kDenseElements : kSparseWidth;
      const auto schema = TableSchema::Create(Spec(optimizer, is_dense), 7);
      ASSERT_TRUE(schema.ok()) << schema.status();
      ASSERT_EQ(Table(Spec(optimizer, is_dense)).SlotFloats(width), (*schema)->StateFloats(width));
      Partition partition(0, Options(ASYNC, 1));
      ASSERT_TRUE(partition.CreateTable(*schema).ok());
      ScalarTable expected(optimizer, width);
      const auto number = [&] { return static_cast<float>(random() % 2001) / 1000.0f; };
      for (uint64_t ordinal = 0; ordinal < 200; ++ordinal) {
        const uint64_t key = is_dense ? 0 : random() % 4;
        Floats values(width);
        for (float& value : values) value = number() - 1.0f;
        if (random() % 2 == 0) {
          ASSERT_TRUE(
              partition.Push(Client(1), ordinal, kBlocks, MakeGradient({key}, values)).ok());
          expected.Push(key, values.data());
        } else {
          const std::vector<uint64_t> keys = {key};
          Floats slots((*schema)->StateFloats(width));
          for (float& slot : slots) slot = number();
          if (Counts(optimizer)) slots.back() = static_cast<float>(random() % 9);
          const auto effect = static_cast<Assignment::Slots>(random() % 3);
          Assignment assignment{.keys = View(keys), .values = View(values), .effect = effect};
          if (effect == Assignment::Slots::kGiven) {
            // In two fragments, as a message may bring it.
            const size_t half = slots.size() * 2;
            assignment.slots = ByteView(slots.data(), half);
            assignment.slots.Append(reinterpret_cast<const char*>(slots.data()) + half,
                                    slots.size() * sizeof(float) - half);
          }
          ASSERT_TRUE((*schema)->CheckAssignment(FLOAT32, 0, assignment, 0, 1).ok());
          ASSERT_EQ(*partition.Assign(Client(1), ordinal, kBlocks, assignment),
                    PushOutcome::kAccepted);
          // A repetition changes nothing, also after later changes.
          ASSERT_EQ(*partition.Assign(Client(1), ordinal, kBlocks, assignment),
                    PushOutcome::kDuplicate);
          expected.Assign(key, values.data(),
                          effect == Assignment::Slots::kGiven ? slots.data() : nullptr,
                          effect == Assignment::Slots::kKeep);
        }
        ASSERT_EQ(Weights(partition, key, width), expected.Weights(key));
        ASSERT_EQ(Slots(partition, key, width), expected.Slots(key));
      }
      Partition loaded = Reloaded(partition);
      EXPECT_EQ(Fingerprint(loaded), Fingerprint(partition));
      for (uint64_t key = 0; key < (is_dense ? 1 : 6); ++key) {
        EXPECT_EQ(Weights(loaded, key, width), expected.Weights(key));
        EXPECT_EQ(Slots(loaded, key, width), expected.Slots(key));
      }
    }
  }
}

class AssignTest : public testing::Test {
 protected:
  static absl::StatusOr<PushOutcome> Assign(Partition& partition, const Sender& sender,
                                            uint64_t ordinal, uint64_t key, Floats values) {
    const std::vector<uint64_t> keys = {key};
    return partition.Assign(sender, ordinal, kRows, {.keys = View(keys), .values = View(values)});
  }
};

TEST_F(AssignTest, RepetitionAfterALaterPushIsIgnored) {
  Partition partition = MakePartition(Options(ASYNC, 1));
  ASSERT_EQ(*Assign(partition, Client(1), 0, 5, {1, 2}), PushOutcome::kAccepted);
  ASSERT_TRUE(partition.Push(Client(1), 1, kRows, MakeGradient({5}, {1, 1})).ok());
  const uint64_t index = partition.log_index();
  EXPECT_EQ(*Assign(partition, Client(1), 0, 5, {1, 2}), PushOutcome::kDuplicate);
  EXPECT_EQ(Row(partition, 5), (Floats{0, 1}));
  EXPECT_EQ(partition.log_index(), index);
}

TEST_F(AssignTest, ClientAssignsAtOnceInEveryMode) {
  for (const ConsistencyMode mode : {SYNC, BOUNDED, ASYNC}) {
    Partition partition = MakePartition(Options(mode, 1));
    for (uint64_t step = 0; step < 3; ++step)
      ASSERT_TRUE(partition.EndStep(Worker(0, step), 0).ok());
    ASSERT_EQ(*Assign(partition, Client(1), 0, 5, {1, 2}), PushOutcome::kAccepted);
    EXPECT_EQ(Row(partition, 5), (Floats{1, 2}));
  }
}

TEST_F(AssignTest, LogicalWorkerAssignsOnlyInTheFirstStep) {
  for (const ConsistencyMode mode : {SYNC, BOUNDED, ASYNC}) {
    SCOPED_TRACE(ConsistencyMode_Name(mode));
    Partition partition = MakePartition(Options(mode, 2));
    ASSERT_EQ(*Assign(partition, Worker(0, 0), 0, 5, {1, 2}), PushOutcome::kAccepted);
    EXPECT_EQ(Row(partition, 5), (Floats{1, 2}));
    // The end of another rank's step does not refuse it.
    ASSERT_TRUE(partition.EndStep(Worker(1, 0), 0).ok());
    ASSERT_EQ(*Assign(partition, Worker(0, 0), 1, 5, {3, 4}), PushOutcome::kAccepted);
    // A successor's repetition of an accepted one is a duplicate.
    EXPECT_EQ(*Assign(partition, Worker(0, 0, 2), 0, 5, {1, 2}), PushOutcome::kDuplicate);
    ASSERT_TRUE(partition.EndStep(Worker(0, 0, 2), 2).ok());
    EXPECT_EQ(Assign(partition, Worker(0, 1, 2), 0, 5, {5, 6}).status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(Row(partition, 5), (Floats{3, 4}));
  }
}

TEST_F(AssignTest, GradientOfAnotherRankRefusesAssignmentsInSync) {
  for (const ConsistencyMode mode : {SYNC, BOUNDED, ASYNC}) {
    SCOPED_TRACE(ConsistencyMode_Name(mode));
    Partition partition = MakePartition(Options(mode, 2));
    ASSERT_TRUE(partition.Push(Worker(1, 0), 0, kRows, MakeGradient({6}, {1, 1})).ok());
    EXPECT_EQ(Assign(partition, Worker(0, 0), 0, 5, {3, 4}).status().code(),
              mode == SYNC ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kOk);
  }
}

// Returns a partition after the first step of two ranks. Rank 0 may assign first; the partition may
// be saved and loaded after each assignment.
std::unique_ptr<Partition> AfterFirstStep(bool assigns, bool reloads) {
  auto partition = std::make_unique<Partition>(MakePartition(Options(SYNC, 2)));
  uint64_t next = 0;
  if (assigns) {
    // Out of order, so that ordinals wait for each other.
    for (const uint64_t ordinal : {2, 0, 1}) {
      const std::vector<uint64_t> keys = {ordinal};
      const Floats values = {1, 2};
      EXPECT_TRUE(
          partition
              ->Assign(Worker(0, 0), ordinal, kRows, {.keys = View(keys), .values = View(values)})
              .ok());
      if (reloads) partition = std::make_unique<Partition>(Reloaded(*partition));
    }
    next = 3;
  }
  EXPECT_TRUE(partition->Push(Worker(1, 0), 0, kRows, MakeGradient({0, 7}, {2, 2, 2, 2})).ok());
  EXPECT_TRUE(partition->Push(Worker(0, 0), next, kRows, MakeGradient({0}, {2, 4})).ok());
  EXPECT_TRUE(partition->EndStep(Worker(1, 0), 1).ok());
  EXPECT_TRUE(partition->EndStep(Worker(0, 0), next + 1).ok());
  EXPECT_EQ(partition->version(), 1u);
  return partition;
}

TEST_F(AssignTest, GradientsOfTheStepFollowAssignmentsInSync) {
  const auto plain = AfterFirstStep(/*assigns=*/false, /*reloads=*/false);
  EXPECT_EQ(Row(*plain, 0), (Floats{8, 7}));
  for (const bool reloads : {false, true}) {
    const auto assigned = AfterFirstStep(/*assigns=*/true, reloads);
    // The mean of the gradients of the ranks, applied to the assigned weights.
    EXPECT_EQ(Row(*assigned, 0), (Floats{-1, -1}));
    EXPECT_EQ(Row(*assigned, 1), (Floats{1, 2}));
    EXPECT_EQ(Row(*assigned, 7), Row(*plain, 7));
    EXPECT_EQ(assigned->counters().pushes_applied, 5u);
  }
}

TEST_F(AssignTest, RankWhoseStepIsClosedWithoutItKeepsItsAssignments) {
  Partition partition = MakePartition(Options(SYNC, 2, 0, /*backup=*/1));
  ASSERT_EQ(*Assign(partition, Worker(0, 0), 0, 5, {1, 2}), PushOutcome::kAccepted);
  ASSERT_TRUE(partition.EndStep(Worker(1, 0), 0).ok());
  ASSERT_EQ(partition.version(), 1u);
  EXPECT_EQ(Row(partition, 5), (Floats{1, 2}));
  // The counters do not know.
  EXPECT_EQ(partition.counters().pushes_late, 1u);
}

TEST_F(AssignTest, InvalidAssignmentsAreRefused) {
  Optimizer adam;
  adam.mutable_adam()->set_learning_rate(0.5f);
  const auto schema = *TableSchema::Create(Spec(adam, /*is_dense=*/false), 7);
  const auto check = [&](std::vector<uint64_t> keys, Floats values, Floats slots,
                         Assignment::Slots effect = Assignment::Slots::kGiven) {
    const absl::Status status = schema->CheckAssignment(
        FLOAT32, 0,
        {.keys = View(keys), .values = View(values), .effect = effect, .slots = View(slots)}, 0, 1);
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  const Floats row = {1, 2, 3};
  EXPECT_EQ(check({1}, row, {-1, -1, -1, 0, 1, 2, 4294967296.0f}), "");
  EXPECT_EQ(check({1}, row, {}, Assignment::Slots::kKeep), "");
  EXPECT_NE(check({1}, row, {1}, Assignment::Slots::kKeep).find("slots are given"),
            std::string::npos);
  EXPECT_NE(check({1}, row, {1}).find("1 keys need 28"), std::string::npos);
  EXPECT_NE(check({1, 1}, {1, 2, 3, 1, 2, 3}, Floats(14, 0)).find("key 1 twice"),
            std::string::npos);
  EXPECT_NE(check({1}, {1, 2, INFINITY}, Floats(7, 0)).find("infinity"), std::string::npos);
  EXPECT_NE(check({1}, row, {0, NAN, 0, 0, 0, 0, 0}).find("NaN"), std::string::npos);
  EXPECT_NE(check({1}, row, {0, 0, 0, 0, -1, 0, 0}).find("negative"), std::string::npos);
  EXPECT_NE(check({1}, row, {0, 0, 0, 0, 0, 0, 0.5f}).find("whole"), std::string::npos);
  EXPECT_NE(check({1}, row, {0, 0, 0, 0, 0, 0, -1}).find("whole"), std::string::npos);
}

TEST_F(AssignTest, RowsBeyondTheLimitAreRefused) {
  PartitionOptions options = Options(ASYNC, 1);
  options.max_rows = 2;
  Partition partition = MakePartition(options);
  ASSERT_TRUE(Assign(partition, Client(1), 0, 5, {1, 2}).ok());
  ASSERT_TRUE(Assign(partition, Client(1), 1, 6, {1, 2}).ok());
  EXPECT_EQ(Assign(partition, Client(1), 2, 7, {1, 2}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Assign(partition, Client(1), 2, 6, {3, 4}).ok());
}

// Learning rates. The fixture's tables have SGD with rate 1 and weights that begin at 10.

PushOutcome SetRate(Partition& partition, const Sender& sender, uint64_t ordinal, float rate) {
  const TableRate rates[] = {{kRows, rate}};
  const auto outcome = partition.SetLearningRates(sender, ordinal, rates);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.value_or(PushOutcome::kLate);
}

TEST(LearningRatesTest, SyncAppliesTheStepsGradientsWithTheRateOfTheStep) {
  for (const bool reloads : {false, true}) {
    auto partition = std::make_unique<Partition>(MakePartition(Options(SYNC, 2)));
    const auto end = [&](uint32_t rank, uint64_t step, uint64_t segments) {
      ASSERT_TRUE(partition->EndStep(Worker(rank, step), segments).ok());
      if (reloads) partition = std::make_unique<Partition>(Reloaded(*partition));
    };
    ASSERT_TRUE(partition->Push(Worker(1, 0), 0, kRows, MakeGradient({5}, {2, 4})).ok());
    // The last one of the step counts, whatever the order of arrival.
    EXPECT_EQ(SetRate(*partition, Worker(0, 0), 2, 0.5f), PushOutcome::kAccepted);
    EXPECT_EQ(SetRate(*partition, Worker(0, 0), 1, 3.0f), PushOutcome::kAccepted);
    EXPECT_EQ(SetRate(*partition, Worker(0, 0), 1, 3.0f), PushOutcome::kDuplicate);
    if (reloads) partition = std::make_unique<Partition>(Reloaded(*partition));
    ASSERT_TRUE(partition->Push(Worker(0, 0), 0, kRows, MakeGradient({5}, {0, 0})).ok());
    end(0, 0, 3);
    EXPECT_EQ(partition->FindTable(kRows)->base_rate(), 0.0f);
    end(1, 0, 1);
    EXPECT_EQ(Row(*partition, 5), (Floats{9.5f, 9}));
    EXPECT_EQ(partition->FindTable(kRows)->base_rate(), 0.5f);
    EXPECT_EQ(partition->FindTable(kBlocks)->base_rate(), 0.0f);
    // It holds. A step that has not begun is refused for now.
    EXPECT_EQ(SetRate(*partition, Worker(0, 1), 0, 0.25f), PushOutcome::kAccepted);
    end(0, 1, 1);
    EXPECT_EQ(SetRate(*partition, Worker(0, 2), 0, 0.125f), PushOutcome::kEarly);
    ASSERT_TRUE(partition->Push(Worker(1, 1), 0, kRows, MakeGradient({5}, {8, 8})).ok());
    end(1, 1, 1);
    EXPECT_EQ(Row(*partition, 5), (Floats{8.5f, 8}));
    end(0, 2, 0);
    ASSERT_TRUE(partition->Push(Worker(1, 2), 0, kRows, MakeGradient({5}, {8, 8})).ok());
    end(1, 2, 1);
    EXPECT_EQ(Row(*partition, 5), (Floats{7.5f, 7}));
  }
}

TEST(LearningRatesTest, OtherModesApplyThemOnArrival) {
  for (const ConsistencyMode mode : {BOUNDED, ASYNC}) {
    Partition partition = MakePartition(Options(mode, 2));
    EXPECT_EQ(SetRate(partition, Worker(0, 0), 0, 0.5f), PushOutcome::kAccepted);
    ASSERT_TRUE(partition.Push(Client(1), 0, kRows, MakeGradient({5}, {2, 4})).ok());
    EXPECT_EQ(Row(partition, 5), (Floats{9, 8}));
    Partition loaded = Reloaded(partition);
    EXPECT_EQ(Fingerprint(loaded), Fingerprint(partition));
    EXPECT_EQ(loaded.FindTable(kRows)->base_rate(), 0.5f);
    const uint64_t before = Fingerprint(partition);
    EXPECT_EQ(SetRate(partition, Worker(0, 0), 1, 0.75f), PushOutcome::kAccepted);
    EXPECT_NE(Fingerprint(partition), before);
  }
}

TEST(LearningRatesTest, StepThatClosesWithoutRank0DropsItsRates) {
  Partition partition = MakePartition(Options(SYNC, 2, 0, /*backup=*/1));
  EXPECT_EQ(SetRate(partition, Worker(0, 0), 0, 0.5f), PushOutcome::kAccepted);
  ASSERT_TRUE(partition.Push(Worker(1, 0), 0, kRows, MakeGradient({5}, {2, 4})).ok());
  ASSERT_TRUE(partition.EndStep(Worker(1, 0), 1).ok());
  EXPECT_EQ(Row(partition, 5), (Floats{8, 6}));
  EXPECT_EQ(SetRate(partition, Worker(0, 0), 1, 0.5f), PushOutcome::kLate);
  EXPECT_EQ(partition.FindTable(kRows)->base_rate(), 0.0f);
}

TEST(LearningRatesTest, InvalidOnesAreRefused) {
  const auto table = Schema(kRows);
  const auto code = [&](const Sender& sender, std::vector<TableRate> rates) {
    return CheckLearningRates(sender, rates,
                              [&](uint32_t id) { return id == kRows ? table.get() : nullptr; })
        .code();
  };
  using absl::StatusCode;
  EXPECT_EQ(code(Worker(0, 0), {{kRows, 0.5f}}), StatusCode::kOk);
  EXPECT_EQ(code(Worker(1, 0), {{kRows, 0.5f}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Client(0), {{kRows, 0.5f}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Worker(0, 0), {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Worker(0, 0), {{kRows, 0}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Worker(0, 0), {{kRows, NAN}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Worker(0, 0), {{kRows, 1}, {kRows, 2}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Worker(0, 0), {{kBlocks, 1}}), StatusCode::kNotFound);
}

}  // namespace
}  // namespace pawl
