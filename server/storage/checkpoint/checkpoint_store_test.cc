#include "server/storage/checkpoint/checkpoint_store.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/env.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/fault_env.h"
#include "client_lib/base/testing/forwarding_env.h"
#include "gtest/gtest.h"
#include "server/storage/testing/worked_bytes.h"
#include "spdlog/sinks/ringbuffer_sink.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

constexpr uint32_t kPartitions = 3;

// Files that other processes use too. With `denies` the parts cannot be read, and with
// `hides_sizes` not even their sizes; `renamed` is called after each renaming.
class SharedEnv final : public ForwardingEnv {
 public:
  using ForwardingEnv::ForwardingEnv;

  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    if (failed_reads > 0) {
      --failed_reads;
      return error;
    }
    if (denies && absl::EndsWith(path, ".part"))
      return absl::PermissionDeniedError(absl::StrCat("open ", path));
    return ForwardingEnv::OpenForRead(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    absl::Status status = ForwardingEnv::Rename(from, to);
    if (renamed != nullptr) renamed(to);
    return status;
  }
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override {
    if (path == unknown) return absl::UnavailableError("stale file handle");
    if (hides_sizes && absl::EndsWith(path, ".part"))
      return absl::PermissionDeniedError(absl::StrCat("stat ", path));
    return ForwardingEnv::FileSize(path);
  }

  // The next reads fail with `error`.
  int failed_reads = 0;
  absl::Status error;
  // The size of this file cannot be told.
  std::string unknown;
  bool denies = false;
  bool hides_sizes = false;
  std::function<void(const std::string& to)> renamed;
};

class CheckpointStoreTest : public testing::Test {
 protected:
  static CheckpointId Id(uint64_t step, uint64_t job_id = 77) { return {job_id, "job", step}; }
  static std::string Name(uint64_t step) { return CheckpointStore::NameOf("job", step); }
  static std::string Path(uint64_t step, absl::string_view file) {
    return absl::StrCat("/checkpoints/", Name(step), "/", file);
  }

  CheckpointManifest WriteParts(uint64_t step, uint64_t job_id = 77) {
    CheckpointManifest manifest;
    manifest.set_job_id(job_id);
    manifest.set_job_name("job");
    manifest.set_step(step);
    manifest.set_job("the job");
    manifest.set_scheduler_state("where it was");
    for (uint32_t p = 0; p < kPartitions; ++p) {
      std::unique_ptr<CheckpointPartWriter> writer =
          store_.BeginPart(Id(step, job_id), p, 100 + p).value();
      EXPECT_TRUE(writer->Append(absl::StrCat("partition ", p, " at step ", step)).ok());
      *manifest.add_parts() = writer->Commit().value();
    }
    return manifest;
  }
  void Write(uint64_t step) {
    const absl::Status status = store_.WriteManifest(WriteParts(step));
    ASSERT_TRUE(status.ok()) << status;
  }
  std::vector<uint64_t> Steps() {
    std::vector<uint64_t> steps;
    const CheckpointListing listing = store_.List("job").value();
    for (const CheckpointListing::Entry& entry : listing.complete)
      steps.push_back(entry.manifest.step());
    return steps;
  }
  void ExpectDamaged(uint64_t step, const std::string& path, absl::string_view offered) {
    const absl::Status status = store_.Verify(Name(step));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat(path, " is damaged at offset ")))
        << status;
    EXPECT_TRUE(absl::StrContains(status.message(), offered)) << status;
  }

  FaultEnv env_{1};
  CheckpointStore store_{env_, "/checkpoints"};
};

