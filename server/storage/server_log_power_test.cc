// Durable data survives power losses, full disks and failing disks.
#include <algorithm>
#include <map>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/fault_env.h"
#include "server/storage/testing/server_log_fixture.h"

namespace pawl {
namespace {

TEST_F(ServerLogTest, PowerLossDuringDeletionLeavesOldOrNewJob) {
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

TEST_F(ServerLogTest, FullDiskRefusesChangesUntilSpaceIsBack) {
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

TEST_F(ServerLogTest, SnapshotOfAnyIndexReplacesAReplica) {
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

TEST_F(ServerLogTest, FailedSnapshotLeavesTheLogUnchanged) {
  Restart();
  server_->Change(1, 20);
  ASSERT_TRUE(server_->WaitDurable(1));
  for (const uint64_t index : {10, 40}) {
    env_.SetCapacity(env_.UsedBytes());
    EXPECT_FALSE(server_->Install(1, index).ok());
    env_.SetUnlimited();
    // Even if it may be on the disk.
    env_.FailFolderSyncs(1);
    env_.FailDeletions(1);
    EXPECT_FALSE(server_->Install(1, index).ok());
  }
  EXPECT_FALSE(env_.List("/data/snapshots")->empty());
  server_->Change(1, 1);
  ASSERT_TRUE(server_->WaitDurable(1)) << "the log continues where it was";
  Kill();
  Restart();
  ExpectAt(1, 21);
  EXPECT_TRUE(env_.List("/data/snapshots")->empty());
}

TEST_F(ServerLogTest, DurableChangesSurvivePowerLosses) {
  const char* const one = std::getenv("PAWL_SEED");
  const char* const many = std::getenv("PAWL_SEEDS");
  const uint64_t first = one == nullptr ? 1 : std::strtoull(one, nullptr, 10);
  const uint64_t count = many != nullptr  ? std::strtoull(many, nullptr, 10)
                         : one == nullptr ? 30
                                          : 1;
  for (uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("PAWL_SEED=", seed));
    std::mt19937_64 random(seed);
    FaultEnv env(random());
    std::map<uint32_t, uint64_t> durable;
    for (int incarnation = 0; incarnation < 5 && !HasFailure(); ++incarnation) {
      env.RestorePower();
      env.FailSyncs(0);
      ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
      options.log_bytes = 20'000 + random() % 50'000;
      options.log.segment_bytes = 2000 + random() % 20'000;
      options.log.max_group_bytes = 1 + random() % 5000;
      options.disk_timeout = std::chrono::milliseconds(10);
      ServerLogHarness server(env, options, FSYNC);
      if (incarnation > 0) env.CutPowerAfter(static_cast<int64_t>(random() % 400));
      const absl::Status status = server.Open();
      if (status.ok()) {
        for (uint32_t p = 0; p < kHarnessPartitions; ++p) {
          if (!server.Has(p)) {
            EXPECT_EQ(durable[p], 0u) << p;
            continue;
          }
          EXPECT_GE(server.index(p), durable[p]) << p;
          EXPECT_EQ(server.fingerprint(p), ServerLogHarness::FingerprintAt(p, server.index(p)))
              << p;
        }
        for (int i = 0; i < 60 && !absl::IsUnavailable(env.List("/").status()); ++i) {
          const auto p = static_cast<uint32_t>(random() % kHarnessPartitions);
          if (random() % 10 == 0) {
            durable[p] = 0;
            server.Drop(p);
          }
          if (random() % 10 == 0) {
            // Until it is durable either one may be recovered.
            if (server.Install(p, random() % 300).ok()) durable[p] = 0;
          }
          if (random() % 10 == 0 && server.Has(p)) {
            const uint64_t index = random() % (server.index(p) + 1);
            if (server.GoBack(p, index).ok()) durable[p] = std::min(durable[p], index);
          }
          server.Change(p, static_cast<int>(random() % 20) + 1);
          if (random() % 4 == 0) server.WaitDurable(p, std::chrono::milliseconds(20));
          if (random() % 20 == 0) env.FailSyncs(static_cast<int>(random() % 3));
          for (uint32_t q = 0; q < kHarnessPartitions; ++q) {
            if (server.Has(q)) durable[q] = std::max(durable[q], server.durable(q));
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
