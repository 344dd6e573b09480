// Steps that close with a factor of their gradients (clip_global_norm).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/shard/partition.h"
#include "server/shard/snapshot/partition_snapshot.h"
#include "server/shard/testing/partition_fixture.h"

namespace pawl {
namespace {

constexpr uint32_t kAssigned = 3;
constexpr uint32_t kRanks = 3;
constexpr uint64_t kKeys = 40;
constexpr size_t kBlockWidth = kBlockElements + 3;

PartitionOptions ClipOptions(uint32_t ranks = kRanks) {
  PartitionOptions options = Options(SYNC, ranks);
  options.clip_global_norm = 0.5f;
  return options;
}

void Reload(Partition& partition, std::optional<Partition>& loaded) {
  std::string bytes;
  SavePartition(partition, [&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  });
  auto again = LoadPartition(0, partition.options(), ByteView(bytes.data(), bytes.size()));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Fingerprint(*again), Fingerprint(partition));
  loaded.emplace(*std::move(again));
}

// A push of a rank: two sparse segments, whose keys overlap, and sometimes both blocks.
struct Segment {
  uint32_t rank;
  uint64_t ordinal;
  uint32_t table;
  GradientData data;
};

std::vector<Segment> Pushes(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<Segment> segments;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    uint64_t ordinal = 0;
    for (int i = 0; i < 2; ++i) {
      Segment& sparse = segments.emplace_back(Segment{rank, ordinal++, kRows, {}});
      for (uint64_t key = kKeys; key > 0; --key) {
        if (random() % 3 != 0) continue;
        sparse.data.keys.push_back(key);
        for (int k = 0; k < 2; ++k) sparse.data.values.push_back(normal(random));
      }
    }
    if (seed % 2 == 0) continue;
    Segment& dense = segments.emplace_back(Segment{rank, ordinal++, kBlocks, {{1, 0}, {}}});
    for (size_t i = 0; i < kBlockWidth; ++i) dense.data.values.push_back(normal(random));
  }
  return segments;
}

void Push(Partition& partition, uint64_t step, const Segment& segment) {
  const auto pushed = partition.Push(Worker(segment.rank, step), segment.ordinal, segment.table,
                                     MakeGradient(segment.data.keys, segment.data.values));
  ASSERT_TRUE(pushed.ok()) << pushed.status();
  EXPECT_EQ(*pushed, PushOutcome::kAccepted);
}

void EndAll(Partition& partition, uint64_t step) {
  for (uint32_t rank = 0; rank < partition.options().logical_workers; ++rank) {
    EXPECT_FALSE(partition.HaveAllEnded(step));
    ASSERT_TRUE(partition.EndStep(Worker(rank, step), std::nullopt).ok());
  }
  EXPECT_TRUE(partition.HaveAllEnded(step));
}

// The sums of the gradients over the ranks, by table and by the element's place.
using Sums = std::map<uint32_t, std::map<uint64_t, std::vector<float>>>;
Sums SumsOf(const std::vector<Segment>& segments) {
  Sums sums;
  for (const Segment& segment : segments) {
    size_t at = 0;
    for (const uint64_t key : segment.data.keys) {
      const size_t width = segment.table == kRows ? 2 : key == 0 ? kBlockElements : 3;
      const auto values = segment.data.values.begin() + static_cast<int64_t>(at);
      at += width;
      const auto [sum, is_first] =
          sums[segment.table].try_emplace(key, values, values + static_cast<int64_t>(width));
      if (is_first) continue;
      for (size_t i = 0; i < width; ++i) sum->second[i] += values[static_cast<int64_t>(i)];
    }
  }
  return sums;
}

// From the descriptions of StepSum::Squares, GradientSum::Squares and SumOfSquares.
double SquaresOf(const Sums& sums) {
  const float mean = 1.0f / static_cast<float>(kRanks);
  double all = 0;
  for (const auto& [table, rows] : sums) {
    double of_table = 0;
    for (const auto& [key, row] : rows) {
      double lanes[16] = {};
      for (size_t i = 0; i < row.size(); ++i) {
        const float value = mean * row[i];
        lanes[i % 16] += static_cast<double>(value) * value;
      }
      for (const size_t distance : {8, 4, 2, 1}) {
        for (size_t lane = 0; lane < distance; ++lane) lanes[lane] += lanes[lane + distance];
      }
      of_table += lanes[0];
    }
    all += of_table;
  }
  return all;
}