TEST_F(CheckpointStoreTest, CheckpointIsListedVerifiedAndReadBack) {
  EXPECT_TRUE(store_.List("")->complete.empty()) << "the folder does not exist yet";
  for (const uint64_t step : {5, 100, 30}) Write(step);
  EXPECT_EQ(Steps(), (std::vector<uint64_t>{100, 30, 5}));
  EXPECT_TRUE(store_.List("another")->complete.empty());
  EXPECT_EQ(store_.List("")->complete.size(), 3u);
  EXPECT_EQ(Name(30), "job-step-00000000000000000030");
  const CheckpointManifest manifest = store_.ReadManifest(Name(30)).value();
  EXPECT_EQ(manifest.job_id(), 77u);
  EXPECT_EQ(manifest.scheduler_state(), "where it was");
  EXPECT_EQ(manifest.parts(2).log_index(), 102u);
  EXPECT_TRUE(store_.Verify(Name(30)).ok());
  std::unique_ptr<BlockFileReader> reader = store_.OpenPart(manifest, 2).value();
  EXPECT_EQ(reader->NextBlock().value(), "partition 2 at step 30");
  EXPECT_EQ(reader->NextBlock().value(), "");
  EXPECT_EQ(store_.OpenPart(manifest, 3).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(store_.Verify(Name(31)).code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointStoreTest, VerificationReportsProgress) {
  Write(5);
  VerifyProgress progress;
  ASSERT_TRUE(store_.Verify(Name(5), &progress).ok());
  EXPECT_EQ(progress.parts, kPartitions);
  EXPECT_EQ(progress.parts_done, kPartitions);
  EXPECT_GT(progress.bytes, 0u);
  EXPECT_EQ(progress.bytes_done, progress.bytes);
}

// An open of a part succeeds once two parts are being opened at the same time.
class TwoAtOnceEnv final : public ForwardingEnv {
 public:
  using ForwardingEnv::ForwardingEnv;
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    if (absl::EndsWith(path, ".part")) {
      ++opening_;
      if (!Eventually([this] { return opening_ >= 2; }))
        return absl::DeadlineExceededError("only one part is read at a time");
    }
    return ForwardingEnv::OpenForRead(path);
  }

 private:
  std::atomic<int> opening_ = 0;
};

TEST_F(CheckpointStoreTest, PartsAreVerifiedInParallel) {
  Write(5);
  TwoAtOnceEnv env(env_);
  const absl::Status verified = CheckpointStore(env, "/checkpoints").Verify(Name(5));
  EXPECT_TRUE(verified.ok()) << verified;
}

TEST_F(CheckpointStoreTest, IdsAreListedNewestFirstWithoutReadingFiles) {
  EXPECT_TRUE(store_.ListIds("job")->empty()) << "the folder does not exist yet";
  for (const uint64_t step : {5, 100, 30}) Write(step);
  WriteParts(40);
  env_.SetContents(Path(100, "MANIFEST"), "damaged");
  std::vector<uint64_t> steps;
  const std::vector<CheckpointId> ids = store_.ListIds("job").value();
  for (const CheckpointId& id : ids) {
    steps.push_back(id.step);
    EXPECT_EQ(id.job_name, "job");
  }
  EXPECT_EQ(steps, (std::vector<uint64_t>{100, 40, 30, 5}));
  EXPECT_TRUE(store_.ListIds("another")->empty());
}

TEST_F(CheckpointStoreTest, VerificationOfAPartCanBeInterrupted) {
  Write(5);
  const CheckpointManifest manifest = store_.ReadManifest(Name(5)).value();
  int asked = 0;
  EXPECT_TRUE(store_.VerifyPart(manifest, manifest.parts(1), [&] { return ++asked > 0; }).ok());
  EXPECT_EQ(asked, 2) << "before its only block, and before its end";
  EXPECT_EQ(store_.VerifyPart(manifest, manifest.parts(1), [&] { return --asked > 0; }).code(),
            absl::StatusCode::kCancelled);
}

TEST_F(CheckpointStoreTest, ManifestMakesTheCheckpointDurable) {
  const CheckpointManifest manifest = WriteParts(5);
  EXPECT_TRUE(Steps().empty());
  ASSERT_TRUE(store_.WriteManifest(manifest).ok());
  env_.CutPower();
  env_.RestorePower();
  EXPECT_EQ(Steps(), (std::vector<uint64_t>{5}));
  EXPECT_TRUE(store_.Verify(Name(5)).ok());
}

TEST_F(CheckpointStoreTest, PowerLossLeavesAWholeCheckpointOrNone) {
  for (int64_t operations = 0; operations < 60; ++operations) {
    SCOPED_TRACE(operations);
    FaultEnv env(static_cast<uint64_t>(operations));
    CheckpointStore store(env, "/checkpoints");
    env.CutPowerAfter(operations);
    CheckpointManifest manifest;
    manifest.set_job_id(77);
    manifest.set_job_name("job");
    manifest.set_step(9);
    bool good = true;
    for (uint32_t p = 0; p < kPartitions && good; ++p) {
      auto writer = store.BeginPart(Id(9), p, p);
      good = writer.ok() && (*writer)->Append(std::string(2000, 'x')).ok();
      if (!good) break;
      auto part = (*writer)->Commit();
      good = part.ok();
      if (good) *manifest.add_parts() = *part;
    }
    good = good && store.WriteManifest(manifest).ok();
    env.CutPower();
    env.RestorePower();
    const CheckpointListing listing = store.List("job").value();
    EXPECT_TRUE(listing.damaged.empty());
    EXPECT_GE(listing.complete.size(), good ? 1u : 0u);
    for (const auto& entry : listing.complete) EXPECT_TRUE(store.Verify(entry.name).ok());
  }
}

TEST_F(CheckpointStoreTest, FlippedByteIsDetectedAndPreviousCheckpointOffered) {
  Write(5);
  Write(9);
  for (const char* file : {"MANIFEST", "p1.part"}) {
    const std::string path = Path(9, file);
    const std::string contents = env_.Contents(path);
    for (size_t i = 0; i < contents.size(); ++i) {
      std::string flipped = contents;
      flipped[i] ^= 0x20;
      env_.SetContents(path, flipped);
      ExpectDamaged(9, path, absl::StrCat("the checkpoint before it, ", Name(5), ", is whole"));
    }
    for (size_t size = 0; size < contents.size(); size += 3) {
      env_.SetContents(path, contents.substr(0, size));
      ExpectDamaged(9, path, Name(5));
    }
    env_.SetContents(path, contents);
  }
  EXPECT_TRUE(store_.Verify(Name(9)).ok());
}

TEST_F(CheckpointStoreTest, DamagedManifestIsReportedSeparately) {
  Write(5);
  Write(9);
  std::string contents = env_.Contents(Path(9, "MANIFEST"));
  contents[20] ^= 1;
  env_.SetContents(Path(9, "MANIFEST"), contents);
  EXPECT_EQ(Steps(), (std::vector<uint64_t>{5}));
  ASSERT_EQ(store_.List("job")->damaged.size(), 1u);
  EXPECT_TRUE(absl::StrContains(store_.List("job")->damaged[0].message(), Path(9, "MANIFEST")));
}

TEST_F(CheckpointStoreTest, OfferedCheckpointIsWhole) {
  for (const uint64_t step : {1, 2, 3}) Write(step);
  for (const uint64_t step : {2, 3}) {
    std::string contents = env_.Contents(Path(step, "p0.part"));
    contents[60] ^= 1;
    env_.SetContents(Path(step, "p0.part"), contents);
  }
  ExpectDamaged(3, Path(3, "p0.part"), Name(1));
  ExpectDamaged(2, Path(2, "p0.part"), Name(1));
  ASSERT_TRUE(env_.Delete(Path(1, "p0.part")).ok());
  ExpectDamaged(1, Path(1, "p0.part"), "no checkpoint before it");
}

TEST_F(CheckpointStoreTest, PartsOfAnotherStepPartitionOrJobAreDetected) {
  Write(5);
  Write(9);
  const std::string good = env_.Contents(Path(9, "p1.part"));
  env_.SetContents(Path(9, "p1.part"), env_.Contents(Path(5, "p1.part")));
  ExpectDamaged(9, Path(9, "p1.part"), "it belongs to step 5, not to step 9");
  env_.SetContents(Path(9, "p1.part"), env_.Contents(Path(9, "p2.part")));
  ExpectDamaged(9, Path(9, "p1.part"), "it holds partition 2, not 1");
  FaultEnv other_env(2);
  CheckpointStore other(other_env, "/checkpoints");
  auto writer = other.BeginPart(Id(9, 78), 1, 101).value();
  ASSERT_TRUE(writer->Append("partition 1 at step 9").ok());
  ASSERT_TRUE(writer->Commit().ok());
  env_.SetContents(Path(9, "p1.part"), other_env.Contents(Path(9, "p1.part")));
  ExpectDamaged(9, Path(9, "p1.part"), "it belongs to job 78, not to job 77");
  // A whole file with the right name and identity, but not the one in the manifest.
  auto twin = other.BeginPart(Id(9), 1, 101).value();
  ASSERT_TRUE(twin->Append("Partition 1 at step 9").ok());
  ASSERT_TRUE(twin->Commit().ok());
  env_.SetContents(Path(9, "p1.part"), other_env.Contents(Path(9, "p1.part")));
  ExpectDamaged(9, Path(9, "p1.part"), "not the file that the manifest names");
  env_.SetContents(Path(9, "p1.part"), good);
  env_.SetContents(Path(9, "MANIFEST"), env_.Contents(Path(5, "MANIFEST")));
  ExpectDamaged(9, Path(9, "MANIFEST"), absl::StrCat("it is the manifest of ", Name(5)));
}

TEST_F(CheckpointStoreTest, ManifestMustNameEveryPart) {
  const CheckpointManifest good = WriteParts(5);
  CheckpointManifest manifest = good;
  manifest.mutable_parts()->DeleteSubrange(1, 1);
  EXPECT_EQ(store_.WriteManifest(manifest).code(), absl::StatusCode::kInvalidArgument);
  manifest = good;
  manifest.clear_parts();
  EXPECT_EQ(store_.WriteManifest(manifest).code(), absl::StatusCode::kInvalidArgument);
  manifest = good;
  manifest.mutable_parts(1)->set_file("../../elsewhere");
  EXPECT_EQ(store_.WriteManifest(manifest).code(), absl::StatusCode::kInvalidArgument);
  manifest = good;
  manifest.mutable_parts(1)->set_bytes(1);
  EXPECT_EQ(store_.WriteManifest(manifest).code(), absl::StatusCode::kAborted);
  ASSERT_TRUE(env_.Delete(Path(5, "p1.part")).ok());
  EXPECT_EQ(store_.WriteManifest(good).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Steps().empty());
}

// A server that is partitioned from the scheduler may still write a part that its successor has
// written differently.
TEST_F(CheckpointStoreTest, PartOfAnotherHistoryIsRefused) {
  const CheckpointManifest manifest = WriteParts(5);
  struct Other {
    uint64_t job_id;
    uint64_t log_index;
    const char* contents;
  };
  for (const Other& other : {Other{77, 101, "Partition 1 at step 5"},
                             {77, 102, "partition 1 at step 5"},
                             {78, 101, "partition 1 at step 5"},
                             {77, 101, "partition 1 at step 5, and more"}}) {
    auto writer = store_.BeginPart(Id(5, other.job_id), 1, other.log_index).value();
    ASSERT_TRUE(writer->Append(other.contents).ok());
    ASSERT_TRUE(writer->Commit().ok());
    const absl::Status status = store_.WriteManifest(manifest);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), Path(5, "p1.part"))) << status;
  }
  EXPECT_TRUE(Steps().empty());
  EXPECT_TRUE(store_.WriteManifest(WriteParts(5)).ok());
}

