#include "server/storage/server_log.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/eventually.h"
#include "client_lib/base/failpoint_control.h"
#include "client_lib/base/fault_env.h"
#include "gtest/gtest.h"
#include "server/storage/server_log_harness.h"

namespace pawl {
namespace {

std::string NewFolder(absl::string_view name) {
  static int number = 0;
  return JoinPath(testing::TempDir(), absl::StrCat(name, "-", getpid(), "-", ++number));
}

class ServerLogTest : public testing::Test {
 protected:
  // A new life of the process.
  void Restart(ServerLogOptions options = ServerLogHarness::QuickOptions("/data")) {
    server_ = nullptr;
    server_ = std::make_unique<ServerLogHarness>(env_, options, FSYNC);
    const absl::Status status = server_->Open();
    ASSERT_TRUE(status.ok()) << status;
  }
  void Kill() {
    env_.KillProcesses();
    server_ = nullptr;
  }
  void ExpectAt(uint32_t partition, uint64_t index) {
    ASSERT_TRUE(server_->Has(partition));
    ASSERT_EQ(server_->index(partition), index);
    EXPECT_EQ(server_->fingerprint(partition), ServerLogHarness::FingerprintAt(partition, index));
  }

  FaultEnv env_{1};
  std::unique_ptr<ServerLogHarness> server_;
};

// --- Real files, real deaths.

class KilledServerTest : public testing::TestWithParam<Durability> {};

INSTANTIATE_TEST_SUITE_P(Durabilities, KilledServerTest, testing::Values(LOG, FSYNC),
                         [](const auto& info) { return Durability_Name(info.param); });

// Opens, checks what is there, changes, notes what is durable, and dies without a word.
[[noreturn]] void LiveAndDie(const ServerLogOptions& options, Durability durability, uint64_t life, uint64_t rounds) {
  ServerLogHarness server(Env::Real(), options, durability);
  const absl::Status status = server.Open();
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }
  for (int i = 0; i < 300 || server.log().compaction_rounds() < rounds; ++i) {
    server.Change(i % kHarnessPartitions, 1 + i % 3);
    // No faster than the log, or it is one long group.
    if (i % 50 == 0 && !server.WaitAllDurable()) std::exit(2);
  }
  if (!server.WaitAllDurable()) std::exit(2);
  const std::string notes = JoinPath(options.data_folder, absl::StrCat("notes-", life));
  {
    std::ofstream file(notes);
    for (uint32_t p = 0; p < kHarnessPartitions; ++p) file << server.index(p) << ' ' << server.fingerprint(p) << '\n';
  }
  // These may be lost.
  server.Change(0, 20);
  raise(SIGKILL);
  std::abort();
}

// Each life lasts until so many rounds of snapshots.
void ExpectNothingLostInLives(const ServerLogOptions& options, Durability durability, uint64_t rounds) {
  std::map<uint32_t, uint64_t> indices;
  for (uint64_t life = 0; life < 4; ++life) {
    ASSERT_EXIT(LiveAndDie(options, durability, life, rounds), testing::KilledBySignal(SIGKILL), "");
    ServerLogHarness server(Env::Real(), options, durability);
    ASSERT_TRUE(server.Open().ok());
    std::ifstream notes(JoinPath(options.data_folder, absl::StrCat("notes-", life)));
    for (uint32_t p = 0; p < kHarnessPartitions; ++p) {
      uint64_t index = 0;
      uint32_t fingerprint = 0;
      notes >> index >> fingerprint;
      ASSERT_TRUE(server.Has(p));
      ASSERT_GT(index, indices[p]) << "what was recovered was gone on with";
      indices[p] = index;
      EXPECT_GE(server.index(p), index);
      if (p > 0) {
        EXPECT_EQ(server.index(p), index);
        EXPECT_EQ(server.fingerprint(p), fingerprint);
      }
      EXPECT_EQ(server.fingerprint(p), ServerLogHarness::FingerprintAt(p, server.index(p)));
    }
    // Ends in an orderly way, so that the next life sees that too.
  }
}

TEST_P(KilledServerTest, ComesBackWithEverythingThatWasDurable) {
  ServerLogOptions options = ServerLogHarness::QuickOptions(NewFolder("killed"));
  options.log_bytes = 1 << 30;
  ExpectNothingLostInLives(options, GetParam(), 0);
  EXPECT_TRUE(Env::Real().List(JoinPath(options.data_folder, "snapshots"))->empty());
}

TEST_P(KilledServerTest, ComesBackFromSnapshotsAndTheLogAfterThem) {
  ServerLogOptions options = ServerLogHarness::QuickOptions(NewFolder("killed"));
  options.log_bytes = 50'000;
  ExpectNothingLostInLives(options, GetParam(), 2);
  EXPECT_FALSE(Env::Real().FileSize(JoinPath(options.data_folder, "log/0000000001.log")).ok());
}

// What a process does until it dies at a failpoint: changes, rounds of snapshots, a replica that goes and comes back.
// Notes after each wait up to where the first three partitions are durable.
[[noreturn]] void LiveUntilFailpoint(const ServerLogOptions& options, const std::string& notes) {
  ServerLogHarness server(Env::Real(), options, FSYNC);
  if (!server.Open().ok()) std::exit(1);
  std::ofstream file(notes);
  for (int i = 0; i < 20'000; ++i) {
    server.Change(i % kHarnessPartitions, 1 + i % 5);
    if (i % 40 == 0) {
      for (uint32_t p = 0; p < 3; ++p) {
        if (server.Has(p) && !server.WaitDurable(p)) std::exit(2);
        file << (server.Has(p) ? server.index(p) : 0) << ' ';
      }
      file << std::endl;
    }
    if (i % 60 == 0) {
      server.Drop(3);
      while (!server.Install(3, 50 + i % 100).ok()) {
      }
    }
  }
  std::exit(3);
}

class FailpointDeathTest : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Failpoints, FailpointDeathTest,
                         testing::Values("log.write", "log.written", "log.sync", "log.synced", "log.segment_rename",
                                         "log.segment_renamed", "log.delete", "log.deleted", "snapshot.written",
                                         "snapshot.rename", "snapshot.renamed"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST_P(FailpointDeathTest, NothingDurableIsMissingAfterDeathsThere) {
  ServerLogOptions options = ServerLogHarness::QuickOptions(NewFolder("failpoint"));
  options.log_bytes = 30'000;
  options.log.segment_bytes = 5000;
  for (const int hit : {1, 2, 7, 3, 11}) {
    const std::string notes = JoinPath(options.data_folder, absl::StrCat("notes-", hit));
    ASSERT_EXIT(
        {
          if (!ArmFailpoints(absl::StrCat(GetParam(), "=crash@", hit)).ok()) std::exit(4);
          LiveUntilFailpoint(options, notes);
        },
        testing::KilledBySignal(SIGKILL), absl::StrCat("failpoint ", GetParam(), ": crash"));
    ServerLogHarness server(Env::Real(), options, FSYNC);
    const absl::Status status = server.Open();
    ASSERT_TRUE(status.ok()) << status;
    std::vector<uint64_t> durable(3);
    std::ifstream file(notes);
    for (uint64_t a = 0, b = 0, c = 0; file >> a >> b >> c;) durable = {a, b, c};
    for (uint32_t p = 0; p < kHarnessPartitions; ++p) {
      if (p < 3 && durable[p] > 0) {
        ASSERT_TRUE(server.Has(p)) << p;
        EXPECT_GE(server.index(p), durable[p]) << p;
      }
      if (server.Has(p)) {
        EXPECT_EQ(server.fingerprint(p), ServerLogHarness::FingerprintAt(p, server.index(p))) << p;
      }
    }
  }
}

TEST(ServerLogFolderTest, TwoServersCannotHaveOneDirectory) {
  const ServerLogOptions options = ServerLogHarness::QuickOptions(NewFolder("locked"));
  auto first = ServerLog::Open(Env::Real(), options);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = ServerLog::Open(Env::Real(), options).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable) << second;
  EXPECT_TRUE(absl::StrContains(second.message(), options.data_folder)) << second;
  EXPECT_TRUE(absl::StrContains(second.message(), "in use by another process")) << second;
  first->reset();
  EXPECT_TRUE(ServerLog::Open(Env::Real(), options).ok());
}

// --- Whose files they are.

TEST_F(ServerLogTest, ANewDirectoryHasNoIdentityAndThenThatOfItsServer) {
  {
    const auto log = ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).value();
    EXPECT_FALSE(log->identity().has_value());
  }
  Restart();
  server_ = nullptr;
  const auto log = ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).value();
  ASSERT_TRUE(log->identity().has_value());
  EXPECT_EQ(log->identity()->node(), "server-0");
  EXPECT_EQ(log->identity()->job_id(), 77u);
  EXPECT_EQ(log->identity()->job().seed(), 7u);
}

