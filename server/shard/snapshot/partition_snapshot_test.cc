#include "server/shard/snapshot/partition_snapshot.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "client_lib/base/testing/job_specs.h"
#include "client_lib/base/testing/table_specs.h"
#include "gtest/gtest.h"
#include "server/shard/snapshot/partition_loader.h"
#include "server/shard/testing/random_history.h"

namespace pawl {
namespace {

constexpr uint32_t kIndex = 1;

PartitionOptions Options(ConsistencyMode mode, uint32_t staleness = 0, uint32_t backup = 0) {
  return {.job_seed = 7,
          .partitions = 2,
          .logical_workers = 4,
          .consistency = ConsistencyOf(mode, staleness, backup)};
}

PartitionOptions StalenessAware(PartitionOptions options) {
  options.consistency.set_staleness_aware(true);
  return options;
}

PartitionOptions ClipGlobalNorm(PartitionOptions options) {
  options.clip_global_norm = 0.5f;
  return options;
}

std::string Save(const Partition& partition) {
  std::string bytes;
  SavePartition(partition, [&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  });
  return bytes;
}

absl::StatusOr<Partition> Load(const PartitionOptions& options, const std::string& bytes,
                               uint32_t index = kIndex) {
  return LoadPartition(index, options, ByteView(bytes.data(), bytes.size()));
}

class PartitionSnapshotTest : public testing::TestWithParam<PartitionOptions> {
 protected:
  static constexpr int kCalls = 1500;