TEST_F(CheckpointStoreTest, UnreadablePartsAreComparedBySize) {
  SharedEnv denied(env_);
  denied.denies = true;
  CheckpointStore store(denied, "/checkpoints");
  const CheckpointManifest good = WriteParts(5);
  CheckpointManifest manifest = good;
  manifest.mutable_parts(1)->set_bytes(1);
  EXPECT_EQ(store.WriteManifest(manifest).code(), absl::StatusCode::kAborted);
  denied.hides_sizes = true;
  const absl::Status hidden = store.WriteManifest(good);
  EXPECT_EQ(hidden.code(), absl::StatusCode::kPermissionDenied) << hidden;
  EXPECT_TRUE(absl::StrContains(hidden.message(), "the scheduler must be able to read the parts"))
      << hidden;
  denied.hides_sizes = false;
  const auto lines = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(100);
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", lines));
  const absl::Status written = store.WriteManifest(good);
  spdlog::set_default_logger(before);
  EXPECT_TRUE(written.ok()) << written;
  EXPECT_EQ(Steps(), std::vector<uint64_t>{5});
  const std::vector<std::string> logged = lines->last_formatted();
  ASSERT_EQ(logged.size(), 1u) << "once for all parts";
  EXPECT_TRUE(absl::StrContains(
      logged[0], absl::StrCat("only the sizes of 3 parts of ", Name(5), " were compared")))
      << logged[0];
}

