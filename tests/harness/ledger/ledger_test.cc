// Tests the checker on a small model of a server that makes one mistake at a time. A checker that
// accepts everything would make every reliability test worthless.
#include "tests/harness/ledger/ledger.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "client_lib/base/crc32c.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/simulated_clock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

constexpr uint32_t kWorkers = 3;
constexpr uint64_t kSequences = 40;
constexpr uint32_t kPartitions = 8;
constexpr uint32_t kRowWidth = 4;
const LedgerScope kScope = {kWorkers, kSequences, kPartitions, kRowWidth, 1.0f};

struct Mistakes {
  bool no_deduplication = false;
  bool acknowledge_before_replicate = false;
  bool window_not_in_checkpoint = false;
  bool torn_row = false;
  bool lost_acknowledgement = false;
};

// A primary with one backup and a checkpoint, behind a network. A push arrives and may be repeated;
// the primary may die and the backup take over; all may be restored.
class ModelServer {
 public:
  explicit ModelServer(Mistakes mistakes) : mistakes_(mistakes) {}

  // Returns true if the push is acknowledged.
  bool Push(uint32_t worker, uint64_t sequence, bool deliver, bool answer) {
    if (!deliver) return mistakes_.lost_acknowledgement && answer;
    Apply(primary_, worker, sequence);
    if (mistakes_.acknowledge_before_replicate) {
      unreplicated_.emplace_back(worker, sequence);
    } else {
      Apply(backup_, worker, sequence);
    }
    return answer;
  }
  void KillPrimary() {
    primary_ = backup_;
    unreplicated_.clear();
  }
  void Replicate() {
    for (const auto& [worker, sequence] : unreplicated_) Apply(backup_, worker, sequence);
    unreplicated_.clear();
  }
  void Checkpoint() { checkpoint_ = primary_; }
  void Restore() {
    primary_ = checkpoint_;
    if (mistakes_.window_not_in_checkpoint) primary_.seen.clear();
    backup_ = primary_;
  }
  LedgerReader Reader() const {
    return [this](uint32_t worker, uint64_t sequence, uint32_t partition, absl::Span<float> row) {
      const auto found = primary_.rows.find({worker, sequence, partition});
      for (float& element : row) element = found == primary_.rows.end() ? 0.0f : found->second;
      if (mistakes_.torn_row && worker == 1 && sequence == 7 && partition == 5) row.back() = 0.0f;
      return absl::OkStatus();
    };
  }

 private:
  struct State {
    std::map<std::tuple<uint32_t, uint64_t, uint32_t>, float> rows;
    std::set<std::tuple<uint32_t, uint64_t, uint32_t>> seen;
  };
  void Apply(State& state, uint32_t worker, uint64_t sequence) {
    for (uint32_t partition = 0; partition < kPartitions; ++partition) {
      if (!state.seen.insert({worker, sequence, partition}).second && !mistakes_.no_deduplication)
        continue;
      state.rows[{worker, sequence, partition}] += 1.0f;
    }
  }

  const Mistakes mistakes_;
  State primary_;
  State backup_;
  State checkpoint_;
  std::vector<std::pair<uint32_t, uint64_t>> unreplicated_;
};

// Loses and repeats messages, with a failover in the middle. With `give_up`, 40 % of the pushes are
// not retried until they are acknowledged.
LedgerVerdict Storm(Mistakes mistakes, bool give_up = false) {
  ModelServer server(mistakes);
  Ledger ledger;
  std::mt19937 random(7);
  const auto chance = [&](uint32_t percent) { return random() % 100 < percent; };
  for (uint64_t sequence = 0; sequence + 1 < kSequences; ++sequence) {
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      ledger.Sent(worker, sequence);
      const bool stubborn = !give_up || !chance(40);
      bool acknowledged = false;
      for (int attempt = 0; (stubborn || attempt < 1) && !acknowledged; ++attempt) {
        // Separate statements, because the compiler chooses the evaluation order of arguments.
        const bool deliver = !chance(25);
        const bool answer = !chance(25);
        acknowledged = server.Push(worker, sequence, deliver, answer);
      }
      if (acknowledged) {
        ledger.Acknowledged(worker, sequence);
      } else {
        ledger.Failed(worker, sequence, absl::StatusCode::kDeadlineExceeded);
      }
      if (sequence == 20 && worker == 1) server.KillPrimary();
      if (sequence == 10) server.Replicate();
    }
  }
  const auto verdict = CheckLedger(ledger, kScope, server.Reader());
  EXPECT_TRUE(verdict.ok());
  return *verdict;
}