  // Calls visit(partition, call) after each of the calls.
  template <typename Visit>
  void Run(uint32_t seed, int calls, Visit visit) {
    SCOPED_TRACE(seed);
    RandomHistory history(GetParam(), kIndex, seed);
    Partition partition(kIndex, GetParam());
    for (int i = 0; i < calls && !HasFatalFailure(); ++i) {
      const RandomHistory::Call call = history.Next(partition);
      call(partition);
      visit(partition, call);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, PartitionSnapshotTest,
                         testing::Values(Options(SYNC), Options(SYNC, 0, 2), Options(BOUNDED, 2),
                                         Options(ASYNC), StalenessAware(Options(ASYNC)),
                                         ClipGlobalNorm(Options(SYNC))),
                         [](const testing::TestParamInfo<PartitionOptions>& info) {
                           const Consistency& consistency = info.param.consistency;
                           return ConsistencyMode_Name(consistency.mode()) +
                                  (consistency.backup_workers() > 0 ? "_with_backup_workers" : "") +
                                  (consistency.staleness_aware() ? "_staleness_aware" : "") +
                                  (info.param.clip_global_norm > 0 ? "_clip_global_norm" : "");
                         });

TEST_P(PartitionSnapshotTest, HistoriesReachEveryPartOfTheState) {
  bool applied = false, early = false, late = false, moves = false, blocks = false;
  int calls = 0;
  Run(1, kCalls, [&](const Partition& partition, const RandomHistory::Call&) {
    applied = applied || partition.counters().pushes_applied > 100;
    late = late || partition.counters().pushes_late > 0;
    if (++calls % 20 == 0)
      early = early || Save(partition).size() > partition.parameter_bytes() + 5000;
    blocks = blocks || partition.parameter_bytes() > size_t{1} << 20;
    moves = moves || partition.CutStep() > 5;
  });
  EXPECT_TRUE(applied);
  EXPECT_TRUE(early);
  EXPECT_TRUE(moves);
  EXPECT_TRUE(blocks);
  EXPECT_EQ(late, GetParam().consistency.backup_workers() > 0);
}

TEST_P(PartitionSnapshotTest, LoadedPartitionIsTheSame) {
  std::mt19937 random(2);
  Run(2, kCalls, [&](const Partition& partition, const RandomHistory::Call&) {
    if (random() % 20 != 0) return;
    const std::string bytes = Save(partition);
    // The bytes arrive in pieces of any size.
    PartitionLoader loader(kIndex, GetParam());
    const size_t piece = 1 + random() % (random() % 2 == 0 ? 100 : 200000);
    for (size_t begin = 0; begin < bytes.size(); begin += piece) {
      const absl::Status status = loader.Append(absl::string_view(bytes).substr(begin, piece));
      ASSERT_TRUE(status.ok()) << status;
    }
    const auto loaded = loader.Finish();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    ASSERT_EQ(Fingerprint(*loaded), Fingerprint(partition));
    ASSERT_EQ(loaded->log_index(), partition.log_index());
    ASSERT_EQ(loaded->row_count(), partition.row_count());
    ASSERT_EQ(loaded->parameter_bytes(), partition.parameter_bytes());
    for (const auto& table : partition.tables()) {
      ASSERT_EQ(loaded->FindTable(table->id())->Digest(),
                partition.FindTable(table->id())->Digest());
    }
  });
}

TEST_P(PartitionSnapshotTest, FingerprintIsIndependentOfRowOrder) {
  std::mt19937 random(9);
  Run(9, 600, [&](const Partition& partition, const RandomHistory::Call&) {
    if (random() % 50 != 0) return;
    // Saving and loading repeatedly may reorder the rows; reversing a table's rows surely does.
    std::string bytes = Save(partition);
    const auto loaded = Load(GetParam(), bytes);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    std::string reversed = bytes.substr(0, 12);
    for (size_t begin = 12; begin < bytes.size();) {
      uint32_t length;
      std::memcpy(&length, &bytes[begin + 4], sizeof(length));
      std::string section = bytes.substr(begin, 8 + length);
      begin += section.size();
      if (section[0] == 6 && length > 8) {
        uint32_t table;
        std::memcpy(&table, &section[8], sizeof(table));
        const TableSchema& schema = partition.FindTable(table)->table();
        const size_t width = schema.RowWidth(0);
        const size_t row =
            8 + (width + schema.rule().SlotCount(width) + schema.counts_updates()) * sizeof(float);
        if (!schema.is_dense()) {
          std::string rows;
          for (size_t end = section.size(); end > 16; end -= row)
            rows += section.substr(end - row, row);
          section.replace(16, section.size() - 16, rows);
        }
      }
      reversed += section;
    }
    const auto other = Load(GetParam(), reversed);
    ASSERT_TRUE(other.ok()) << other.status();
    ASSERT_EQ(Fingerprint(*other), Fingerprint(partition));
  });
}

TEST_P(PartitionSnapshotTest, LoadedPartitionContinuesWithTheSameBits) {
  std::mt19937 random(3);
  std::optional<Partition> replica;
  Run(3, kCalls, [&](const Partition& partition, const RandomHistory::Call& call) {
    if (replica.has_value()) call(*replica);
    if (random() % 40 == 0) {
      if (replica.has_value()) {
        ASSERT_EQ(Fingerprint(*replica), Fingerprint(partition));
      }
      auto loaded = Load(GetParam(), Save(partition));
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      replica.reset();
      replica.emplace(*std::move(loaded));
    }
  });
}

TEST_P(PartitionSnapshotTest, SameChangesGiveTheSameFingerprint) {
  Partition backup(kIndex, GetParam());
  uint64_t log_index = 0;
  std::mt19937 random(4);
  Run(4, kCalls, [&](const Partition& partition, const RandomHistory::Call& call) {
    if (partition.log_index() == log_index) return;
    ASSERT_EQ(partition.log_index(), ++log_index);
    call(backup);
    if (random() % 10 == 0) {
      ASSERT_EQ(Fingerprint(backup), Fingerprint(partition));
    }
  });
  // With clip_global_norm the ranks wait for each other more often.
  EXPECT_GT(log_index, GetParam().clip_global_norm > 0 ? kCalls / 5u : kCalls / 3u);
}

TEST_P(PartitionSnapshotTest, CallsThatKeepTheLogIndexChangeNothing) {
  uint64_t log_index = 0;
  uint64_t fingerprint = 0;
  int unchanged = 0;
  Run(5, kCalls, [&](const Partition& partition, const RandomHistory::Call&) {
    const uint64_t now = Fingerprint(partition);
    if (partition.log_index() == log_index) {
      ++unchanged;
      ASSERT_TRUE(now == fingerprint || log_index == 0);
    } else {
      ASSERT_NE(now, fingerprint);
    }
    log_index = partition.log_index();
    fingerprint = now;
  });
  EXPECT_GT(unchanged, kCalls / 20);
}

TEST_P(PartitionSnapshotTest, HeldSnapshotDoesNotChange) {
  std::optional<HeldSnapshot> held;
  std::string read;
  std::string bytes;
  uint64_t fingerprint = 0;
  Run(6, 600, [&, calls = 0](const Partition& partition, const RandomHistory::Call&) mutable {
    // It is read while the partition changes.
    if (held.has_value() && calls % 100 > 50 && !held->at_end()) held->Read(1, read);
    if (++calls % 100 != 0) return;
    if (held.has_value()) {
      while (!held->at_end()) held->Read(1000, read);
      ASSERT_TRUE(read == bytes);
    }
    held = HoldSnapshot(partition);
    read.clear();
    fingerprint = Fingerprint(partition);
    bytes = Save(partition);
    ASSERT_EQ(held->log_index(), partition.log_index());
    ASSERT_EQ(held->Fingerprint(), fingerprint);
    ASSERT_GT(held->approximate_bytes() + 20000, bytes.size());
    ASSERT_LT(held->approximate_bytes(), bytes.size() + 300000);
  });
}

TEST_P(PartitionSnapshotTest, TruncatedSnapshotIsRefused) {
  std::string bytes;
  Run(7, 400, [&](const Partition& partition, const RandomHistory::Call&) {
    if (partition.row_count() < 60) bytes = Save(partition);
  });
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    const size_t size = i < 1500 ? i % bytes.size() : random() % bytes.size();
    ASSERT_FALSE(Load(GetParam(), bytes.substr(0, size)).ok()) << size;
  }
  EXPECT_EQ(Load(GetParam(), bytes + 'x').status().code(), absl::StatusCode::kDataLoss);
}

// A flipped bit in a weight gives another valid snapshot. All other flips are detected or harmless:
// the loaded partition continues to work.
TEST_P(PartitionSnapshotTest, FlippedBitsNeverCrashOrHang) {
  RandomHistory history(GetParam(), kIndex, 8);
  Partition partition(kIndex, GetParam());
  std::string bytes;
  for (int i = 0; i < 400; ++i) {
    history.Next(partition)(partition);
    if (partition.row_count() < 60) bytes = Save(partition);
  }
  std::mt19937 random(8);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = bytes;
    for (int flips = 1 + random() % 2; flips > 0; --flips) {
      damaged[random() % (random() % 2 == 0 ? 600 : damaged.size())] ^= 1 << random() % 8;
    }
    auto loaded = Load(GetParam(), damaged);
    if (!loaded.ok()) {
      ++refused;
      ASSERT_TRUE(absl::IsDataLoss(loaded.status()) || absl::IsInvalidArgument(loaded.status()))
          << loaded.status();
      continue;
    }
    const auto again = Load(GetParam(), Save(*loaded));
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_EQ(Fingerprint(*again), Fingerprint(*loaded));
    RandomHistory next(GetParam(), kIndex, i);
    for (int k = 0; k < 30; ++k) next.Next (*loaded)(*loaded);
  }
  EXPECT_GT(refused, 300);
}

TEST(PartitionSnapshot, RestoredBestIsPartOfTheState) {
  Partition partition(kIndex, Options(ASYNC));
  partition.KeepBest(1);
  partition.RestoreBest();
  auto loaded = Load(Options(ASYNC), Save(partition));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  loaded->KeepBest(1);
  EXPECT_EQ(loaded->log_index(), partition.log_index());
  EXPECT_FALSE(loaded->ShouldRestoreBest());
}

TEST(PartitionSnapshot, ReturnedRankWithAllOthersReleasedIsLoaded) {
  Partition partition(kIndex, Options(BOUNDED, 2));
  Sender sender;
  sender.kind = Sender::Kind::kLogicalWorker;
  sender.incarnation = 1;
  for (; sender.step < 5; ++sender.step) ASSERT_TRUE(partition.EndStep(sender, 0).ok());
  for (uint32_t rank = 0; rank < partition.options().logical_workers; ++rank)
    ASSERT_TRUE(partition.Release(rank, 1).ok());
  ASSERT_TRUE(partition.TakeOver(0, 2).ok());
  EXPECT_TRUE(Load(partition.options(), Save(partition)).ok());
}

TEST(PartitionSnapshot, SnapshotOfAnotherJobOrPartitionIsRefused) {
  const PartitionOptions options = Options(BOUNDED, 2);
  const std::string bytes = Save(Partition(kIndex, options));
  ASSERT_TRUE(Load(options, bytes).ok());
  EXPECT_EQ(Load(options, bytes, 0).status().code(), absl::StatusCode::kInvalidArgument);
  const auto refused = [&](auto change) {
    PartitionOptions other = options;
    change(other);
    EXPECT_EQ(Load(other, bytes).status().code(), absl::StatusCode::kInvalidArgument);
  };
  refused([](PartitionOptions& other) { other.job_seed = 8; });
  refused([](PartitionOptions& other) { other.partitions = 3; });
  refused([](PartitionOptions& other) { other.logical_workers = 5; });
  refused([](PartitionOptions& other) { other.consistency.set_mode(ASYNC); });
  PartitionOptions bounded_otherwise = options;
  bounded_otherwise.consistency.set_staleness(3);
  EXPECT_TRUE(Load(bounded_otherwise, bytes).ok());
}

TEST(PartitionSnapshot, ImpossibleClocksAreRefused) {
  const PartitionOptions options = Options(SYNC);
  std::string bytes = Save(Partition(kIndex, options));
  // Header, job and state; then a section's header and first rank; for each rank its flags,
  // incarnation and clock. All four clocks are changed: a partition that accepted them would close
  // steps for ever.
  const size_t ranks = 12 + (8 + 32) + (8 + 64) + 8 + 4;
  for (int rank = 0; rank < 4; ++rank) bytes[ranks + rank * 17 + 1 + 8 + 7] = 1;
  const absl::Status status = Load(options, bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("version"), absl::string_view::npos) << status;
}

// A partition whose ranks have all ended step 1, which is open.
Partition WithOpenStep(const PartitionOptions& options) {
  Partition partition(kIndex, options);
  for (uint64_t step = 0; step < 2; ++step) {
    for (uint32_t rank = 0; rank < options.logical_workers; ++rank) {
      const Sender sender{Sender::Kind::kLogicalWorker, rank, 1, step};
      EXPECT_TRUE(partition.EndStep(sender, 0).ok());
    }
    if (step == 0) {
      EXPECT_TRUE(partition.CloseStep({Sender::Kind::kLogicalWorker, 0, 1, 0}, 0.5f).ok());
    }
  }
  return partition;
}

TEST(PartitionSnapshot, SquaresAndClocksMustAgree) {
  const PartitionOptions options = ClipGlobalNorm(Options(SYNC));
  const std::string bytes = Save(WithOpenStep(options));
  ASSERT_TRUE(Load(options, bytes).ok());
  // Ends with the section of both squares and the end.
  const size_t squares = bytes.size() - (8 + 16) - (8 + 16);
  ASSERT_EQ(bytes[squares], 19);
  std::string closed_only = bytes;
  closed_only.erase(squares + 8 + 8, 8);
  closed_only[squares + 4] = 8;
  std::string none = bytes;
  none.erase(squares, 8 + 16);
  --none[none.size() - 16];
  std::string negative = bytes;
  negative[squares + 8 + 15] = '\x80';
  negative[squares + 8 + 8] = 1;
  for (const std::string& damaged : {closed_only, none, negative})
    EXPECT_TRUE(absl::IsDataLoss(Load(options, damaged).status()));
}

// A job that only evaluates may clip, or not, other than the job that made its checkpoint.
TEST(PartitionSnapshot, CheckpointMayBeOfAJobThatClipsOtherwise) {
  const PartitionOptions options = Options(SYNC);
  const PartitionOptions clips = ClipGlobalNorm(options);
  const auto without = Load(options, Save(WithOpenStep(clips)));
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->version(), 1u);
  EXPECT_FALSE(without->HaveAllEnded(1)) << "the step is open, and would have closed";