// The server has seen no manifest, and renames its part when there is one.
TEST_F(CheckpointStoreTest, ReplacedPartWithdrawsTheManifest) {
  Write(3);
  const CheckpointManifest manifest = WriteParts(5);
  SharedEnv shared(env_);
  CheckpointStore store(shared, "/checkpoints");
  auto late = store_.BeginPart(Id(5), 1, 999).value();
  ASSERT_TRUE(late->Append("of another history").ok());
  ASSERT_TRUE(late->Commit().ok());
  const std::string of_another = env_.Contents(Path(5, "p1.part"));
  auto again = store_.BeginPart(Id(5), 1, 101).value();
  ASSERT_TRUE(again->Append("partition 1 at step 5").ok());
  ASSERT_TRUE(again->Commit().ok());
  shared.renamed = [&](const std::string& to) {
    if (to == Path(5, "MANIFEST")) env_.SetContents(Path(5, "p1.part"), of_another);
  };
  const absl::Status status = store.WriteManifest(manifest);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), Path(5, "p1.part"))) << status;
  env_.CutPower();
  env_.RestorePower();
  EXPECT_EQ(store_.ReadManifest(Name(5)).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Steps(), std::vector<uint64_t>{3});
  EXPECT_TRUE(store_.Verify(Name(3)).ok());
  shared.renamed = nullptr;
  EXPECT_TRUE(store.WriteManifest(WriteParts(5)).ok()) << "it can be retried";
}

