// Kills and power losses at random moments, also during resets. With syncs, nothing that was
// reported durable is ever lost, and the server always starts. Without syncs, a power loss may take
// the end of the log, but never joins the log before a reset to the one after it.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/fault_env.h"
#include "gtest/gtest.h"
#include "server/storage/testing/storage_harness.h"

namespace pawl {
namespace {

constexpr int kLives = 8;
constexpr uint32_t kPartitions = 4;

// What the test knows of a partition's log since its last reset: the states in which it may be
// found.
struct Era {
  // The states it has been in, by index. Empty: it does not exist.
  std::map<uint64_t, ToyPartition> states;
  // If the partition is found in this era, it must be found with at least this index.
  std::optional<uint64_t> durable;
  // The same after a power loss.
  std::optional<uint64_t> synced;

  void NoteDurable(uint64_t index) { durable = std::max(index, durable.value_or(0)); }
  void NoteSynced(uint64_t index) {
    NoteDurable(index);
    synced = std::max(index, synced.value_or(0));
  }
};

// The eras in which the partition may be found, oldest first: it is unknown which resets are
// durable.
using Expected = std::vector<Era>;

class Torture {
 public:
  Torture(uint64_t seed, bool sync) : sync_(sync), random_(seed), env_(random_()) {}

  // Returns how often the server has started.
  int Run() {
    for (int incarnation = 0; incarnation < kLives && !testing::Test::HasFailure(); ++incarnation) {
      Live();
      if (is_damaged_) return starts_;
      server_ = nullptr;
      env_.SetUnlimited();
      env_.FailAppends(0);
      env_.FailSyncs(0);
      env_.FailFolderSyncs(0);
      env_.FailDeletions(0);
      if (Random(4) == 0) {
        env_.KillProcesses();
        continue;
      }
      env_.RestorePower();
      lost_power_ = true;
      if (sync_) continue;
      for (Expected& expected : expected_) {
        for (Era& era : expected) era.durable = era.synced;
      }
    }
    Open();
    return starts_;
  }

 private:
  uint64_t Random(uint64_t below) { return random_() % below; }
  bool HasPower() { return !absl::IsUnavailable(env_.List("/").status()); }

  bool Open() {
    WriteAheadLogOptions options = StorageHarness::QuickOptions();
    options.sync = sync_;
    options.segment_bytes = 1000 + Random(3000);
    options.max_group_bytes = 1 + Random(5000);
    server_ = std::make_unique<StorageHarness>(env_, options);
    const absl::Status status = server_->Open();
    if (absl::IsUnavailable(status)) return false;  // The power failed during the start.
    // Without syncs a part of the log may be on the disk and an earlier part not.
    is_damaged_ = !sync_ && lost_power_ && absl::IsDataLoss(status) &&
                  absl::StrContains(status.message(), ".log is damaged at offset ");
    EXPECT_TRUE(status.ok() || is_damaged_) << status;
    if (!status.ok()) return false;
    lost_power_ = false;
    ++starts_;
    for (uint32_t p = 0; p < kPartitions; ++p) Check(p);
    return true;
  }

  void Check(uint32_t p) {
    Expected& expected = expected_[p];
    const auto found = server_->partitions().find(p);
    const auto is_it = [&](const Era& era) {
      if (found == server_->partitions().end()) return !era.durable.has_value();
      const auto known = era.states.find(found->second.index);
      return found->second.index >= era.durable.value_or(0) && known != era.states.end() &&
             known->second == found->second;
    };
    const auto era = std::find_if(expected.rbegin(), expected.rend(), is_it);
    if (era == expected.rend()) {
      ADD_FAILURE() << "partition " << p << " is in none of its possible states, "
                    << (found == server_->partitions().end()
                            ? "but gone"
                            : absl::StrCat("at ", found->second.index));
      return;
    }
    Era present = found == server_->partitions().end() ? Era() : *era;
    if (found != server_->partitions().end()) {
      present.states.erase(present.states.upper_bound(found->second.index), present.states.end());
      // It may equally be the same state of an earlier era that is known to be less durable.
      for (const Era& other : expected) {
        if (!is_it(other)) continue;
        present.durable = std::min(present.durable, other.durable);
        present.synced = std::min(present.synced, other.synced);
      }
      // A snapshot may be ahead of the rest of the log; then there is no way back.
      for (const RecoveredPartition& recovered : server_->recovered().partitions) {
        if (recovered.partition != p) continue;
        present.states.erase(present.states.begin(),
                             present.states.lower_bound(recovered.snapshot_index));
      }
    }
    expected = {std::move(present)};
  }