  // A rank that pushes nothing here may be several steps ahead.
  Partition ahead(kIndex, options);
  for (uint64_t step = 0; step < 3; ++step)
    ASSERT_TRUE(ahead.EndStep({Sender::Kind::kLogicalWorker, 1, 1, step}, 0).ok());
  const auto with = Load(clips, Save(ahead));
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_EQ(with->clock(1), 0u) << "clips: no rank is ahead of an open step";
}

// A checkpoint may begin a job with other settings.
TEST(PartitionSnapshot, ClipGlobalNormMayChangeBetweenSteps) {
  const PartitionOptions clips = ClipGlobalNorm(Options(SYNC));
  Partition partition = WithOpenStep(clips);
  ASSERT_TRUE(partition.CloseStep({Sender::Kind::kLogicalWorker, 0, 1, 1}, 0.5f).ok());
  const auto without = Load(Options(SYNC), Save(partition));
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(Save(*without).find(std::string({19, 0, 0, 0})), std::string::npos);
  const auto again = Load(clips, Save(*without));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->version(), 2u);
}

TEST(PartitionSnapshot, RankWithoutOpenPushesTakesSeventeenBytes) {
  PartitionOptions options = Options(SYNC);
  const size_t few = Save(Partition(kIndex, options)).size();
  options.logical_workers = 1004;
  EXPECT_EQ(Save(Partition(kIndex, options)).size(), few + 1000 * 17);
}