TEST_F(CheckpointStoreTest, MissingPartWithdrawsTheManifest) {
  const CheckpointManifest manifest = WriteParts(5);
  SharedEnv shared(env_);
  CheckpointStore store(shared, "/checkpoints");
  shared.renamed = [&](const std::string& to) {
    if (to == Path(5, "MANIFEST")) env_.Delete(Path(5, "p1.part")).IgnoreError();
  };
  const absl::Status status = store.WriteManifest(manifest);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_TRUE(Steps().empty());
}

// The checkpoint may be whole, and the only one.
TEST_F(CheckpointStoreTest, TransientErrorWithdrawsNoManifest) {
  Write(5);
  const CheckpointManifest manifest = store_.ReadManifest(Name(5)).value();
  SharedEnv shared(env_);
  CheckpointStore store(shared, "/checkpoints");
  shared.failed_reads = 1;
  shared.error = absl::DataLossError("input/output error");
  EXPECT_TRUE(store.CheckComplete(manifest).ok());
  shared.failed_reads = 1;
  shared.error = absl::ResourceExhaustedError("too many open files");
  EXPECT_EQ(store.CheckComplete(manifest), shared.error);
  EXPECT_TRUE(store_.Verify(Name(5)).ok());
}

TEST_F(CheckpointStoreTest, CheckCompletesWhatAnotherProcessLeftUnsynced) {
  const CheckpointManifest manifest = WriteParts(5);
  SharedEnv shared(env_);
  CheckpointStore store(shared, "/checkpoints");
  shared.renamed = [&](const std::string&) { env_.FailFolderSyncs(1); };
  EXPECT_FALSE(store.WriteManifest(manifest).ok());
  EXPECT_TRUE(store_.CheckComplete(manifest).ok());
  env_.CutPower();
  env_.RestorePower();
  EXPECT_EQ(Steps(), std::vector<uint64_t>{5});
}

