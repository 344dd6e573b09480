// Durable data survives the deaths of real processes.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/failpoint_control.h"
#include "server/storage/testing/server_log_fixture.h"

namespace pawl {
namespace {

class KilledServerTest : public testing::TestWithParam<Durability> {};

INSTANTIATE_TEST_SUITE_P(Durabilities, KilledServerTest, testing::Values(LOG, FSYNC),
                         [](const auto& info) { return Durability_Name(info.param); });

// Opens, checks the recovered data, makes changes, records what is durable, and dies abruptly.
[[noreturn]] void LiveAndDie(const ServerLogOptions& options, Durability durability,
                             uint64_t incarnation, uint64_t rounds) {
  ServerLogHarness server(Env::Real(), options, durability);
  const absl::Status status = server.Open();
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }
  for (int i = 0; i < 300 || server.log().compaction_rounds() < rounds; ++i) {
    server.Change(i % kHarnessPartitions, 1 + i % 3);
    // No faster than the log, or everything becomes one long group.
    if (i % 50 == 0 && !server.WaitAllDurable()) std::exit(2);
  }
  if (!server.WaitAllDurable()) std::exit(2);
  const std::string notes = JoinPath(options.data_folder, absl::StrCat("notes-", incarnation));
  {
    std::ofstream file(notes);
    for (uint32_t p = 0; p < kHarnessPartitions; ++p)
      file << server.index(p) << ' ' << server.fingerprint(p) << '\n';
  }
  // These may be lost.
  server.Change(0, 20);
  raise(SIGKILL);
  std::abort();
}

// The number of snapshot rounds in each incarnation.
void ExpectNothingLostInLives(const ServerLogOptions& options, Durability durability,
                              uint64_t rounds) {
  std::map<uint32_t, uint64_t> indices;
  for (uint64_t incarnation = 0; incarnation < 4; ++incarnation) {
    ASSERT_EXIT(LiveAndDie(options, durability, incarnation, rounds),
                testing::KilledBySignal(SIGKILL), "");
    ServerLogHarness server(Env::Real(), options, durability);
    ASSERT_TRUE(server.Open().ok());
    std::ifstream notes(JoinPath(options.data_folder, absl::StrCat("notes-", incarnation)));
    for (uint32_t p = 0; p < kHarnessPartitions; ++p) {
      uint64_t index = 0;
      uint64_t fingerprint = 0;
      notes >> index >> fingerprint;
      ASSERT_TRUE(server.Has(p));
      ASSERT_GT(index, indices[p]) << "the recovered state was continued";
      indices[p] = index;
      EXPECT_GE(server.index(p), index);
      if (p > 0) {
        EXPECT_EQ(server.index(p), index);
        EXPECT_EQ(server.fingerprint(p), fingerprint);
      }
      EXPECT_EQ(server.fingerprint(p), ServerLogHarness::FingerprintAt(p, server.index(p)));
    }
    // Stops in an orderly way, so that the next incarnation sees that too.
  }
}

TEST_P(KilledServerTest, RestartsWithEverythingDurable) {
  ServerLogOptions options = ServerLogHarness::QuickOptions(NewFolder("killed"));
  options.log_bytes = 1 << 30;
  ExpectNothingLostInLives(options, GetParam(), 0);
  EXPECT_TRUE(Env::Real().List(JoinPath(options.data_folder, "snapshots"))->empty());
}

TEST_P(KilledServerTest, RestartsFromSnapshotsAndTheLog) {
  ServerLogOptions options = ServerLogHarness::QuickOptions(NewFolder("killed"));
  options.log_bytes = 50'000;
  ExpectNothingLostInLives(options, GetParam(), 2);
  EXPECT_FALSE(Env::Real().FileSize(JoinPath(options.data_folder, "log/0000000001.log")).ok());
}

// What a process does until it dies at a failpoint: changes, rounds of snapshots, a replica that is
// dropped and returns. After each wait it records up to where the first three partitions are
// durable.
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
                         testing::Values("log.write", "log.written", "log.sync", "log.synced",
                                         "log.segment_rename", "log.segment_renamed", "log.delete",
                                         "log.deleted", "snapshot.written", "snapshot.rename",
                                         "snapshot.renamed", "snapshot.stored"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST_P(FailpointDeathTest, NothingDurableIsLostByDeathsThere) {
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

}  // namespace
}  // namespace pawl
