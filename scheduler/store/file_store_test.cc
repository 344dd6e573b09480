// FileStore when the disk, the power or the file fails. store_conformance_test tests the contract
// of all stores.
#include "scheduler/store/file_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/fault_env.h"
#include "scheduler/store/state_log.h"

namespace pawl {
namespace {

constexpr char kFolder[] = "/data/scheduler";
constexpr uint64_t kMaxLogBytes = 4000;

MonotonicTime Soon() { return Clock::Real().Now() + std::chrono::milliseconds(10); }

// Its length depends on the revision, so that writes end at all offsets of a block.
std::string StateOf(uint64_t revision) {
  return std::string(revision * 37 % 900, static_cast<char>('a' + revision % 26));
}

class FileStoreTest : public testing::Test {
 protected:
  explicit FileStoreTest(uint64_t seed = 1) : env_(seed) {}

  std::unique_ptr<FileStore> Open() {
    return std::make_unique<FileStore>(FileStoreOptions{kFolder, kMaxLogBytes}, env_);
  }

  // A leader that has called Load. Sets `revision` to the loaded one.
  std::unique_ptr<FileStore> Lead(uint64_t& revision) {
    auto store = Open();
    absl::Status status = store->Campaign(Soon());
    EXPECT_TRUE(status.ok()) << status;
    const auto loaded = store->Load();
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    revision = 0;
    if (loaded.ok() && loaded->has_value()) {
      revision = (*loaded)->revision;
      EXPECT_EQ((*loaded)->state, StateOf(revision));
    }
    return store;
  }

  FaultEnv env_;
  uint64_t revision_ = 0;
};

TEST_F(FileStoreTest, LogStaysWithinItsLimit) {
  auto store = Lead(revision_);
  uint64_t largest = 0;
  for (uint64_t revision = 1; revision <= 200; ++revision) {
    ASSERT_TRUE(store->Save(revision, StateOf(revision)).ok());
    largest = std::max<uint64_t>(largest, env_.Contents(store->log_path()).size());
    EXPECT_LE(env_.UsedBytes(), kMaxLogBytes + 1000);
  }
  EXPECT_LE(largest, kMaxLogBytes);
  EXPECT_GT(largest, kMaxLogBytes / 2) << "records are appended, not rewritten each time";
  store.reset();
  Lead(revision_);
  EXPECT_EQ(revision_, 200);
}

TEST_F(FileStoreTest, StateLargerThanLogLimitIsSaved) {
  auto store = Lead(revision_);
  for (uint64_t revision = 1; revision <= 3; ++revision) {
    ASSERT_TRUE(store->Save(revision, std::string(2 * kMaxLogBytes, 'x')).ok());
  }
  const auto loaded = store->Load();
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
  EXPECT_EQ((*loaded)->revision, 3);
}

// The process dies. Its successor loads revision 2, also after a loss of power.
void ExpectSecondRevisionStays(FaultEnv& env, const FileStoreOptions& options) {
  env.KillProcesses();
  for (int restart = 0; restart < 2; ++restart) {
    FileStore store(options, env);
    ASSERT_TRUE(store.Campaign(Soon()).ok());
    const auto loaded = store.Load();
    ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status();
    ASSERT_EQ((*loaded)->revision, 2) << "restart " << restart;
    env.CutPower();
    env.RestorePower();
  }
}

// Power fails at each disk operation in turn. Each seed leaves other unsynced bytes.
TEST(FileStorePowerTest, SavedStateSurvivesPowerLoss) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (int64_t operations = 0; operations < 60; ++operations) {
      FaultEnv env(seed);
      const FileStoreOptions options{kFolder, kMaxLogBytes};
      uint64_t acknowledged = 0;
      uint64_t tried = 0;
      {
        FileStore store(options, env);
        env.CutPowerAfter(operations);
        if (store.Campaign(Soon()).ok() && store.Load().ok()) {
          for (uint64_t revision = 1; revision <= 20; ++revision) {
            tried = revision;
            if (!store.Save(revision, StateOf(revision)).ok()) break;
            acknowledged = revision;
          }
        }
      }
      env.CutPower();
      env.RestorePower();
      // Twice: the next failure must not lose what the first reader saw.
      uint64_t seen = acknowledged;
      for (int restart = 0; restart < 2; ++restart) {
        FileStore store(options, env);
        absl::Status status = store.Campaign(Soon());
        ASSERT_TRUE(status.ok()) << status;
        const auto loaded = store.Load();
        ASSERT_TRUE(loaded.ok()) << "seed " << seed << ", after " << operations
                                 << " operations: " << loaded.status();
        const StoredState state = loaded->value_or(StoredState());
        EXPECT_GE(state.revision, seen)
            << "seed " << seed << ", after " << operations << " operations";
        EXPECT_LE(state.revision, tried);
        if (state.revision > 0) {
          EXPECT_EQ(state.state, StateOf(state.revision));
        }
        seen = state.revision;
        if (restart == 1) {
          EXPECT_TRUE(store.Save(seen + 1, "on it goes").ok());
        }
        env.CutPower();
        env.RestorePower();
      }
    }
  }
}

