#include "scheduler/checkpoint_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "client_lib/base/clock.h"
#include "client_lib/base/eventually.h"
#include "gtest/gtest.h"
#include "server/storage/checkpoint_store.h"

namespace pawl {
namespace {

class CheckpointWriterTest : public testing::Test {
 protected:
  CheckpointWriterTest() : dir_(std::string(std::getenv("TEST_TMPDIR")) + "/checkpoints"), store_(Env::Real(), dir_) {}

  // All parts of it are there.
  CheckpointManifest Parts(uint64_t step) {
    CheckpointManifest manifest;
    manifest.set_job_id(77);
    manifest.set_job_name("job");
    manifest.set_step(step);
    const auto part = store_.BeginPart({77, "job", step}, 0, 9).value();
    EXPECT_TRUE(part->Append("a partition").ok());
    *manifest.add_parts() = part->Commit().value();
    return manifest;
  }

  const std::string dir_;
  CheckpointStore store_;
  CheckpointWriter writer_{Env::Real()};
};

TEST_F(CheckpointWriterTest, NobodyHasToWaitForAShareThatHangs) {
  const CheckpointManifest manifest = Parts(4);
  // Whoever opens it for writing hangs until somebody reads.
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

TEST_F(CheckpointWriterTest, ItIsIdleOnceWhoWaitsHasBeenTold) {
  EXPECT_TRUE(writer_.WaitUntilIdle(Clock::Real().Now())) << "it has done nothing yet";
  absl::StatusOr<std::string> folder;
  writer_.Write(dir_, Parts(5), 0, [&](absl::StatusOr<std::string> answer) { folder = std::move(answer); });
  ASSERT_TRUE(writer_.WaitUntilIdle(Clock::Real().Now() + kTestPatience));
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(*folder, dir_ + "/" + CheckpointStore::NameOf("job", 5));
  EXPECT_TRUE(store_.Verify(CheckpointStore::NameOf("job", 5)).ok());
}

}  // namespace
}  // namespace pawl