TEST_F(ServerLogTest, WhatIsOfAnotherJobIsDeletedAndTheNewOneBeginsAtNothing) {
  Restart();
  server_->Change(1, 50);
  ASSERT_TRUE(server_->WaitDurable(1));
  server_ = nullptr;
  server_ = std::make_unique<ServerLogHarness>(env_, ServerLogHarness::QuickOptions("/data"), FSYNC);
  const absl::Status status = server_->Open("server-2", 78);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_FALSE(server_->Has(1));
  server_->Change(2, 20);
  ASSERT_TRUE(server_->WaitDurable(2));
  server_ = nullptr;
  server_ = std::make_unique<ServerLogHarness>(env_, ServerLogHarness::QuickOptions("/data"), FSYNC);
  ASSERT_TRUE(server_->Open("server-2", 78).ok());
  EXPECT_FALSE(server_->Has(1));
  ExpectAt(2, 20);
}

TEST_F(ServerLogTest, ALossOfPowerWhileAnotherJobsFilesAreDeletedLeavesOneOfTheTwo) {
  int old_ones = 0, new_ones = 0;
  for (int64_t operations = 0; operations < 60; ++operations) {
    FaultEnv env(static_cast<uint64_t>(operations) + 1);
    const ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
    {
      ServerLogHarness old(env, options, FSYNC);
      ASSERT_TRUE(old.Open("server-0", 77).ok());
      for (uint32_t p = 0; p < kHarnessPartitions; ++p) old.Change(p, 100);
      ASSERT_TRUE(old.WaitAllDurable());
    }
    {
      ServerLogHarness next(env, options, FSYNC);
      env.CutPowerAfter(operations);
      next.Open("server-0", 78).IgnoreError();
      env.CutPower();
    }
    env.RestorePower();
    auto log = ServerLog::Open(env, options);
    ASSERT_TRUE(log.ok()) << operations << ": " << log.status();
    const bool is_old = (*log)->identity().has_value() && (*log)->identity()->job_id() == 77;
    log->reset();
    ServerLogHarness again(env, options, FSYNC);
    const absl::Status status = again.Open("server-0", is_old ? 77 : 78);
    ASSERT_TRUE(status.ok()) << operations << ": " << status;
    EXPECT_EQ(again.Has(0), is_old) << operations;
    if (is_old) {
      EXPECT_EQ(again.index(0), 100u);
    }
    ++(is_old ? old_ones : new_ones);
  }
  EXPECT_GT(old_ones, 0);
  EXPECT_GT(new_ones, 10);
}