// A process that dies between write and sync leaves bytes in the page cache only.
TEST(FileStorePowerTest, LoadedStateSurvivesLaterPowerLoss) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    FaultEnv env(seed);
    const FileStoreOptions options{kFolder, kMaxLogBytes};
    std::string record;
    AppendStateRecord(2, "two", record);
    {
      FileStore store(options, env);
      ASSERT_TRUE(store.Campaign(Soon()).ok() && store.Load().ok());
      ASSERT_TRUE(store.Save(1, "one").ok());
      auto file = env.OpenForAppend(store.log_path());
      ASSERT_TRUE(file.ok() && (*file)->Append(record).ok());
    }
    ExpectSecondRevisionStays(env, options);
  }
}

// A process that dies between its rename and the sync of the folder.
TEST(FileStorePowerTest, LoadedRenameSurvivesLaterPowerLoss) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    FaultEnv env(seed);
    const FileStoreOptions options{kFolder, kMaxLogBytes};
    std::string log(kStateLogMagic, sizeof(kStateLogMagic));
    AppendStateRecord(2, "two", log);
    {
      FileStore store(options, env);
      ASSERT_TRUE(store.Campaign(Soon()).ok() && store.Load().ok());
      ASSERT_TRUE(store.Save(1, "one").ok());
      const std::string path = store.log_path() + ".tmp";
      auto file = env.Create(path);
      ASSERT_TRUE(file.ok() && (*file)->Append(log).ok() && (*file)->Sync().ok());
      ASSERT_TRUE(env.Rename(path, store.log_path()).ok());
    }
    ExpectSecondRevisionStays(env, options);
  }
}