TEST(PartitionSnapshot, UnknownSectionIsRefusedUnlessSkippable) {
  const PartitionOptions options = Options(ASYNC);
  const std::string bytes = Save(Partition(kIndex, options));
  const size_t end = bytes.size() - (8 + 16);
  const auto with = [&](uint8_t flags) {
    std::string later = bytes.substr(0, end) + std::string({99, static_cast<char>(flags), 0, 0, 3,
                                                            0, 0, 0, 'x', 'y', 'z'});
    std::string last = bytes.substr(end);
    ++last[8];
    return Load(options, later + last).status();
  };
  const absl::Status refused = with(0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("kind 99"), absl::string_view::npos) << refused;
  EXPECT_TRUE(with(1).ok()) << with(1);
}

TEST(PartitionSnapshot, MissingSectionIsDetected) {
  Partition partition(kIndex, Options(ASYNC));
  RandomHistory history(partition.options(), kIndex, 3);
  for (int i = 0; i < 100; ++i) history.Next(partition)(partition);
  const std::string bytes = Save(partition);
  for (size_t begin = 12; begin < bytes.size();) {
    uint32_t length;
    std::memcpy(&length, &bytes[begin + 4], sizeof(length));
    EXPECT_FALSE(
        Load(partition.options(), bytes.substr(0, begin) + bytes.substr(begin + 8 + length)).ok());
    begin += 8 + length;
  }
}