TEST_F(ServerLogTest, ALogWithoutItsNodeFileIsNotTakenForNew) {
  Restart();
  server_->Change(1, 5);
  ASSERT_TRUE(server_->WaitDurable(1));
  server_ = nullptr;
  ASSERT_TRUE(env_.Delete("/data/node").ok());
  const absl::Status status = ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "/data/node is missing")) << status;
}

TEST_F(ServerLogTest, AJobThatWritesNoLogLeavesOnlyItsIdentity) {
  auto log = ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).value();
  NodeIdentity identity;
  identity.set_node("server-1");
  identity.set_job_id(5);
  *identity.mutable_job() = HarnessJob(MEMORY);
  ASSERT_TRUE(log->StartAnew(identity).ok());
  EXPECT_FALSE(log->Logs());
  log.reset();
  log = ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).value();
  ASSERT_TRUE(log->identity().has_value());
  EXPECT_TRUE(log->Recover(HarnessPartitionOptions())->empty());
}

// --- What is damaged is refused.

TEST_F(ServerLogTest, ARecordThatDoesNotFitIsNamed) {
  Restart();
  server_->Change(1, 30);
  ASSERT_TRUE(server_->WaitDurable(1));
  server_ = nullptr;
  const auto log = ServerLog::Open(env_, ServerLogHarness::QuickOptions("/data")).value();
  PartitionOptions options = HarnessPartitionOptions();
  options.logical_workers = 1;
  const absl::Status status = log->Recover(options).status();
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::StrContains(status.message(), "/data/log/0000000001.log at offset ")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "of partition 1")) << status;
}