TEST(PartitionClip, ScaledStepHasTheBitsOfScaledMeans) {
  Partition partition = MakePartition(ClipOptions());
  // One rank without clip_global_norm that pushes what the optimizers must get.
  Partition expected = MakePartition(Options(SYNC, 1));
  for (uint64_t step = 0; step < 4; ++step) {
    const std::vector<Segment> segments = Pushes(static_cast<uint32_t>(step));
    for (const Segment& segment : segments) Push(partition, step, segment);
    EndAll(partition, step);
    EXPECT_EQ(partition.version(), step);
    EXPECT_FALSE(partition.CanPull(step + 1));
    const Sums sums = SumsOf(segments);
    EXPECT_EQ(partition.StepSquares(step), SquaresOf(sums));
    EXPECT_GT(partition.StepSquares(step), 0);
    const float scale = step == 3 ? 1.0f : 0.3f / static_cast<float>(step + 1);
    ASSERT_TRUE(partition.CloseStep(Worker(1, step), scale).ok());
    EXPECT_EQ(partition.version(), step + 1);
    EXPECT_EQ(partition.StepSquares(step), SquaresOf(sums)) << "after the close too";

    uint64_t ordinal = 0;
    const float factor = 1.0f / static_cast<float>(kRanks) * scale;
    for (const auto& [table, rows] : sums) {
      GradientData scaled;
      for (const auto& [key, row] : rows) {
        scaled.keys.push_back(key);
        for (const float value : row) scaled.values.push_back(factor * value);
      }
      Push(expected, step, {0, ordinal++, table, scaled});
    }
    ASSERT_TRUE(expected.EndStep(Worker(0, step), std::nullopt).ok());
    for (const uint32_t table : {kRows, kBlocks}) {
      EXPECT_EQ(partition.FindTable(table)->Digest(), expected.FindTable(table)->Digest())
          << "table " << table << " after step " << step;
    }
  }
}

TEST(PartitionClip, ScaleOneHasTheBitsOfAnUnclippedStep) {
  Partition partition = MakePartition(ClipOptions());
  Partition unclipped = MakePartition(Options(SYNC, kRanks));
  for (const Segment& segment : Pushes(1)) {
    Push(partition, 0, segment);
    Push(unclipped, 0, segment);
  }
  EndAll(partition, 0);
  for (uint32_t rank = 0; rank < kRanks; ++rank)
    ASSERT_TRUE(unclipped.EndStep(Worker(rank, 0), std::nullopt).ok());
  ASSERT_TRUE(partition.CloseStep(Worker(0, 0), 1).ok());
  for (const uint32_t table : {kRows, kBlocks})
    EXPECT_EQ(partition.FindTable(table)->Digest(), unclipped.FindTable(table)->Digest());
}

// Replicas and their successors must compute the same squares, whatever arrives first and whenever
// they are loaded from a snapshot.
TEST(PartitionClip, SquaresDependOnNeitherOrderNorReloads) {
  std::optional<Partition> first(MakePartition(ClipOptions()));
  std::vector<std::optional<Partition>> others(6);
  for (auto& other : others) other.emplace(MakePartition(ClipOptions()));
  std::mt19937 random(1);
  for (uint64_t step = 0; step < 3; ++step) {
    std::vector<Segment> segments = Pushes(static_cast<uint32_t>(10 + step));
    for (const Segment& segment : segments) Push(*first, step, segment);
    EndAll(*first, step);
    const double squares = first->StepSquares(step);
    ASSERT_TRUE(first->CloseStep(Worker(0, step), 0.25f).ok());
    for (size_t i = 0; i < others.size(); ++i) {
      SCOPED_TRACE(i);
      std::shuffle(segments.begin(), segments.end(), random);
      for (const Segment& segment : segments) {
        Push(*others[i], step, segment);
        if (i >= 3 && random() % 2 == 0) Reload(*others[i], others[i]);
      }
      EndAll(*others[i], step);
      if (i >= 3) Reload(*others[i], others[i]);
      EXPECT_EQ(others[i]->StepSquares(step), squares);
      ASSERT_TRUE(others[i]->CloseStep(Worker(2, step), 0.25f).ok());
      if (i >= 3) Reload(*others[i], others[i]);
      EXPECT_EQ(others[i]->StepSquares(step), squares);
      EXPECT_EQ(Fingerprint(*others[i]), Fingerprint(*first));
    }
  }
}

TEST(PartitionClip, ClosingIsIdempotent) {
  Partition partition = MakePartition(ClipOptions());
  for (uint64_t step = 0; step < 2; ++step) {
    for (const Segment& segment : Pushes(2)) Push(partition, step, segment);
    EndAll(partition, step);
    // Ending again does not close either.
    ASSERT_TRUE(partition.EndStep(Worker(0, step), std::nullopt).ok());
    EXPECT_EQ(partition.version(), step);
    const uint64_t before = partition.log_index();
    ASSERT_TRUE(partition.CloseStep(Worker(0, step), 0.5f).ok());
    EXPECT_EQ(partition.log_index(), before + 1);
    const uint64_t closed = Fingerprint(partition);
    for (uint64_t repeated = 0; repeated <= step; ++repeated) {
      EXPECT_TRUE(partition.CloseStep(Worker(1, repeated), 0.5f).ok());
      EXPECT_EQ(Fingerprint(partition), closed);
    }
  }
}