// Written before format 2.
TEST(PartitionSnapshot, TermsAreSavedButNotFingerprinted) {
  Partition partition(kIndex, Options(ASYNC));
  partition.KeepBest(1);
  const uint64_t without = Fingerprint(partition);
  ASSERT_TRUE(partition.SetTerm(3).ok());
  EXPECT_TRUE(Load(partition.options(), Save(partition))->terms().runs().empty())
      << "it has no changes yet";
  for (const uint64_t step : {2, 3}) partition.KeepBest(step);
  ASSERT_TRUE(partition.SetTerm(8).ok());
  partition.KeepBest(4);
  EXPECT_TRUE(absl::IsDataLoss(partition.SetTerm(7)));
  ASSERT_TRUE(partition.SetTerm(9).ok());
  const auto loaded = Load(partition.options(), Save(partition));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->terms().runs(), (std::vector<TermRun>{{2, 3}, {4, 8}}));
  EXPECT_EQ(Fingerprint(*loaded), Fingerprint(partition));
  Partition other(kIndex, Options(ASYNC));
  other.KeepBest(1);
  EXPECT_EQ(Fingerprint(other), without);
  for (const uint64_t step : {2, 3, 4}) other.KeepBest(step);
  EXPECT_EQ(Fingerprint(other), Fingerprint(partition));
}

TEST(PartitionSnapshot, ImpossibleTermsAreRefused) {
  Partition partition(kIndex, Options(ASYNC));
  for (const uint64_t term : {4, 6}) {
    ASSERT_TRUE(partition.SetTerm(term).ok());
    partition.KeepBest(term);
  }
  const std::string bytes = Save(partition);
  // Header, job and state; then a section's header.
  const size_t terms = 12 + (8 + 32) + (8 + 64) + 8;
  const auto with = [&](size_t number, char value) {
    std::string other = bytes;
    other[terms + 8 * number] = value;
    return Load(partition.options(), other).status();
  };
  EXPECT_TRUE(with(0, 1).ok());
  EXPECT_TRUE(absl::IsDataLoss(with(0, 0))) << "there is no change 0";
  EXPECT_TRUE(absl::IsDataLoss(with(0, 2))) << "a run without changes";
  EXPECT_TRUE(absl::IsDataLoss(with(2, 3))) << "there is no change 3";
  EXPECT_TRUE(absl::IsDataLoss(with(1, 0)));
  EXPECT_TRUE(absl::IsDataLoss(with(1, 6)));
  EXPECT_TRUE(absl::IsDataLoss(with(1, 7)));
}

