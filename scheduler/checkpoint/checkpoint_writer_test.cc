#include "scheduler/checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <latch>
#include <string>

#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/env.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/forwarding_env.h"
#include "gtest/gtest.h"
#include "server/storage/checkpoint/checkpoint_store.h"

namespace pawl {
namespace {

class CheckpointWriterTest : public testing::Test {
 protected:
  CheckpointWriterTest()
      : dir_(absl::StrCat(std::getenv("TEST_TMPDIR"), "/",
                          testing::UnitTest::GetInstance()->current_test_info()->name())),
        store_(Env::Real(), dir_) {}

  // All its parts are written.
  CheckpointManifest Parts(uint64_t step, bool is_final = false,
                           const std::string& contents = "a partition") {
    CheckpointManifest manifest;
    manifest.set_job_id(77);
    manifest.set_job_name("job");
    manifest.set_step(step);
    manifest.set_is_final(is_final);
    const auto part = store_.BeginPart({77, "job", step, is_final}, 0, 9).value();
    EXPECT_TRUE(part->Append(contents).ok());
    *manifest.add_parts() = part->Commit().value();
    return manifest;
  }
  absl::StatusOr<std::string> Write(const CheckpointManifest& manifest, uint32_t keep) {
    absl::StatusOr<std::string> folder;
    writer_.Write(dir_, manifest, keep,
                  [&](absl::StatusOr<std::string> answer) { folder = std::move(answer); });
    EXPECT_TRUE(writer_.WaitUntilIdle(Clock::Real().Now() + kTestPatience));
    return folder;
  }

  const std::string dir_;
  CheckpointStore store_;
  CheckpointWriter writer_{Env::Real()};
};

TEST_F(CheckpointWriterTest, HungShareBlocksNoCaller) {
  const CheckpointManifest manifest = Parts(4);
  // Opening it for writing hangs until a reader opens it.
  const std::string hanging = dir_ + "/" + CheckpointStore::NameOf("job", 4) + "/MANIFEST.tmp";
  ASSERT_EQ(mkfifo(hanging.c_str(), 0600), 0);
  bool done = false;
  writer_.Write(dir_, manifest, 0, [&](const absl::StatusOr<std::string>& folder) { done = true; });
  EXPECT_FALSE(writer_.WaitUntilIdle(Clock::Real().Now()));
  const int reader = open(hanging.c_str(), O_RDONLY);
  ASSERT_GE(reader, 0);
  char buffer[4096];
  while (read(reader, buffer, sizeof(buffer)) > 0) {
  }
  close(reader);
  EXPECT_TRUE(writer_.WaitUntilIdle(Clock::Real().Now() + kTestPatience));
  EXPECT_TRUE(done);
}

// Deletes once the test allows it.
class HungDeletions final : public ForwardingEnv {
 public:
  HungDeletions() : ForwardingEnv(Env::Real()) {}
  absl::Status Delete(const std::string& path) override {
    may_delete_.wait();
    return ForwardingEnv::Delete(path);
  }
  void Allow() { may_delete_.count_down(); }

 private:
  std::latch may_delete_{1};
};

TEST_F(CheckpointWriterTest, OldCheckpointsDelayNoAnswer) {
  ASSERT_TRUE(Write(Parts(4), 0).ok());
  HungDeletions env;
  CheckpointWriter writer(env);
  std::atomic<bool> done = false;
  writer.Write(dir_, Parts(5), 1, [&](const absl::StatusOr<std::string>& folder) {
    EXPECT_TRUE(folder.ok()) << folder.status();
    done = true;
  });
  EXPECT_TRUE(Eventually([&] { return done.load(); }));
  EXPECT_FALSE(writer.WaitUntilIdle(Clock::Real().Now()));
  EXPECT_TRUE(store_.Verify(CheckpointStore::NameOf("job", 4)).ok());
  env.Allow();
  EXPECT_TRUE(writer.WaitUntilIdle(Clock::Real().Now() + kTestPatience));
  EXPECT_FALSE(store_.Verify(CheckpointStore::NameOf("job", 4)).ok());
}

TEST_F(CheckpointWriterTest, FoldersOutsideTheRootsAreRefused) {
  const CheckpointManifest manifest = Parts(4);
  CheckpointWriter writer(Env::Real(), AllowedFolders({dir_ + "/allowed"}));
  std::filesystem::create_directories(dir_ + "/allowed");
  std::filesystem::create_directory_symlink(dir_, dir_ + "/allowed/link");
  for (const std::string& dir : {dir_, dir_ + "/allowed/link"}) {
    absl::StatusOr<std::string> folder;
    writer.Write(dir, manifest, 0,
                 [&](absl::StatusOr<std::string> answer) { folder = std::move(answer); });
    EXPECT_TRUE(writer.WaitUntilIdle(Clock::Real().Now() + kTestPatience));
    EXPECT_EQ(folder.status().code(), absl::StatusCode::kPermissionDenied) << folder.status();
  }
}

// The former scheduler died after it wrote the manifest and before it checked the parts.
TEST_F(CheckpointWriterTest, FinalCheckpointOfAnotherSchedulerIsFound) {
  ASSERT_TRUE(Write(Parts(5), 1).ok());
  const CheckpointManifest is_final = Parts(6, /*is_final=*/true);
  ASSERT_TRUE(store_.WriteManifest(is_final).ok());
  EXPECT_TRUE(Write(is_final, 2).ok());
  const std::string manifest_path = store_.ManifestPath(CheckpointStore::NameOf("job", 6, true));
  const std::string manifest = ReadWholeFile(Env::Real(), manifest_path, 1 << 20).value();
  ASSERT_TRUE(Env::Real().Delete(manifest_path).ok());
  Parts(6, /*is_final=*/true, "what another server had");
  ASSERT_TRUE(WriteFileDurably(Env::Real(), manifest_path, manifest).ok());
  EXPECT_TRUE(absl::IsAborted(Write(is_final, 1).status()));
  EXPECT_FALSE(Env::Real().FileSize(manifest_path).ok());
  EXPECT_TRUE(store_.Verify(CheckpointStore::NameOf("job", 5)).ok()) << "deleted";
}

TEST_F(CheckpointWriterTest, WriterIsIdleAfterTheCallback) {
  EXPECT_TRUE(writer_.WaitUntilIdle(Clock::Real().Now())) << "it has not started";
  const absl::StatusOr<std::string> folder = Write(Parts(5), 0);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(*folder, dir_ + "/" + CheckpointStore::NameOf("job", 5));
  EXPECT_TRUE(store_.Verify(CheckpointStore::NameOf("job", 5)).ok());
}

}  // namespace
}  // namespace pawl