// Otherwise a logical worker that computes another scale would stay unnoticed, and the partitions
// that it closes first would differ from the others.
TEST(PartitionClip, OtherScaleForTheLastClosedStepIsRefused) {
  std::optional<Partition> partition(MakePartition(ClipOptions(2)));
  for (uint64_t step = 0; step < 2; ++step) {
    EndAll(*partition, step);
    ASSERT_TRUE(partition->CloseStep(Worker(0, step), 0.5f).ok());
  }
  const uint64_t before = Fingerprint(*partition);
  const absl::Status status = partition->CloseStep(Worker(1, 1), 0.25f);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("the scale 0.25 but"), std::string::npos) << status;
  EXPECT_NE(status.message().find("the scale 0.5;"), std::string::npos) << status;
  EXPECT_TRUE(partition->CloseStep(Worker(1, 1), 0.5f).ok());
  EXPECT_TRUE(partition->CloseStep(Worker(1, 0), 0.25f).ok()) << "only the last scale is known";
  EXPECT_EQ(Fingerprint(*partition), before);
  Reload(*partition, partition);
  EXPECT_TRUE(partition->CloseStep(Worker(1, 1), 0.25f).ok()) << "unknown after a reload";
}

TEST(PartitionClip, StepThatARankHasNotEndedIsNotClosed) {
  Partition partition = MakePartition(ClipOptions());
  ASSERT_TRUE(partition.EndStep(Worker(0, 0), 0).ok());
  ASSERT_TRUE(partition.EndStep(Worker(2, 0), 0).ok());
  const uint64_t before = Fingerprint(partition);
  EXPECT_TRUE(absl::IsFailedPrecondition(partition.CloseStep(Worker(0, 0), 1)));
  EXPECT_TRUE(absl::IsFailedPrecondition(partition.CloseStep(Worker(0, 1), 1)));
  // A rank may ask for the squares of a step that it has ended, and of no other.
  EXPECT_TRUE(partition.CheckStepSquares(Worker(0, 0)).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(partition.CheckStepSquares(Worker(1, 0))));
  EXPECT_TRUE(absl::IsFailedPrecondition(partition.CheckStepSquares(Worker(0, 1))));
  // Nor does a rank end the next step before this one has closed everywhere.
  EXPECT_TRUE(absl::IsFailedPrecondition(partition.EndStep(Worker(0, 1), 0)));
  EXPECT_EQ(Fingerprint(partition), before);

  ASSERT_TRUE(partition.EndStep(Worker(1, 0), 0).ok());
  ASSERT_TRUE(partition.CloseStep(Worker(0, 0), 1).ok());
  EXPECT_TRUE(partition.CheckStepSquares(Worker(0, 0)).ok());
  EndAll(partition, 1);
  EXPECT_TRUE(partition.CheckStepSquares(Worker(0, 0)).ok());
  ASSERT_TRUE(partition.CloseStep(Worker(0, 1), 1).ok());
}

// A session that starts at a step before its rank's clock repeats steps.
TEST(PartitionClip, OlderStepIsClosedAgainWithoutEffect) {
  Partition partition = MakePartition(ClipOptions(2));
  for (uint64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(partition.Push(Worker(0, step), 0, kRows, MakeGradient({4}, {6, 8})).ok());
    EndAll(partition, step);
    ASSERT_TRUE(partition.CloseStep(Worker(0, step), 0.5f).ok());
  }
  const uint64_t before = Fingerprint(partition);
  for (uint64_t step = 0; step < 2; ++step) {
    ASSERT_TRUE(partition.CheckStepSquares(Worker(1, step)).ok()) << step;
    EXPECT_EQ(partition.StepSquares(step), 0);
    EXPECT_TRUE(partition.CloseStep(Worker(1, step), 1).ok());
  }
  EXPECT_EQ(partition.StepSquares(2), 25);
  EXPECT_EQ(Fingerprint(partition), before);
}

TEST(PartitionClip, InvalidClosesAreRefused) {
  Partition partition = MakePartition(ClipOptions(1));
  ASSERT_TRUE(partition.EndStep(Worker(0, 0, 2), 0).ok());
  const uint64_t before = Fingerprint(partition);
  for (const float scale : {0.0f, -0.5f, 1.5f, NAN, INFINITY})
    EXPECT_TRUE(absl::IsInvalidArgument(partition.CloseStep(Worker(0, 0, 2), scale))) << scale;
  EXPECT_TRUE(absl::IsInvalidArgument(partition.CloseStep(Client(0), 1)));
  EXPECT_TRUE(absl::IsInvalidArgument(partition.CheckStepSquares(Client(0))));
  EXPECT_TRUE(absl::IsAborted(partition.CloseStep(Worker(0, 0, 1), 1)));
  EXPECT_TRUE(absl::IsAborted(partition.CheckStepSquares(Worker(0, 0, 1))));
  EXPECT_TRUE(absl::IsOutOfRange(partition.CloseStep(Worker(7, 0), 1)));
  EXPECT_EQ(Fingerprint(partition), before);

  Partition unclipped = MakePartition(Options(SYNC, 1));
  ASSERT_TRUE(unclipped.EndStep(Worker(0, 0), 0).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(unclipped.CloseStep(Worker(0, 0), 1)));
  EXPECT_TRUE(absl::IsFailedPrecondition(unclipped.CheckStepSquares(Worker(0, 0))));
}