// Files of a few lives with snapshots, and what they hold.
class DamagedFilesTest : public ServerLogTest {
 protected:
  void SetUp() override {
    ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
    options.log_bytes = 8000;
    options.log.segment_bytes = 3000;
    Restart(options);
    // Until the beginning of the log is gone, and there is something after the snapshots.
    while (server_->log().compaction_rounds() < 3 || env_.FileSize("/data/log/0000000001.log").ok()) Step();
    Restart();
    Step();
    for (uint32_t p = 0; p < 2; ++p) indices_.push_back(server_->index(p));
    server_ = nullptr;
    for (const char* folder : {"/data", "/data/log", "/data/snapshots"}) {
      const auto names = env_.List(folder);
      for (const std::string& name : *names) {
        if (name == "LOCK") continue;
        const std::string path = JoinPath(folder, name);
        if (!env_.FileSize(path).ok()) continue;
        files_[path] = env_.Contents(path);
      }
    }
  }
  void Step() {
    for (uint32_t p = 0; p < 2; ++p) {
      server_->Change(p, 3);
      ASSERT_TRUE(server_->WaitDurable(p));
    }
  }

  struct Outcome {
    absl::Status status;
    std::vector<uint64_t> indices = {0, 0};
  };
  // Starts with one file that has other contents, or is not there.
  Outcome RecoverWith(const std::string& path, const std::optional<std::string>& contents) {
    FaultEnv env(1);
    for (const char* folder : {"/data", "/data/log", "/data/snapshots"}) EXPECT_TRUE(env.MakeFolder(folder).ok());
    for (const auto& [name, bytes] : files_) {
      if (name != path) env.SetContents(name, bytes);
    }
    if (contents.has_value()) env.SetContents(path, *contents);
    Outcome outcome;
    auto log = ServerLog::Open(env, ServerLogHarness::QuickOptions("/data"));
    if (!log.ok()) {
      outcome.status = log.status();
      return outcome;
    }
    EXPECT_TRUE((*log)->identity().has_value());
    auto partitions = (*log)->Recover(HarnessPartitionOptions());
    if (!partitions.ok()) {
      outcome.status = partitions.status();
      return outcome;
    }
    for (const auto& partition : *partitions) {
      outcome.indices.at(partition->index()) = partition->log_index();
      EXPECT_EQ(Fingerprint(*partition), ServerLogHarness::FingerprintAt(partition->index(), partition->log_index()));
    }
    return outcome;
  }
  void ExpectNamed(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "/data/")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "offset") || absl::StrContains(status.message(), "missing")) << status;
  }

  std::vector<uint64_t> indices_;
  std::map<std::string, std::string> files_;
};