TEST_F(FileStoreTest, FullDiskIsAnErrorUntilThereIsSpace) {
  auto store = Lead(revision_);
  ASSERT_TRUE(store->Save(1, StateOf(1)).ok());
  ASSERT_TRUE(store->Save(2, StateOf(2)).ok());
  env_.SetCapacity(env_.UsedBytes() + 20);
  EXPECT_EQ(store->Save(3, StateOf(3)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store->Save(3, StateOf(3)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store->IsLeader());
  env_.SetUnlimited();
  EXPECT_TRUE(store->Save(3, StateOf(3)).ok());
  EXPECT_TRUE(store->Save(4, StateOf(4)).ok());
  store.reset();
  Lead(revision_);
  EXPECT_EQ(revision_, 4);
}

TEST_F(FileStoreTest, StateSurvivesFullDiskAndRestart) {
  auto store = Lead(revision_);
  ASSERT_TRUE(store->Save(1, StateOf(1)).ok());
  ASSERT_TRUE(store->Save(2, StateOf(2)).ok());
  env_.SetCapacity(env_.UsedBytes() + 20);
  EXPECT_FALSE(store->Save(3, StateOf(3)).ok());
  store.reset();
  store = Lead(revision_);
  EXPECT_EQ(revision_, 2);
  env_.SetUnlimited();
  EXPECT_TRUE(store->Save(3, StateOf(3)).ok());
}

// A failed sync drops the pages although they can still be read. Nothing may be appended to them.
TEST_F(FileStoreTest, SaveAfterFailedSyncIsDurable) {
  auto store = Lead(revision_);
  ASSERT_TRUE(store->Save(1, StateOf(1)).ok());
  ASSERT_TRUE(store->Save(2, StateOf(2)).ok());
  env_.FailSyncs(1);
  EXPECT_EQ(store->Save(3, StateOf(3)).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(store->Save(3, StateOf(3)).ok());
  EXPECT_TRUE(store->Save(4, StateOf(4)).ok());
  env_.CutPower();
  env_.RestorePower();
  Lead(revision_);
  EXPECT_EQ(revision_, 4);
}

TEST_F(FileStoreTest, SaveAfterFailedWriteOrFolderSyncIsDurable) {
  auto store = Lead(revision_);
  env_.FailFolderSyncs(1);
  EXPECT_EQ(store->Save(1, StateOf(1)).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(store->Save(1, StateOf(1)).ok());
  EXPECT_TRUE(store->Save(2, StateOf(2)).ok());
  env_.FailAppends(1);
  EXPECT_EQ(store->Save(3, StateOf(3)).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(store->Save(3, StateOf(3)).ok());
  env_.CutPower();
  env_.RestorePower();
  Lead(revision_);
  EXPECT_EQ(revision_, 3);
}

// The disk may answer again; only a log that was read and is wrong is damaged.
TEST_F(FileStoreTest, FailedDiskIsUnavailableAtCampaignAndLoad) {
  auto store = Lead(revision_);
  ASSERT_TRUE(store->Save(1, StateOf(1)).ok());
  store.reset();
  store = Open();
  env_.FailFolderSyncs(1);
  EXPECT_TRUE(absl::IsUnavailable(store->Campaign(MonotonicTime::max())));
  ASSERT_TRUE(store->Campaign(MonotonicTime::max()).ok());
  env_.FailFolderSyncs(1);
  EXPECT_TRUE(absl::IsUnavailable(store->Load().status()));
  env_.FailSyncs(1);
  EXPECT_TRUE(absl::IsUnavailable(store->Load().status()));
  ASSERT_TRUE(store->Load().ok());
}

TEST_F(FileStoreTest, DamagedLogIsRefusedUnchanged) {
  auto store = Lead(revision_);
  for (uint64_t revision = 1; revision <= 3; ++revision)
    ASSERT_TRUE(store->Save(revision, StateOf(revision)).ok());
  const std::string path = store->log_path();
  store.reset();
  std::string damaged = env_.Contents(path);
  damaged[kStateLogHeaderBytes + 3] ^= 1;
  env_.SetContents(path, damaged);

  store = Open();
  ASSERT_TRUE(store->Campaign(Soon()).ok());
  const auto loaded = store->Load();
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(loaded.status().message(), path)) << loaded.status();
  EXPECT_TRUE(
      absl::StrContains(loaded.status().message(), absl::StrCat("offset ", kStateLogHeaderBytes)))
      << loaded.status();
  EXPECT_EQ(store->Save(4, StateOf(4)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(env_.Contents(path), damaged);
}

TEST_F(FileStoreTest, InterruptedWriteIsOverwritten) {
  auto store = Lead(revision_);
  for (uint64_t revision = 1; revision <= 3; ++revision)
    ASSERT_TRUE(store->Save(revision, StateOf(revision)).ok());
  const std::string path = store->log_path();
  store.reset();
  const std::string whole = env_.Contents(path);
  env_.SetContents(path, whole.substr(0, whole.size() - 1));
  store = Lead(revision_);
  EXPECT_EQ(revision_, 2);
  ASSERT_TRUE(store->Save(3, StateOf(3)).ok());
  ASSERT_TRUE(store->Save(4, StateOf(4)).ok());
  store.reset();
  Lead(revision_);
  EXPECT_EQ(revision_, 4);
}

TEST_F(FileStoreTest, TooLargeLogIsRefused) {
  auto store = Lead(revision_);
  ASSERT_TRUE(store->Save(1, StateOf(1)).ok());
  const std::string path = store->log_path();
  env_.SetContents(path,
                   env_.Contents(path) + std::string(kMaxStateRecordBytes + kMaxLogBytes, 'x'));
  EXPECT_FALSE(store->Load().ok());
  EXPECT_FALSE(store->Save(2, StateOf(2)).ok());
}

// The way to become leader repeats other errors.
TEST_F(FileStoreTest, OversizedLogIsDamage) {
  env_.SetContents(
      Open()->log_path(),
      std::string(kStateLogHeaderBytes + kMaxStateRecordBytes + kMaxLogBytes + 1, 'x'));
  auto store = Open();
  ASSERT_TRUE(store->Campaign(Soon()).ok());
  EXPECT_TRUE(absl::IsDataLoss(store->Load().status())) << store->Load().status();
}

}  // namespace
}  // namespace pawl