// Their pushes are values, not gradients.
TEST(PartitionClip, TablesThatAssignAreNeitherCountedNorScaled) {
  Partition partition = MakePartition(ClipOptions(2));
  TableSpec spec = SparseTableSpec("assigned", 2, kAssigned);
  spec.mutable_optimizer()->mutable_assign();
  const auto schema = TableSchema::Create(spec, 7);
  ASSERT_TRUE(schema.ok()) << schema.status();
  ASSERT_TRUE(partition.CreateTable(*schema).ok());
  ASSERT_TRUE(partition.Push(Worker(0, 0), 0, kRows, MakeGradient({4}, {6, 8})).ok());
  ASSERT_TRUE(partition.Push(Worker(0, 0), 1, kAssigned, MakeGradient({4}, {70, 80})).ok());
  EndAll(partition, 0);
  EXPECT_EQ(partition.StepSquares(0), 25);
  ASSERT_TRUE(partition.CloseStep(Worker(0, 0), 0.125f).ok());
  EXPECT_EQ(Row(partition, 4), Floats({10 - 0.375f, 10 - 0.5f}));
  const uint64_t key = 4;
  Floats values(2);
  partition.Pull(kAssigned, ByteView(&key, sizeof(key)), reinterpret_cast<char*>(values.data()));
  EXPECT_EQ(values, Floats({70, 80}));
}

TEST(PartitionClip, LearningRatesTakeEffectAtTheClose) {
  Partition partition = MakePartition(ClipOptions(2));
  const TableRate rates[] = {{kRows, 0.25f}};
  ASSERT_TRUE(partition.SetLearningRates(Worker(0, 0), 0, rates).ok());
  ASSERT_TRUE(partition.Push(Worker(0, 0), 1, kRows, MakeGradient({4}, {2, 4})).ok());
  EndAll(partition, 0);
  EXPECT_EQ(partition.FindTable(kRows)->base_rate(), 0.0f);
  ASSERT_TRUE(partition.CloseStep(Worker(0, 0), 0.5f).ok());
  EXPECT_EQ(Row(partition, 4), Floats({10 - 0.125f, 10 - 0.25f}));
}

// While a step is open, an assignment changes the rows and not the step's squares.
TEST(PartitionClip, AssignmentOfAClientDoesNotChangeTheSquares) {
  Partition partition = MakePartition(ClipOptions(2));
  ASSERT_TRUE(partition.Push(Worker(0, 0), 0, kRows, MakeGradient({4}, {2, 4})).ok());
  EndAll(partition, 0);
  const uint64_t key = 4;
  const float values[] = {1, 2};
  const Assignment assignment{.keys = ByteView(&key, sizeof(key)),
                              .values = ByteView(values, sizeof(values)),
                              .effect = Assignment::Slots::kReset};
  ASSERT_TRUE(partition.Assign(Client(0), 0, kRows, assignment).ok());
  EXPECT_EQ(partition.StepSquares(0), 5);
  ASSERT_TRUE(partition.CloseStep(Worker(0, 0), 0.5f).ok());
  EXPECT_EQ(Row(partition, 4), Floats({1 - 0.5f, 2 - 1.0f}));
}

// A checkpoint is taken when a step closes. The next step may have been ended by all already where
// it has no gradients.
TEST(PartitionClip, ReopenedStepIsEndedAgain) {
  Partition partition = MakePartition(ClipOptions(2));
  EndAll(partition, 0);
  ASSERT_TRUE(partition.CloseStep(Worker(0, 0), 1).ok());
  EndAll(partition, 1);
  ASSERT_TRUE(partition.ReopenStep().ok());
  EXPECT_FALSE(partition.HaveAllEnded(1));
  ASSERT_TRUE(partition.Push(Worker(0, 1), 0, kRows, MakeGradient({4}, {2, 4})).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(partition.ReopenStep()));
  EndAll(partition, 1);
  EXPECT_EQ(partition.StepSquares(1), 5);
  EXPECT_TRUE(absl::IsFailedPrecondition(partition.ReopenStep()));
}

}  // namespace
}  // namespace pawl
