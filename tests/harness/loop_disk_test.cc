#include "tests/harness/loop_disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "gtest/gtest.h"
#include "tests/harness/runfile.h"

namespace pawl {
namespace {

using std::chrono::milliseconds;

// Returns true if all bytes reach the disk.
bool Write(const std::string& path, size_t bytes) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return false;
  const std::string data(bytes, 'a');
  const bool written = write(file, data.data(), data.size()) == static_cast<ssize_t>(data.size()) &&
                       fdatasync(file) == 0;
  return close(file) == 0 && written;
}

class LoopDiskTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = MakeOutputFolder("disk").value();
    auto disk = LoopDisk::Mount(folder_ + "/image", folder_ + "/disk", 16 << 20);
    if (!disk.ok()) GTEST_SKIP() << disk.status();
    disk_ = *std::move(disk);
  }

  std::string File(const std::string& name) const { return absl::StrCat(folder_, "/disk/", name); }

  std::string folder_;
  std::unique_ptr<LoopDisk> disk_;
};

TEST_F(LoopDiskTest, FullDiskRefusesWritesUntilEmptied) {
  EXPECT_TRUE(Write(File("before"), 100000));
  ASSERT_TRUE(disk_->Fill().ok());
  EXPECT_FALSE(Write(File("full"), 100000));
  ASSERT_TRUE(disk_->Empty().ok());
  EXPECT_TRUE(Write(File("after"), 100000));
}

TEST_F(LoopDiskTest, FrozenDiskDelaysWrites) {
  const MonotonicTime begin = Clock::Real().Now();
  ASSERT_TRUE(disk_->FreezeFor(milliseconds(700)).ok());
  EXPECT_LT(Clock::Real().Now() - begin, milliseconds(600));
  EXPECT_TRUE(Write(File("frozen"), 100000));
  EXPECT_GE(Clock::Real().Now() - begin, milliseconds(700));
}

TEST_F(LoopDiskTest, ReplacedDiskIsEmpty) {
  EXPECT_TRUE(Write(File("old"), 100));
  ASSERT_TRUE(disk_->Replace().ok());
  EXPECT_FALSE(std::filesystem::exists(File("old")));
  EXPECT_TRUE(Write(File("new"), 100));
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const absl::Status status = pawl::LoopDisk::EnterPrivateMounts(); !status.ok()) {
    // Mounting needs root.
    std::printf("skipped: %s\n", status.ToString().c_str());
    return 0;
  }
  return RUN_ALL_TESTS();
}