TEST_F(CheckpointStoreTest, TransientErrorDoesNotMakeAManifestDamaged) {
  for (const uint64_t step : {5, 6}) Write(step);
  SharedEnv shared(env_);
  CheckpointStore store(shared, "/checkpoints");
  shared.failed_reads = 1;
  shared.error = absl::DataLossError("input/output error");
  EXPECT_TRUE(store.DeleteOld("job", 2).ok());
  shared.failed_reads = 1;
  shared.error = absl::ResourceExhaustedError("too many open files");
  EXPECT_EQ(store.DeleteOld("job", 2), shared.error);
  EXPECT_EQ(Steps(), (std::vector<uint64_t>{6, 5}));
}

TEST_F(CheckpointStoreTest, ErrorDoesNotHideTheNewestCheckpoint) {
  for (const uint64_t step : {5, 6}) Write(step);
  SharedEnv shared(env_);
  shared.unknown = Path(6, "MANIFEST");
  EXPECT_EQ(CheckpointStore::Locate(shared, "/checkpoints", "job").status().code(),
            absl::StatusCode::kUnavailable);
}

// Whether or not the manifest was withdrawn, the checkpoint must not be taken for whole.
TEST_F(CheckpointStoreTest, FailedWithdrawalOfAManifestIsAnError) {
  const CheckpointManifest manifest = WriteParts(5);
  SharedEnv shared(env_);
  CheckpointStore store(shared, "/checkpoints");
  shared.renamed = [&](const std::string& to) {
    if (to != Path(5, "MANIFEST")) return;
    env_.SetContents(Path(5, "p1.part"), "of another history");
    env_.FailDeletions(1);
  };
  const absl::Status status = store.WriteManifest(manifest);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "its manifest cannot be deleted")) << status;
  EXPECT_EQ(store_.Verify(Name(5)).code(), absl::StatusCode::kDataLoss);
}

