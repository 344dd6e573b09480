#include "client_lib/base/testing/fault_env.h"

#include <set>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

std::string Read(Env& env, const std::string& path) {
  return ReadWholeFile(env, path, 1 << 20).value();
}

TEST(FaultEnvTest, PowerLossKeepsSyncedBytesAndTearsTheRest) {
  std::set<size_t> sizes;
  bool zeros = false;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    FaultEnv env(seed);
    auto file = env.Create("/f").value();
    ASSERT_TRUE(file->Append("durable").ok());
    ASSERT_TRUE(file->Sync().ok());
    ASSERT_TRUE(env.SyncFolder("/").ok());
    ASSERT_TRUE(file->Append("unsynced").ok());
    env.CutPower();
    EXPECT_EQ(file->Append("x").code(), absl::StatusCode::kUnavailable);
    env.RestorePower();
    EXPECT_EQ(file->Append("x").code(), absl::StatusCode::kUnavailable)
        << "opened before the power loss";
    const std::string left = Read(env, "/f");
    ASSERT_EQ(left.substr(0, 7), "durable");
    sizes.insert(left.size());
    zeros = zeros || left == "durable" + std::string(8, '\0');
  }
  EXPECT_EQ(sizes.size(), 9u) << "torn at every byte of the unsynced part";
  EXPECT_TRUE(zeros);
}

TEST(FaultEnvTest, NamesAreDurableOnceTheFolderIsSynced) {
  std::set<bool> created, renamed, deleted;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    FaultEnv env(seed);
    ASSERT_TRUE(env.MakeFolder("/d").ok());
    ASSERT_TRUE(env.SyncFolder("/").ok());
    for (const char* path : {"/d/old", "/d/from", "/d/to"}) {
      auto file = env.Create(path).value();
      ASSERT_TRUE(file->Append(path).ok());
      ASSERT_TRUE(file->Sync().ok());
    }
    ASSERT_TRUE(env.SyncFolder("/d").ok());
    ASSERT_TRUE(env.Rename("/d/from", "/d/to").ok());
    ASSERT_TRUE(env.Delete("/d/old").ok());
    ASSERT_TRUE(env.Create("/d/new").value()->Sync().ok());
    env.CutPower();
    env.RestorePower();
    const bool has_from = env.FileSize("/d/from").ok();
    EXPECT_EQ(Read(env, "/d/to"), has_from ? "/d/to" : "/d/from");
    renamed.insert(!has_from);
    deleted.insert(!env.FileSize("/d/old").ok());
    created.insert(env.FileSize("/d/new").ok());
  }
  EXPECT_EQ(created.size(), 2u);
  EXPECT_EQ(renamed.size(), 2u);
  EXPECT_EQ(deleted.size(), 2u);
}

TEST(FaultEnvTest, FolderIsRenamedWithItsFiles) {
  FaultEnv env(1);
  ASSERT_TRUE(env.MakeFolder("/a").ok());
  ASSERT_TRUE(env.MakeFolder("/ab").ok());
  ASSERT_TRUE(WriteFileDurably(env, "/a/file", "text").ok());
  ASSERT_TRUE(env.Rename("/a", "/b").ok());
  EXPECT_EQ(*ReadWholeFile(env, "/b/file", 100), "text");
  EXPECT_EQ(*env.List("/"), (std::vector<std::string>{"ab", "b"}));
  EXPECT_TRUE(*FileExists(env, "/b"));
  EXPECT_FALSE(*FileExists(env, "/a/file"));
}

TEST(FaultEnvTest, FailedSyncLosesDataDespiteLaterSyncs) {
  std::set<std::string> left;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    FaultEnv env(seed);
    auto file = env.Create("/f").value();
    ASSERT_TRUE(env.SyncFolder("/").ok());
    ASSERT_TRUE(file->Append("a").ok());
    env.FailSyncs(1);
    EXPECT_EQ(file->Sync().code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(file->Append("b").code(), absl::StatusCode::kDataLoss) << "the file is lost";
    EXPECT_EQ(Read(env, "/f"), "a") << "it can still be read";
    EXPECT_TRUE(env.OpenForAppend("/f").value()->Sync().ok());
    env.CutPower();
    env.RestorePower();
    left.insert(Read(env, "/f"));
  }
  EXPECT_TRUE(left.contains(""));
}

TEST(FaultEnvTest, FullDiskAcceptsWhatFits) {
  FaultEnv env(1);
  auto file = env.Create("/f").value();
  env.SetCapacity(5);
  EXPECT_EQ(file->Append("0123456789").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Read(env, "/f"), "01234");
  EXPECT_EQ(env.Create("/g").status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(file->Truncate(file->size()).ok());
  env.SetUnlimited();
  EXPECT_TRUE(file->Append("0123456789").ok());
  EXPECT_EQ(env.UsedBytes(), 10u);
}

TEST(FaultEnvTest, UnsyncedTruncationMayBeUndone) {
  std::set<std::string> left;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    FaultEnv env(seed);
    env.SetContents("/f", "0123456789");
    auto file = env.OpenForAppend("/f").value();
    ASSERT_TRUE(file->Truncate(4).ok());
    if (seed % 2 == 0) {
      ASSERT_TRUE(file->Sync().ok());
    }
    env.CutPower();
    env.RestorePower();
    left.insert(Read(env, "/f"));
    ASSERT_EQ(Read(env, "/f").substr(0, 4), "0123");
    if (seed % 2 == 0) {
      ASSERT_EQ(Read(env, "/f"), "0123");
    }
  }
  EXPECT_TRUE(left.contains("0123456789"));
}

TEST(FaultEnvTest, PowerCanFailDuringAnyOperation) {
  FaultEnv env(1);
  env.CutPowerAfter(2);
  auto file = env.Create("/f").value();
  ASSERT_TRUE(file->Append("a").ok());
  EXPECT_EQ(file->Append("b").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(env.List("/").status().code(), absl::StatusCode::kUnavailable);
}

TEST(FaultEnvTest, KilledProcessesLoseOnlyTheirLocks) {
  FaultEnv env(1);
  auto lock = env.LockFolder("/").value();
  auto file = env.Create("/f").value();
  ASSERT_TRUE(file->Append("a").ok());
  EXPECT_EQ(env.LockFolder("/").status().code(), absl::StatusCode::kUnavailable);
  env.KillProcesses();
  EXPECT_EQ(file->Append("b").code(), absl::StatusCode::kUnavailable);
  auto second = env.LockFolder("/");
  ASSERT_TRUE(second.ok());
  lock.reset();
  EXPECT_FALSE(env.LockFolder("/").ok())
      << "releasing a dead process's lock must not release the present one";
  EXPECT_EQ(Read(env, "/f"), "a");
}

}  // namespace
}  // namespace pawl