  // One incarnation, which ends with a power loss at some moment, or when the test stops it.
  void Live() {
    if (Random(3) != 0) env_.CutPowerAfter(static_cast<int64_t>(Random(150)));
    if (!Open()) return;
    const uint64_t actions = 5 + Random(60);
    for (uint64_t i = 0; i < actions && HasPower(); ++i) {
      const auto p = static_cast<uint32_t>(Random(kPartitions));
      Era& expected = expected_[p].back();
      switch (Random(14)) {
        case 0:
          if (!expected.states.empty()) Snapshot(p);
          break;
        case 1:
          if (!expected.states.empty() && Random(3) == 0) Drop(p);
          break;
        case 2:
          env_.FailSyncs(static_cast<int>(Random(3)));
          break;
        case 3:
          if (Random(3) == 0) env_.FailAppends(1);
          if (Random(3) == 0) env_.FailFolderSyncs(1);
          if (Random(3) == 0) env_.FailDeletions(1);
          break;
        case 4:
          env_.SetCapacity(env_.UsedBytes() + Random(600));
          break;
        case 5:
          env_.SetUnlimited();
          break;
        case 6:
          if (expected.states.empty() || Random(3) == 0) Replace(p);
          break;
        case 7:
          if (!expected.states.empty()) Truncate(p);
          break;
        default:
          for (uint64_t count = Random(6); count > 0; --count) {
            if (!server_->Append(p, std::string(Random(400), static_cast<char>('a' + Random(26)))))
              break;
            const ToyPartition& state = server_->partitions().at(p);
            expected.states[state.index] = state;
          }
          if (Random(2) == 0 && !expected.states.empty()) Wait(p);
      }
    }
    env_.CutPowerAfter(static_cast<int64_t>(Random(5)));
  }

  // What the log has reported so far. What it reports while it closes counts too, but need not be
  // checked.
  void Note(uint32_t p) {
    if (const uint64_t durable = server_->durable(p); durable > 0) {
      expected_[p] = {expected_[p].back()};
      if (sync_) {
        expected_[p].back().NoteSynced(durable);
      } else {
        expected_[p].back().NoteDurable(durable);
      }
    }
  }

  void Wait(uint32_t p) {
    server_->WaitDurable(p, true);
    Note(p);
  }

  void Snapshot(uint32_t p) {
    Wait(p);
    // No snapshot while a reset is queued.
    if (server_->durable(p) == 0) return;
    const uint64_t index = server_->partitions().at(p).index;
    if (server_->Snapshot(p).ok()) expected_[p].back().NoteSynced(index);
  }

  void Drop(uint32_t p) {
    Note(p);
    expected_[p].emplace_back();
    if (server_->Drop(p, true)) expected_[p] = {Era()};
  }

  // The partition arrives as a snapshot from elsewhere.
  void Replace(uint32_t p) {
    Note(p);
    const ToyPartition state = {1 + Random(50), static_cast<uint32_t>(random_())};
    if (server_->Replace(p, state).ok()) {
      expected_[p].push_back({{{state.index, state}}, state.index, state.index});
    }
  }

  // It goes back to a state that its files still reach.
  void Truncate(uint32_t p) {
    Wait(p);
    if (server_->durable(p) == 0) return;
    Era era = expected_[p].back();
    uint64_t first = era.states.begin()->first;
    // Two snapshots: the log before the older one is gone.
    std::vector<uint64_t> snapshots;
    for (const SnapshotStore::Snapshot& snapshot : server_->snapshots().List()) {
      if (snapshot.partition == p) snapshots.push_back(snapshot.index);
    }
    if (snapshots.size() > 1) first = std::max(first, snapshots.front());
    const uint64_t last = era.states.rbegin()->first;
    if (first > last) return;
    // It is gone as well if a truncation takes the newer one.
    era.states.erase(era.states.begin(), era.states.lower_bound(first));
    const auto state = era.states.lower_bound(first + Random(last - first + 1));
    era.states.erase(std::next(state), era.states.end());
    era.durable = era.synced = state->first;
    server_->Truncate(p, state->second);
    expected_[p].push_back(std::move(era));
  }

  const bool sync_;
  std::mt19937_64 random_;
  FaultEnv env_;
  // Since the last start.
  bool lost_power_ = false;
  // The end of the log is lost in a way that the server refuses.
  bool is_damaged_ = false;
  int starts_ = 0;
  std::unique_ptr<StorageHarness> server_;
  std::vector<Expected> expected_ = std::vector<Expected>(kPartitions, {Era()});
};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// PAWL_SEED repeats one seed, PAWL_SEEDS runs more of them.
void RunSeeds(bool sync) {
  const uint64_t first = FromEnvironment("PAWL_SEED", 1);
  const uint64_t count =
      FromEnvironment("PAWL_SEEDS", std::getenv("PAWL_SEED") == nullptr ? 100 : 1);
  uint64_t starts = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(absl::StrCat("PAWL_SEED=", seed));
    starts += Torture(seed, sync).Run();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  if (count >= 100) {
    EXPECT_GT(starts, 2 * count);
  }
}

TEST(PowerLossTest, DurableRecordsSurviveAndTheServerStarts) { RunSeeds(/*sync=*/true); }

TEST(PowerLossTest, UnsyncedLogNeverMixesStatesAcrossAReset) { RunSeeds(/*sync=*/false); }

}  // namespace
}  // namespace pawl