TEST_F(CheckpointStoreTest, CompleteCheckpointIsNeverWrittenAgain) {
  auto late = store_.BeginPart(Id(5), 1, 999).value();
  const CheckpointManifest manifest = WriteParts(5);
  ASSERT_TRUE(store_.WriteManifest(manifest).ok());
  EXPECT_EQ(late->Commit().status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(store_.BeginPart(Id(5), 0, 1).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(store_.WriteManifest(manifest).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(store_.Verify(Name(5)).ok());
}

TEST_F(CheckpointStoreTest, FullDiskLeavesNoPart) {
  ASSERT_TRUE(env_.MakeFolder("/checkpoints").ok());
  env_.SetCapacity(1000);
  {
    auto writer = store_.BeginPart(Id(5), 0, 1).value();
    ASSERT_TRUE(writer->Append(std::string(2000, 'x')).ok()) << "it is still in memory";
    EXPECT_EQ(writer->Commit().status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(env_.UsedBytes(), 0u);
}

TEST_F(CheckpointStoreTest, NewestCheckpointsAreKept) {
  for (const uint64_t step : {1, 2, 3, 4}) Write(step);
  WriteParts(2000);  // in progress
  WriteParts(0);     // never finished
  std::string contents = env_.Contents(Path(3, "MANIFEST"));
  contents[20] ^= 1;
  env_.SetContents(Path(3, "MANIFEST"), contents);
  auto other = store_.BeginPart({77, "job-2", 1}, 0, 1).value();
  ASSERT_TRUE(other->Commit().ok());
  ASSERT_TRUE(store_.DeleteOld("job", 2).ok());
  EXPECT_EQ(env_.List("/checkpoints").value(),
            (std::vector<std::string>{CheckpointStore::NameOf("job-2", 1), Name(2), Name(4),
                                      Name(2000)}));
  ASSERT_TRUE(store_.DeleteOld("job", 0).ok());
  EXPECT_EQ(Steps(), (std::vector<uint64_t>{4})) << "the newest is never deleted";
  EXPECT_TRUE(store_.Verify(Name(4)).ok());
}

// It lies beside the checkpoint of the same step, and after it.
TEST_F(CheckpointStoreTest, EndOfTheJobHasItsOwnCheckpoint) {
  for (const uint64_t step : {1, 4}) Write(step);
  CheckpointManifest manifest;
  manifest.set_job_id(77);
  manifest.set_job_name("job");
  manifest.set_step(4);
  manifest.set_is_final(true);
  auto part = store_.BeginPart({77, "job", 4, /*is_final=*/true}, 0, 9).value();
  ASSERT_TRUE(part->Append("the end").ok());
  *manifest.add_parts() = part->Commit().value();
  ASSERT_TRUE(store_.WriteManifest(manifest).ok());
  const std::string end = Name(4) + "-end";
  EXPECT_EQ(CheckpointStore::NameOf("job", 4, true), end);
  EXPECT_TRUE(CheckpointStore::IsEndCheckpoint(end));
  EXPECT_FALSE(CheckpointStore::IsEndCheckpoint(Name(4)));
  EXPECT_TRUE(store_.Verify(end).ok());
  EXPECT_EQ(*store_.OpenPart(*store_.ReadManifest(end), 0).value()->NextBlock(), "the end");
  EXPECT_EQ(store_.Newest("job").value(), end);
  EXPECT_EQ(store_.List("job")->complete[0].name, end);
  // The previous one is that of the same step.
  env_.SetContents(absl::StrCat("/checkpoints/", end, "/p0.part"), "damaged");
  EXPECT_NE(store_.Verify(end).message().find(Name(4) + ", is whole"), absl::string_view::npos)
      << store_.Verify(end);
  EXPECT_EQ(store_.SetAsideAfter({78, "job", 4, /*is_final=*/true})->size(), 0u);
  ASSERT_TRUE(store_.DeleteOld("job", 1).ok());
  EXPECT_EQ(env_.List("/checkpoints").value(), std::vector<std::string>{end});
}

TEST_F(CheckpointStoreTest, DocumentShowsTheBytes) {
  auto writer = store_.BeginPart(Id(9), 0, 123).value();
  ASSERT_TRUE(writer->Append("Pawl").ok());
  const CheckpointPart part = writer->Commit().value();
  EXPECT_EQ(part.bytes(), 92u);
  CheckpointManifest manifest;
  manifest.set_job_id(77);
  manifest.set_job_name("job");
  manifest.set_step(9);
  manifest.set_scheduler_state("s");
  *manifest.add_parts() = part;
  ASSERT_TRUE(store_.WriteManifest(manifest).ok());
  const std::string bytes = env_.Contents(Path(9, "MANIFEST"));
  EXPECT_EQ(ReadWorkedBytes("server/storage/checkpoint/checkpoint_format.md"), bytes)
      << FormatWorkedBytes(bytes);
}

}  // namespace
}  // namespace pawl
