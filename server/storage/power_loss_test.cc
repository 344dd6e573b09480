// Kills and power losses at random moments: nothing that was reported durable is ever missing, and it always starts.
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "client_lib/base/fault_env.h"
#include "gtest/gtest.h"
#include "server/storage/storage_harness.h"

namespace pawl {
namespace {

constexpr int kLives = 8;
constexpr uint32_t kPartitions = 4;

// What the test knows of a partition: the states that it may be found in.
struct Expected {
  // By index, the states that it has been in. Empty: it is not there.
  std::map<uint64_t, ToyPartition> states;
  // It must be found, and with at least this index.
  std::optional<uint64_t> durable;
};

class Torture {
 public:
  explicit Torture(uint64_t seed) : random_(seed), env_(random_()) {}

  void Run() {
    for (int life = 0; life < kLives && !testing::Test::HasFailure(); ++life) {
      Live();
      server_ = nullptr;
      env_.SetUnlimited();
      env_.FailAppends(0);
      env_.FailSyncs(0);
      env_.FailFolderSyncs(0);
      if (Random(4) == 0) {
        env_.KillProcesses();
      } else {
        env_.RestorePower();
      }
    }
    Open();
  }

 private:
  uint64_t Random(uint64_t below) { return random_() % below; }
  bool HasPower() { return !absl::IsUnavailable(env_.List("/").status()); }

  bool Open() {
    WriteAheadLogOptions options = StorageHarness::QuickOptions();
    options.segment_bytes = 1000 + Random(3000);
    options.max_group_bytes = 1 + Random(5000);
    server_ = std::make_unique<StorageHarness>(env_, options);
    const absl::Status status = server_->Open();
    if (absl::IsUnavailable(status)) return false;  // The power went while it started.
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) return false;
    for (uint32_t p = 0; p < kPartitions; ++p) Check(p);
    return true;
  }

  void Check(uint32_t p) {
    Expected& expected = expected_[p];
    const auto found = server_->partitions().find(p);
    if (found == server_->partitions().end()) {
      EXPECT_FALSE(expected.durable.has_value()) << "partition " << p << " is gone, was durable at " << *expected.durable;
      expected = {};
      return;
    }
    const ToyPartition& state = found->second;
    if (expected.durable.has_value()) {
      EXPECT_GE(state.index, *expected.durable) << "partition " << p;
    }
    const auto known = expected.states.find(state.index);
    EXPECT_TRUE(known != expected.states.end() && known->second == state)
        << "partition " << p << " was never in the state found at " << state.index;
    expected.states.erase(expected.states.upper_bound(state.index), expected.states.end());
  }

  // One life, which ends at some moment with a loss of power, or when the test has had enough.
  void Live() {
    if (Random(3) != 0) env_.CutPowerAfter(static_cast<int64_t>(Random(150)));
    if (!Open()) return;
    const uint64_t actions = 5 + Random(60);
    for (uint64_t i = 0; i < actions && HasPower(); ++i) {
      const auto p = static_cast<uint32_t>(Random(kPartitions));
      Expected& expected = expected_[p];
      switch (Random(12)) {
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
          break;
        case 4:
          env_.SetCapacity(env_.UsedBytes() + Random(600));
          break;
        case 5:
          env_.SetUnlimited();
          break;
        case 6:
          if (expected.states.empty()) Install(p);
          break;
        default:
          for (uint64_t count = Random(6); count > 0; --count) {
            if (!server_->Append(p, std::string(Random(400), static_cast<char>('a' + Random(26))))) break;
            const ToyPartition& state = server_->partitions().at(p);
            expected.states[state.index] = state;
          }
          if (Random(2) == 0 && !expected.states.empty()) Wait(p);
      }
    }
    env_.CutPowerAfter(static_cast<int64_t>(Random(5)));
  }

  // What the log has reported so far; also what it reports when it is closed counts, but need not be checked.
  void Note(uint32_t p) {
    if (const uint64_t durable = server_->durable(p); durable > 0) {
      expected_[p].durable = std::max(durable, expected_[p].durable.value_or(0));
    }
  }

  void Wait(uint32_t p) {
    server_->WaitDurable(p, true);
    Note(p);
  }

  void Snapshot(uint32_t p) {
    Wait(p);
    const uint64_t index = server_->partitions().at(p).index;
    if (server_->Snapshot(p).ok()) expected_[p].durable = std::max(index, expected_[p].durable.value_or(0));
  }

  void Drop(uint32_t p) {
    Note(p);
    // From now on it may be found in any state of before, or not at all.
    expected_[p].durable.reset();
    if (server_->Drop(p, true)) {
      expected_[p] = {};
      return;
    }
    // Nothing may begin before the end is reported: so this life ends here.
    while (!server_->Drop(p, true)) {
      env_.SetUnlimited();
      if (!HasPower()) return;
    }
    expected_[p] = {};
  }

  // The partition comes with a snapshot from elsewhere.
  void Install(uint32_t p) {
    const ToyPartition state = {1 + Random(50), static_cast<uint32_t>(random_())};
    server_->partition(p) = state;
    const bool good = server_->Snapshot(p).ok();
    expected_[p].states[state.index] = state;
    if (good) {
      expected_[p].durable = state.index;
      return;
    }
    // It may be there or not: the record that would follow it could be without it.
    env_.CutPower();
  }

  std::mt19937_64 random_;
  FaultEnv env_;
  std::unique_ptr<StorageHarness> server_;
  Expected expected_[kPartitions];
};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// PAWL_SEED repeats one seed, PAWL_SEEDS runs more of them.
TEST(PowerLossTest, NothingReportedDurableIsEverMissingAndItAlwaysStarts) {
  const uint64_t first = FromEnvironment("PAWL_SEED", 1);
  const uint64_t count = FromEnvironment("PAWL_SEEDS", std::getenv("PAWL_SEED") == nullptr ? 100 : 1);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(absl::StrCat("PAWL_SEED=", seed));
    Torture(seed).Run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace pawl