TEST(LedgerTest, CorrectServerIsExact) {
  const LedgerVerdict verdict = Storm({});
  EXPECT_TRUE(verdict.exact()) << verdict.ToString();
  EXPECT_EQ(verdict.applied, kWorkers * (kSequences - 1) * kPartitions);
  EXPECT_EQ(verdict.unknown_applied + verdict.unknown_not_applied, 0u);
}

TEST(LedgerTest, UnknownPushMayBeAppliedOrNot) {
  const LedgerVerdict verdict = Storm({}, /*give_up=*/true);
  EXPECT_TRUE(verdict.exact()) << verdict.ToString();
  EXPECT_GT(verdict.unknown_applied, 0u);
  EXPECT_GT(verdict.unknown_not_applied, 0u);
}

TEST(LedgerTest, MissingDeduplicationIsFound) {
  const LedgerVerdict verdict = Storm({.no_deduplication = true});
  EXPECT_GT(verdict.doubled, 0u);
  EXPECT_EQ(verdict.doubled, verdict.violation_count);
  EXPECT_GT(verdict.applied, kWorkers * (kSequences - 1) * kPartitions);
}

TEST(LedgerTest, AcknowledgementBeforeReplicationIsFound) {
  const LedgerVerdict verdict = Storm({.acknowledge_before_replicate = true});
  EXPECT_GT(verdict.lost, 0u);
  EXPECT_EQ(verdict.lost, verdict.violation_count);
}

TEST(LedgerTest, AcknowledgementWithoutApplicationIsFound) {
  EXPECT_FALSE(Storm({.lost_acknowledgement = true}).exact());
}

TEST(LedgerTest, TornRowIsNamed) {
  const LedgerVerdict verdict = Storm({.torn_row = true});
  ASSERT_EQ(verdict.violation_count, 1u);
  EXPECT_NE(verdict.violations[0].find("worker 1, sequence 7, partition 5"), std::string::npos)
      << verdict.violations[0];
}

bool ExactAfterRestoreAndRepeat(Mistakes mistakes) {
  ModelServer server(mistakes);
  Ledger ledger;
  ledger.Sent(0, 0);
  server.Push(0, 0, /*deliver=*/true, /*answer=*/false);
  server.Checkpoint();
  server.Restore();
  if (server.Push(0, 0, /*deliver=*/true, /*answer=*/true)) ledger.Acknowledged(0, 0);
  return CheckLedger(ledger, kScope, server.Reader())->exact();
}

TEST(LedgerTest, CheckpointWithoutPushWindowIsFound) {
  EXPECT_TRUE(ExactAfterRestoreAndRepeat({}));
  EXPECT_FALSE(ExactAfterRestoreAndRepeat({.window_not_in_checkpoint = true}));
}

TEST(LedgerTest, UnsentPushIsFound) {
  ModelServer server({});
  Ledger ledger;
  server.Push(2, 3, true, true);
  const LedgerVerdict verdict = *CheckLedger(ledger, kScope, server.Reader());
  EXPECT_EQ(verdict.violation_count, kPartitions);
}

TEST(LedgerTest, NoteOutsideTheScopeIsFound) {
  ModelServer server({});
  Ledger ledger;
  ledger.Sent(kWorkers, 0);
  EXPECT_FALSE(CheckLedger(ledger, kScope, server.Reader())->exact());
}

TEST(LedgerTest, ValueThatIsNoCountIsFound) {
  Ledger ledger;
  ledger.Sent(0, 0);
  for (const float value : {0.5f, -1.0f, NAN, INFINITY}) {
    const auto reader = [&](uint32_t worker, uint64_t sequence, uint32_t, absl::Span<float> row) {
      for (float& element : row) element = worker == 0 && sequence == 0 ? value : 0.0f;
      return absl::OkStatus();
    };
    EXPECT_EQ(CheckLedger(ledger, kScope, reader)->violation_count, kPartitions) << value;
  }
}

TEST(LedgerTest, UnitIsOneWorkersShareInSyncMode) {
  Ledger ledger;
  ledger.Sent(0, 0);
  ledger.Acknowledged(0, 0);
  LedgerScope scope = kScope;
  scope.unit = 0.25f;
  const auto reader = [&](uint32_t worker, uint64_t sequence, uint32_t, absl::Span<float> row) {
    for (float& element : row) element = worker == 0 && sequence == 0 ? 0.25f : 0.0f;
    return absl::OkStatus();
  };
  EXPECT_TRUE(CheckLedger(ledger, scope, reader)->exact());
}