TEST_F(DamagedFilesTest, EveryFlippedByteIsRefusedByNameOrHarmless) {
  EXPECT_EQ(RecoverWith("", std::nullopt).indices, indices_);
  int refused = 0, harmless = 0;
  for (const auto& [path, contents] : files_) {
    // All of the log; of the snapshots, whose format has tests of its own, some.
    const size_t stride = absl::StrContains(path, "/snapshots/") ? 61 : 1;
    for (size_t i = 0; i < contents.size() && !HasFailure(); i += stride) {
      SCOPED_TRACE(absl::StrCat(path, " at ", i, " of ", contents.size()));
      std::string damaged = contents;
      damaged[i] ^= static_cast<char>(1 << (i % 8));
      const Outcome outcome = RecoverWith(path, damaged);
      if (outcome.status.ok()) {
        ++harmless;
        EXPECT_EQ(outcome.indices, indices_);
      } else {
        ++refused;
        ExpectNamed(outcome.status);
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(harmless, 10);
}

TEST_F(DamagedFilesTest, EveryFileThatIsCutOrMissingIsRefusedByNameUnlessItIsTheEndOfTheLog) {
  const std::string end_of_log = std::prev(files_.lower_bound("/data/node"))->first;
  ASSERT_TRUE(absl::StrContains(end_of_log, "/data/log/")) << end_of_log;
  for (const auto& [path, contents] : files_) {
    const size_t stride = absl::StrContains(path, "/snapshots/") ? 61 : 1;
    std::vector<uint64_t> before = {0, 0};
    for (size_t size = 0; size < contents.size() && !HasFailure(); size += stride) {
      SCOPED_TRACE(absl::StrCat(path, " cut to ", size, " of ", contents.size()));
      const Outcome outcome = RecoverWith(path, contents.substr(0, size));
      if (!outcome.status.ok()) {
        ExpectNamed(outcome.status);
      } else if (path == end_of_log) {
        // What is left is a whole beginning: nobody can tell it from records that were never written.
        EXPECT_GE(outcome.indices, before);
        before = outcome.indices;
      } else {
        EXPECT_EQ(outcome.indices, indices_);
      }
    }
    const Outcome missing = RecoverWith(path, std::nullopt);
    if (missing.status.ok()) {
      EXPECT_TRUE(path == end_of_log || missing.indices == indices_) << path;
    } else {
      ExpectNamed(missing.status);
    }
  }
}

// --- Compaction.

TEST_F(ServerLogTest, TheLogStaysShortWhileChangesCome) {
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  options.log_bytes = 50'000;
  Restart(options);
  for (int i = 0; i < 200; ++i) {
    for (uint32_t p = 0; p < kHarnessPartitions; ++p) server_->Change(p, 10);
    ASSERT_TRUE(server_->WaitAllDurable());
    ASSERT_TRUE(Eventually([&] { return server_->log().figures().segment_bytes < 3 * options.log_bytes; }));
  }
  EXPECT_GT(server_->log().figures().payload_bytes, 10 * options.log_bytes);
  EXPECT_LE(env_.List("/data/snapshots")->size(), kHarnessPartitions * kSnapshotsKept);
  Restart(options);
  for (uint32_t p = 0; p < kHarnessPartitions; ++p) ExpectAt(p, 2000);
}

TEST_F(ServerLogTest, AnIdlePartitionDoesNotHoldUpTheLog) {
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  options.log_bytes = 50'000;
  Restart(options);
  server_->Change(3, 7);
  ASSERT_TRUE(server_->WaitDurable(3));
  const auto is_short = [&] { return !env_.FileSize("/data/log/0000000001.log").ok(); };
  for (int i = 0; i < 2000 && !is_short(); ++i) {
    server_->Change(0, 20);
    ASSERT_TRUE(server_->WaitDurable(0));
  }
  EXPECT_TRUE(is_short());
  const uint64_t index = server_->index(0);
  Restart(options);
  ExpectAt(0, index);
  ExpectAt(3, 7);
}

TEST_F(ServerLogTest, ASnapshotThatCannotBeWrittenIsTriedAgain) {
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  options.log_bytes = 1 << 30;
  Restart(options);
  for (uint32_t p = 0; p < kHarnessPartitions; ++p) server_->Change(p, 300);
  ASSERT_TRUE(server_->WaitAllDurable());
  options.log_bytes = 30'000;
  server_ = nullptr;
  // Nothing fits besides what the start itself writes.
  env_.SetCapacity(env_.UsedBytes() + 1000);
  server_ = std::make_unique<ServerLogHarness>(env_, options, FSYNC);
  ASSERT_TRUE(server_->Open().ok());
  ASSERT_TRUE(Eventually([&] { return server_->log().compaction_rounds() > 2; }));
  EXPECT_TRUE(env_.List("/data/snapshots")->empty());
  env_.SetUnlimited();
  EXPECT_TRUE(Eventually([&] { return !env_.List("/data/snapshots")->empty(); }));
}

// --- A full disk.

TEST_F(ServerLogTest, AFullDiskAcknowledgesNothingAndTakesNothingNewUntilSpaceIsBack) {
  Restart();
  server_->Change(1, 10);
  ASSERT_TRUE(server_->WaitDurable(1));
  EXPECT_TRUE(server_->log().CheckRoom(1000).ok());
  env_.SetCapacity(env_.UsedBytes());
  server_->Change(1);
  ASSERT_TRUE(Eventually([&] { return !server_->log().CheckRoom(1).ok(); }));
  const absl::Status status = server_->log().CheckRoom(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "/data")) << status;
  ASSERT_TRUE(Eventually([&] { return server_->log().figures().failures > 3; }));
  EXPECT_EQ(server_->durable(1), 10u);
  env_.SetUnlimited();
  EXPECT_TRUE(server_->WaitDurable(1));
  EXPECT_TRUE(server_->log().CheckRoom(1000).ok());
  Kill();
  Restart();
  ExpectAt(1, 11);
}

TEST_F(ServerLogTest, TooMuchThatWaitsIsNoRoom) {
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  options.log.max_queued_bytes = 1000;
  Restart(options);
  EXPECT_TRUE(server_->log().CheckRoom(500).ok());
  EXPECT_EQ(server_->log().CheckRoom(1000).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ServerLogTest, AStartOnADiskThatTakesNothingSaysSo) {
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  Restart(options);
  server_->Change(1, 10);
  ASSERT_TRUE(server_->WaitDurable(1));
  // Something at the end that is readable and was never known to be durable.
  env_.FailSyncs(1'000'000);
  server_->Change(1);
  ASSERT_TRUE(Eventually([&] { return server_->log().figures().failures > 1; }));
  Kill();
  env_.FailSyncs(0);
  const uint64_t used = env_.UsedBytes();
  options.start_timeout = std::chrono::milliseconds(1);
  server_ = std::make_unique<ServerLogHarness>(env_, options, FSYNC);
  env_.SetCapacity(used);
  const absl::Status status = server_->Open();
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(absl::StrContains(status.message(), "/data")) << status;
  env_.SetUnlimited();
  Restart();
  ExpectAt(1, 11);
}

// --- Replicas that go and come back.

TEST_F(ServerLogTest, ADroppedPartitionIsGone) {
  Restart();
  server_->Change(1, 20);
  server_->Change(2, 20);
  server_->Drop(1);
  server_->Change(2, 1);
  ASSERT_TRUE(server_->WaitDurable(2));
  Kill();
  Restart();
  EXPECT_FALSE(server_->Has(1));
  ExpectAt(2, 21);
}

TEST_F(ServerLogTest, ADroppedPartitionComesBackFromASnapshotOfAnyIndex) {
  for (const uint64_t index : {0, 1, 19, 20, 21, 300}) {
    env_.KillProcesses();
    Restart();
    if (server_->Has(1)) server_->Drop(1);
    server_->Change(1, 20);
    server_->Drop(1);
    ASSERT_TRUE(Eventually([&] { return server_->Install(1, index).ok(); }));
    server_->Change(1, 3);
    ASSERT_TRUE(server_->WaitDurable(1));
    Kill();
    Restart();
    ExpectAt(1, index + 3);
  }
}

TEST_F(ServerLogTest, ADroppedPartitionMayBeginAgainAtOnceAndIsNotTakenForTheOneBefore) {
  Restart();
  server_->Change(2, 1);
  ASSERT_TRUE(server_->WaitDurable(2));
  // All of it is written in one group.
  env_.SetCapacity(env_.UsedBytes());
  server_->Change(1, 20);
  server_->Drop(1);
  server_->Change(1, 10);
  server_->Drop(1);
  server_->Change(1, 2);
  env_.SetUnlimited();
  ASSERT_TRUE(server_->WaitDurable(1));
  EXPECT_EQ(server_->wrong_reports(), 0u);
  EXPECT_EQ(server_->durable(1), 2u);
  Kill();
  Restart();
  ExpectAt(1, 2);
}

TEST_F(ServerLogTest, ASnapshotInPlaceOfAReplicaReplacesItWhateverItsIndex) {
  for (const uint64_t index : {5, 20, 40}) {
    env_.KillProcesses();
    Restart();
    if (server_->Has(1)) server_->Drop(1);
    server_->Change(1, 20);
    ASSERT_TRUE(Eventually([&] { return server_->Install(1, index).ok(); }));
    server_->Change(1, 2);
    ASSERT_TRUE(server_->WaitDurable(1));
    Kill();
    Restart();
    ExpectAt(1, index + 2);
  }
}

TEST_F(ServerLogTest, ASnapshotAheadThatCannotBeSavedLeavesTheReplicaBefore) {
  Restart();
  server_->Change(1, 20);
  ASSERT_TRUE(server_->WaitDurable(1));
  env_.SetCapacity(env_.UsedBytes());
  EXPECT_FALSE(server_->Install(1, 40).ok());
  env_.SetUnlimited();
  server_->Change(1, 1);
  EXPECT_TRUE(server_->WaitDurable(1)) << "the log goes on where it was";
  Kill();
  Restart();
  ExpectAt(1, 21);
}

TEST_F(ServerLogTest, AfterASnapshotBehindThatCannotBeSavedThereIsOneOfTheReplicaBefore) {
  Restart();
  server_->Change(1, 20);
  server_->Change(2, 20);
  ASSERT_TRUE(server_->WaitAllDurable());
  // Room for the log's record of the end, not for the snapshot.
  env_.SetCapacity(env_.UsedBytes() + 500);
  EXPECT_FALSE(server_->Install(1, 10).ok());
  // It goes on, as a backup does that becomes the primary.
  server_->Change(1, 1);
  EXPECT_EQ(server_->durable(1), 20u);
  env_.SetUnlimited();
  server_->Change(1, 10);
  ASSERT_TRUE(server_->WaitDurable(1));
  server_->Change(1, 3);
  ASSERT_TRUE(server_->WaitDurable(1)) << "the log goes on from that snapshot";
  Kill();
  Restart();
  ExpectAt(1, 34);
  ExpectAt(2, 20);
  ASSERT_TRUE(Eventually([&] { return server_->Install(1, 10).ok(); }));
  server_->Change(1, 1);
  ASSERT_TRUE(server_->WaitDurable(1));
  Kill();
  Restart();
  ExpectAt(1, 11);
}

TEST_F(ServerLogTest, AReplicaWhoseLogWasReplacedInVainIsDurableAgainWithoutAChange) {
  Restart();
  server_->Change(1, 20);
  ASSERT_TRUE(server_->WaitAllDurable());
  env_.SetCapacity(env_.UsedBytes() + 500);
  EXPECT_FALSE(server_->Install(1, 10).ok());
  env_.SetUnlimited();
  ASSERT_TRUE(Eventually([&] {
    const std::vector<std::string> names = *env_.List("/data/snapshots");
    return !names.empty() && !absl::EndsWith(names[0], ".tmp");
  }));
  Kill();
  Restart();
  ExpectAt(1, 20);
}

TEST_F(ServerLogTest, ADropEndsTheWishForASnapshot) {
  Restart();
  server_->Change(1, 20);
  ASSERT_TRUE(server_->WaitAllDurable());
  env_.SetCapacity(env_.UsedBytes() + 500);
  EXPECT_FALSE(server_->Install(1, 10).ok());
  server_->Drop(1);
  env_.SetUnlimited();
  server_->Change(1, 2);
  ASSERT_TRUE(server_->WaitDurable(1));
  Kill();
  Restart();
  ExpectAt(1, 2);
  EXPECT_EQ(server_->wrong_reports(), 0u);
}

TEST_F(ServerLogTest, ASnapshotIsNotWaitedForByAReportThatWaitsForTheReplica) {
  Restart();
  server_->Change(1, 20);
  ASSERT_TRUE(server_->WaitDurable(1));
  // The report of change 21 waits for the lock, which whoever brings a snapshot holds.
  MutexLock lock(server_->lock_of(1));
  std::thread change([&] { server_->Change(2, 1); });
  change.join();
  const auto records = server_->log().figures().records;
  std::string no_change_of_1;
  server_->log().Append(1, 21, ByteView("x", 1), nullptr);
  ASSERT_TRUE(Eventually([&] { return server_->log().figures().records > records; }));
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status = server_->log().SaveSnapshot(1, 10, "a snapshot");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(ServerLogTest, WhatBecomesDurableDuringAFailedSaveIsReportedAfterIt) {
  Restart();
  server_->Change(1, 20);
  ASSERT_TRUE(server_->WaitDurable(1));
  // The change is written while the snapshot is, and settled before that fails.
  ASSERT_TRUE(ArmFailpoints("log.written=pause:100@1;snapshot.written=pause:400@1;snapshot.rename=error@1").ok());
  server_->Change(1, 1);
  EXPECT_FALSE(server_->Install(1, 1000).ok());
  EXPECT_TRUE(server_->WaitDurable(1));
  EXPECT_EQ(FailpointHits()["snapshot.rename"], 1u);
  ASSERT_TRUE(ArmFailpoints("").ok());
  Kill();
  Restart();
  ExpectAt(1, 21);
}

TEST_F(ServerLogTest, ASnapshotThatMayBeThereThoughSavingItFailedIsVoid) {
  Restart();
  server_->Change(1, 20);
  ASSERT_TRUE(server_->WaitDurable(1));
  env_.FailFolderSyncs(1);
  // Not when it fails, and not when its end is written.
  env_.FailDeletions(2);
  EXPECT_FALSE(server_->Install(1, 1000).ok());
  EXPECT_FALSE(env_.List("/data/snapshots")->empty());
  // Where this replica goes on is elsewhere than where that snapshot's has gone.
  server_->Change(1, 1);
  ASSERT_TRUE(server_->WaitDurable(1));
  Kill();
  Restart();
  ExpectAt(1, 21);
}

// --- Everything at random, with losses of power.

TEST_F(ServerLogTest, NothingReportedDurableIsMissingAfterLossesOfPower) {
  const char* const one = std::getenv("PAWL_SEED");
  const char* const many = std::getenv("PAWL_SEEDS");
  const uint64_t first = one == nullptr ? 1 : std::strtoull(one, nullptr, 10);
  const uint64_t count = many != nullptr ? std::strtoull(many, nullptr, 10) : one == nullptr ? 30 : 1;
  for (uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("PAWL_SEED=", seed));
    std::mt19937_64 random(seed);
    FaultEnv env(random());
    std::map<uint32_t, uint64_t> durable;
    for (int life = 0; life < 5 && !HasFailure(); ++life) {
      env.RestorePower();
      env.FailSyncs(0);
      ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
      options.log_bytes = 20'000 + random() % 50'000;
      options.log.segment_bytes = 2000 + random() % 20'000;
      options.log.max_group_bytes = 1 + random() % 5000;
      options.start_timeout = std::chrono::milliseconds(10);
      ServerLogHarness server(env, options, FSYNC);
      if (life > 0) env.CutPowerAfter(static_cast<int64_t>(random() % 400));
      const absl::Status status = server.Open();
      std::set<uint32_t> gone;
      if (status.ok()) {
        for (uint32_t p = 0; p < kHarnessPartitions; ++p) {
          if (!server.Has(p)) {
            EXPECT_EQ(durable[p], 0u) << p;
            continue;
          }
          EXPECT_GE(server.index(p), durable[p]) << p;
          EXPECT_EQ(server.fingerprint(p), ServerLogHarness::FingerprintAt(p, server.index(p))) << p;
        }
        for (int i = 0; i < 60 && !absl::IsUnavailable(env.List("/").status()); ++i) {
          const auto p = static_cast<uint32_t>(random() % kHarnessPartitions);
          if (random() % 10 == 0) {
            durable[p] = 0;
            server.Drop(p);
            gone.insert(p);
          }
          if (random() % 10 == 0) {
            const uint64_t index = random() % 300;
            durable[p] = 0;
            if (server.Install(p, index).ok()) {
              durable[p] = index;
              gone.erase(p);
            } else {
              gone.insert(p);
            }
          }
          // A replica that waits for its snapshot.
          if (gone.contains(p)) continue;
          server.Change(p, static_cast<int>(random() % 20) + 1);
          if (random() % 4 == 0) server.WaitDurable(p, std::chrono::milliseconds(20));
          if (random() % 20 == 0) env.FailSyncs(static_cast<int>(random() % 3));
          for (uint32_t q = 0; q < kHarnessPartitions; ++q) {
            if (server.Has(q) && !gone.contains(q)) durable[q] = std::max(durable[q], server.durable(q));
          }
        }
        EXPECT_EQ(server.wrong_reports(), 0u);
      } else {
        EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      }
      env.CutPower();
    }
  }
}

}  // namespace
}  // namespace pawl
