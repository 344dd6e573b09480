// Damaged files of a server are refused by name, or harmless.
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/fault_env.h"
#include "client_lib/base/testing/forwarding_env.h"
#include "server/storage/testing/server_log_fixture.h"

namespace pawl {
namespace {

TEST_F(ServerLogTest, RecordThatDoesNotApplyIsNamed) {
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

struct DamagedStart {
  FaultEnv env{1};
  std::unique_ptr<ServerLog> log;
};

// The files of a few incarnations with snapshots, and their contents.
class DamagedFilesTest : public ServerLogTest {
 protected:
  void SetUp() override {
    ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
    options.log_bytes = 8000;
    options.log.segment_bytes = 3000;
    Restart(options);
    // Until the start of the log is deleted, and records follow the snapshots.
    while (server_->log().compaction_rounds() < 3 || env_.FileSize("/data/log/0000000001.log").ok())
      Step();
    Restart();
    Step();
    for (uint32_t p = 0; p < 2; ++p) indices_.push_back(server_->index(p));
    server_ = nullptr;
    for (const char* folder : {"/data", "/data/log", "/data/snapshots"}) {
      const auto names = env_.List(folder);
      for (const std::string& name : *names) {
        if (name == "LOCK") continue;
        const std::string path = JoinPath(folder, name);
        if (env_.List(path).ok()) continue;  // A folder.
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
  // Starts with one file changed or missing.
  Outcome RecoverWith(const std::string& path, const std::optional<std::string>& contents) {
    FaultEnv env(1);
    for (const char* folder : {"/data", "/data/log", "/data/snapshots"})
      EXPECT_TRUE(env.MakeFolder(folder).ok());
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
      EXPECT_EQ(Fingerprint(*partition),
                ServerLogHarness::FingerprintAt(partition->index(), partition->log_index()));
    }
    return outcome;
  }
  // Opens the folder with a flipped bit in the middle of one file.
  void OpenWithDamaged(const std::string& path, DamagedStart& start) {
    for (const char* folder : {"/data", "/data/log", "/data/snapshots"})
      ASSERT_TRUE(start.env.MakeFolder(folder).ok());
    for (auto [name, bytes] : files_) {
      if (name == path) bytes[bytes.size() / 2] ^= 1;
      start.env.SetContents(name, bytes);
    }
    for (const char* folder : {"/", "/data", "/data/log", "/data/snapshots"})
      ASSERT_TRUE(start.env.SyncFolder(folder).ok());
    auto log = ServerLog::Open(start.env, ServerLogHarness::QuickOptions("/data"));
    ASSERT_TRUE(log.ok()) << log.status();
    start.log = *std::move(log);
  }
  struct RecoveredIndices {
    absl::Status status;
    std::map<uint32_t, uint64_t> indices;
  };
  static RecoveredIndices RecoverAll(Env& env) {
    RecoveredIndices found;
    auto log = ServerLog::Open(env, ServerLogHarness::QuickOptions("/data"));
    found.status = log.status();
    if (!log.ok()) return found;
    auto partitions = (*log)->Recover(HarnessPartitionOptions());
    found.status = partitions.status();
    if (!partitions.ok()) return found;
    for (const auto& partition : *partitions)
      found.indices[partition->index()] = partition->log_index();
    return found;
  }
  void ExpectNamed(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "/data/")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "offset") ||
                absl::StrContains(status.message(), "missing"))
        << status;
  }

  std::vector<uint64_t> indices_;
  std::map<std::string, std::string> files_;
};

TEST_F(DamagedFilesTest, FlippedByteIsRefusedByNameOrHarmless) {
  EXPECT_EQ(RecoverWith("", std::nullopt).indices, indices_);
  int refused = 0, harmless = 0;
  for (const auto& [path, contents] : files_) {
    // Every byte of the log; some bytes of the snapshots, whose format has its own tests.
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

TEST_F(DamagedFilesTest, TruncatedOrMissingFileIsRefusedByName) {
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
        // The rest is a whole prefix: it cannot be distinguished from a log whose later records
        // were never written.
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

TEST_F(DamagedFilesTest, FilesSetAsideAreKeptAndTheLogIsEmpty) {
  const std::string oldest = files_.lower_bound("/data/log/")->first;
  DamagedStart start;
  OpenWithDamaged(oldest, start);
  ASSERT_TRUE(absl::IsDataLoss(start.log->Recover(HarnessPartitionOptions()).status()));
  const absl::Status aside = start.log->SetDamagedFilesAside();
  ASSERT_TRUE(aside.ok()) << aside;
  EXPECT_EQ(start.log->scrub_figures().damaged, 1u);
  for (const auto& [path, contents] : files_) {
    if (path == oldest || path == "/data/node") continue;
    EXPECT_EQ(start.env.Contents("/data/damaged" + path.substr(5)), contents) << path;
  }
  start.log = nullptr;
  const RecoveredIndices found = RecoverAll(start.env);
  ASSERT_TRUE(found.status.ok()) << found.status;
  EXPECT_TRUE(found.indices.empty());
}

TEST_F(DamagedFilesTest, FilesAreSetAsideOnlyOnce) {
  DamagedStart start;
  OpenWithDamaged(files_.lower_bound("/data/log/")->first, start);
  ASSERT_TRUE(start.env.MakeFolder("/data/damaged").ok());
  const absl::Status refused = start.log->Recover(HarnessPartitionOptions()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "/data/damaged already has")) << refused;
}

// Otherwise the server would claim to have every acknowledged change.
TEST_F(DamagedFilesTest, PowerLossWhileFilesAreSetAsideLeavesNoEarlierState) {
  const std::string oldest = files_.lower_bound("/data/log/")->first;
  int64_t operations = 0;
  for (bool finished = false; !finished && !HasFailure();) {
    SCOPED_TRACE(absl::StrCat("power cut after ", ++operations, " operations"));
    DamagedStart start;
    OpenWithDamaged(oldest, start);
    ASSERT_TRUE(absl::IsDataLoss(start.log->Recover(HarnessPartitionOptions()).status()));
    start.env.CutPowerAfter(operations);
    finished = start.log->SetDamagedFilesAside().ok();
    start.log = nullptr;
    start.env.CutPower();
    start.env.RestorePower();
    RecoveredIndices found = RecoverAll(start.env);
    // The last operation may have taken effect although it failed.
    if (!finished && !found.status.ok()) {
      // The next start continues.
      EXPECT_TRUE(absl::IsDataLoss(found.status)) << found.status;
      start.log = *ServerLog::Open(start.env, ServerLogHarness::QuickOptions("/data"));
      ASSERT_TRUE(absl::IsDataLoss(start.log->Recover(HarnessPartitionOptions()).status()));
      const absl::Status aside = start.log->SetDamagedFilesAside();
      ASSERT_TRUE(aside.ok()) << aside;
      start.log = nullptr;
      found = RecoverAll(start.env);
    }
    ASSERT_TRUE(found.status.ok()) << found.status;
    EXPECT_TRUE(found.indices.empty());
    for (const auto& [path, contents] : files_) {
      if (path == oldest || path == "/data/node") continue;
      EXPECT_EQ(start.env.Contents("/data/damaged" + path.substr(5)), contents) << path;
    }
  }
  EXPECT_GT(operations, 10);
}

class RottingFilesTest : public ServerLogTest {
 protected:
  // Flips a bit of the oldest file that is whole and no longer written to.
  void Damage(const std::string& folder) {
    std::vector<std::string> names = *env_.List(folder);
    std::sort(names.begin(), names.end());
    if (names.size() < 2 || absl::EndsWith(names[0], ".tmp")) return;
    const std::string path = JoinPath(folder, names[0]);
    // The system's cache has a good copy.
    env_.Rot(path, env_.FileSize(path).value_or(0) / 2);
  }
  // Another process deletes the newest file, which may be the segment that is written.
  void DeleteNewest(const std::string& folder) {
    std::vector<std::string> names = *env_.List(folder);
    std::erase_if(names, [](const std::string& name) { return absl::EndsWith(name, ".tmp"); });
    if (names.empty()) return;
    std::sort(names.begin(), names.end());
    env_.Delete(JoinPath(folder, names.back())).IgnoreError();
  }
  void ExpectRepairs(const std::function<void(const std::string& folder)>& harm);
};

// Snapshots and segments are harmed while the server runs.
void RottingFilesTest::ExpectRepairs(const std::function<void(const std::string&)>& harm) {
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  options.log_bytes = 8000;
  options.log.segment_bytes = 3000;
  options.scrub_bytes_per_s = uint64_t{1} << 40;
  options.scrub_pause = std::chrono::milliseconds(1);
  Restart(options);
  const auto step = [&] {
    for (uint32_t p = 0; p < 2; ++p) {
      server_->Change(p, 3);
      ASSERT_TRUE(server_->WaitDurable(p));
    }
  };
  while (server_->log().compaction_rounds() < 3) step();
  EXPECT_EQ(server_->log().scrub_figures().damaged, 0u);
  for (const std::string folder :
       {"/data/snapshots", "/data/log", "/data/snapshots", "/data/log"}) {
    SCOPED_TRACE(folder);
    const uint64_t before = server_->log().scrub_figures().damaged;
    // The damaged file may have become superfluous at the same moment, and is not read then: damage
    // another one.
    ASSERT_TRUE(Eventually([&] {
      step();
      const DurableLog::ScrubFigures figures = server_->log().scrub_figures();
      if (figures.damaged == before) harm(folder);
      return figures.damaged > before && figures.repaired == figures.damaged;
    }));
  }
  // The disk has everything again.
  const std::vector<uint64_t> indices = {server_->index(0), server_->index(1)};
  Restart(options);
  for (uint32_t p = 0; p < 2; ++p) {
    EXPECT_EQ(server_->index(p), indices[p]);
    EXPECT_EQ(server_->fingerprint(p), ServerLogHarness::FingerprintAt(p, indices[p]));
  }
  EXPECT_EQ(server_->log().scrub_figures().damaged, 0u);
}

TEST_F(RottingFilesTest, RottenFileIsFoundAndReplacedFromMemory) {
  ExpectRepairs([this](const std::string& folder) { Damage(folder); });
}

// Without a name, a segment still takes records, and syncs them.
TEST_F(RottingFilesTest, DeletedFileIsFoundAndReplacedFromMemory) {
  ExpectRepairs([this](const std::string& folder) { DeleteNewest(folder); });
}

class DropCountingEnv final : public ForwardingEnv {
 public:
  using ForwardingEnv::ForwardingEnv;
  void DropCached(const std::string& path) override {
    ForwardingEnv::DropCached(path);
    ++drops;
  }
  std::atomic<int> drops = 0;
};

// The cache has the only copy of its records.
TEST_F(RottingFilesTest, SegmentWhoseSyncFailedStaysInTheCache) {
  DropCountingEnv counting(env_);
  ServerLogOptions options = ServerLogHarness::QuickOptions("/data");
  options.log_bytes = 1 << 20;
  options.log.segment_bytes = 1000;
  options.scrub_bytes_per_s = uint64_t{1} << 40;
  options.scrub_pause = std::chrono::milliseconds(1);
  auto server = std::make_unique<ServerLogHarness>(counting, options, LOG);
  ASSERT_TRUE(server->Open().ok());
  const auto step = [&] {
    server->Change(1, 3);
    EXPECT_TRUE(server->WaitDurable(1));
  };
  while (server->log().figures().segments < 3) step();
  env_.FailSyncs(1);
  while (server->log().figures().failures == 0) step();
  for (int i = 0; i < 5; ++i) step();
  // Two passes over all files.
  const int before = counting.drops;
  const int files = static_cast<int>(server->log().figures().segments) + 1;
  ASSERT_TRUE(Eventually([&] { return counting.drops > before + 4 * files; }));
  EXPECT_EQ(server->log().scrub_figures().damaged, 0u);
  const uint64_t index = server->index(1);
  env_.KillProcesses();
  server = std::make_unique<ServerLogHarness>(counting, options, LOG);
  ASSERT_TRUE(server->Open().ok());
  EXPECT_EQ(server->index(1), index);
}

}  // namespace
}  // namespace pawl