TEST(PartitionSnapshot, Format1IsReadable) {
  const struct {
    const char* file;
    PartitionOptions options;
    int calls;
  } kSnapshots[] = {{"sync_470", Options(SYNC), 470},
                    {"sync_with_backup_workers_281", Options(SYNC, 0, 2), 281},
                    {"bounded_605", Options(BOUNDED, 2), 605},
                    {"async_605", Options(ASYNC), 605}};
  for (const auto& snapshot : kSnapshots) {
    SCOPED_TRACE(snapshot.file);
    std::ifstream file(std::string("server/shard/snapshot/testdata/format_1/") + snapshot.file,
                       std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    auto loaded = Load(snapshot.options, bytes);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    RandomHistory history(snapshot.options, kIndex, 11, /*assigns=*/false);
    Partition partition(kIndex, snapshot.options);
    for (int i = 0; i < snapshot.calls; ++i) history.Next(partition)(partition);
    // Not the fingerprint, which has the tables' settings: the files are from when
    // initial_accumulator was 0.1 unless it was set.
    EXPECT_EQ(loaded->log_index(), partition.log_index());
    EXPECT_EQ(loaded->row_count(), partition.row_count());
    EXPECT_EQ(loaded->parameter_bytes(), partition.parameter_bytes());
    ASSERT_EQ(loaded->tables().size(), partition.tables().size());
    for (const auto& table : partition.tables()) {
      EXPECT_EQ(loaded->FindTable(table->id())->Digest(),
                partition.FindTable(table->id())->Digest());
    }
    EXPECT_FALSE(Load(snapshot.options, bytes.substr(0, bytes.size() - 1)).ok());
  }
}

TEST(PartitionSnapshot, BytesMatchTheDocument) {
  const PartitionOptions options{
      .job_seed = 7, .partitions = 1, .logical_workers = 2, .consistency = ConsistencyOf(SYNC)};
  TableSpec spec = SparseTableSpec("t", 2, 1);
  spec.mutable_optimizer()->mutable_momentum()->set_learning_rate(1);
  auto table = TableSchema::Create(spec, options.job_seed);
  ASSERT_TRUE(table.ok()) << table.status();
  Partition partition(0, options);
  ASSERT_TRUE(partition.SetTerm(6).ok());
  ASSERT_TRUE(partition.CreateTable(*table).ok());
  const uint64_t key = 5;
  const float values[] = {1, -2};
  const Gradient gradient{ByteView(&key, sizeof(key)), ByteView(values, sizeof(values)), nullptr};
  const auto worker = [](uint32_t rank, uint64_t step) {
    return Sender{Sender::Kind::kLogicalWorker, rank, 3 + rank, step};
  };
  ASSERT_TRUE(partition.Push(Sender{Sender::Kind::kClient, 9, 8, 0}, 1, 1, gradient).ok());
  partition.KeepBest(1);
  ASSERT_TRUE(partition.Push(worker(0, 0), 0, 1, gradient).ok());
  ASSERT_TRUE(partition.Push(worker(1, 0), 1, 1, gradient).ok());

  // The bytes are the two-digit numbers before the ';' in each line of the first code block after
  // "Example".
  std::ifstream file("server/shard/snapshot/partition_snapshot_format.md");
  std::string document{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  document = document.substr(document.find("## Example"));
  document = document.substr(document.find("```") + 4);
  std::istringstream lines(document.substr(0, document.find("```")));
  std::string expected;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line.substr(0, line.find(';')));
    for (std::string number; numbers >> number;)
      expected.push_back(static_cast<char>(std::stoi(number, nullptr, 16)));
  }
  const std::string actual = Save(partition);
  std::string hex;
  for (const unsigned char byte : actual) {
    char digits[4];
    std::snprintf(digits, sizeof(digits), "%02x ", byte);
    hex += digits;
  }
  EXPECT_TRUE(actual == expected) << hex;
  EXPECT_TRUE(Load(options, actual, 0).ok());
}

}  // namespace
}  // namespace pawl