TEST(LedgerTest, KeysAreDistinctAndInTheirPartition) {
  std::set<uint64_t> keys;
  constexpr uint32_t kManyPartitions = 256;
  for (uint32_t worker = 0; worker < 3; ++worker) {
    for (uint64_t sequence = 0; sequence < 20; ++sequence) {
      for (uint32_t partition = 0; partition < kManyPartitions; ++partition) {
        const uint64_t key = LedgerKey(3, worker, sequence, partition, kManyPartitions);
        EXPECT_EQ(PartitionOf(3, key, kManyPartitions), partition);
        keys.insert(key);
      }
    }
  }
  EXPECT_EQ(keys.size(), 3u * 20 * kManyPartitions);
}

TEST(LedgerTest, NoteFileSurvivesATruncatedLastLine) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/notes";
  {
    Ledger ledger;
    ASSERT_TRUE(ledger.WriteTo(path).ok());
    ledger.Sent(0, 0);
    ledger.Acknowledged(0, 0);
    ledger.Sent(1, 5);
    ledger.Failed(1, 5, absl::StatusCode::kUnavailable);
  }
  std::ofstream(path, std::ios::app) << "a 1 ";
  Ledger again;
  ASSERT_TRUE(again.ReadFrom(path).ok());
  EXPECT_EQ(again.acknowledged(), 1u);
  EXPECT_EQ(again.pushes().size(), 2u);
  EXPECT_EQ(again.failures().at(absl::StatusCode::kUnavailable), 1u);
}

TEST(LedgerTest, SecondIncarnationContinuesTheNoteFile) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/two-incarnations";
  SimulatedClock clock;
  {
    Ledger first(clock);
    ASSERT_TRUE(first.WriteTo(path).ok());
    first.Sent(3, 0);
    clock.Advance(std::chrono::milliseconds(20));
    first.Acknowledged(3, 0);
    first.Sent(3, 1);
  }
  std::ofstream(path, std::ios::app) << "a 3";
  {
    Ledger second(clock);
    ASSERT_TRUE(second.ReadFrom(path).ok());
    ASSERT_TRUE(second.WriteTo(path).ok());
    second.Sent(3, 2);
    clock.Advance(std::chrono::milliseconds(300));
    second.Acknowledged(3, 2);
  }
  Ledger all;
  ASSERT_TRUE(all.ReadFrom(path).ok());
  EXPECT_EQ(all.pushes().size(), 3u);
  EXPECT_EQ(all.acknowledged(), 2u);
  const std::vector<MonotonicTime> times = all.AcknowledgementTimes().at(3);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[1] - times[0], std::chrono::milliseconds(300));
}

TEST(LedgerTest, ScopeEndsOneAfterEachWorkersLastNote) {
  Ledger ledger;
  ledger.Sent(1, 3);
  ledger.Sent(4, 0);
  std::map<uint32_t, uint64_t> read;
  const auto reader = [&](uint32_t worker, uint64_t sequence, uint32_t, absl::Span<float> row) {
    read[worker] = sequence;
    for (float& element : row) element = 0.0f;
    return absl::OkStatus();
  };
  EXPECT_TRUE(CheckLedger(ledger, ScopeOf(ledger, kPartitions, kRowWidth), reader)->exact());
  EXPECT_EQ(read, (std::map<uint32_t, uint64_t>{{1, 4}, {4, 1}}));
}

TEST(LedgerTest, DigestCoversRowsInKeyOrder) {
  Ledger ledger;
  ledger.Sent(0, 0);
  ledger.Sent(0, 1);
  LedgerDigest digest(1, 2);
  const auto reader =
      digest.Recording([](uint32_t, uint64_t sequence, uint32_t partition, absl::Span<float> row) {
        for (float& element : row) element = partition == 1 && sequence < 2 ? 1.0f : 0.0f;
        return absl::OkStatus();
      });
  ASSERT_TRUE(CheckLedger(ledger, ScopeOf(ledger, 2, 2), reader).ok());
  const std::vector<float> row = {1.0f, 1.0f};
  uint32_t expected = 0;
  for (const uint64_t sequence : {0, 1}) {
    const uint64_t key = LedgerKey(1, 0, sequence, 1, 2);
    expected = Crc32c(expected, &key, sizeof(key));
    expected = Crc32c(expected, row.data(), row.size() * sizeof(float));
  }
  EXPECT_EQ(digest.Records(), (std::map<uint32_t, LedgerDigest::Record>{{1, {expected, 2}}}));
}

TEST(LedgerTest, UnrelatedFileIsRefused) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/other";
  std::ofstream(path) << "s 0 0 0 5\nhello\ns 0 1 0 6\n";
  Ledger ledger;
  EXPECT_EQ(ledger.ReadFrom(path).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace pawl
