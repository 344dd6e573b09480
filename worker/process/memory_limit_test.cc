#include "worker/process/memory_limit.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace pawl {
namespace {

class MemoryLimitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::string(std::getenv("TEST_TMPDIR")) + "/" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }

  std::string root_;
};

TEST_F(MemoryLimitTest, SmallestGroupOfVersion2Counts) {
  Write("/proc/self/cgroup", "0::/pods/one");
  Write("/sys/fs/cgroup/pods/one/memory.max", "max");
  const uint64_t machine = MemoryLimitBytes(root_);
  EXPECT_EQ(machine, MemoryLimitBytes("/nowhere"));
  Write("/sys/fs/cgroup/pods/memory.max", "2000000");
  EXPECT_EQ(MemoryLimitBytes(root_), 2000000u);
  Write("/sys/fs/cgroup/pods/one/memory.max", "1000000");
  EXPECT_EQ(MemoryLimitBytes(root_), 1000000u);
}

// In a container the group is often "/".
TEST_F(MemoryLimitTest, GroupOfAContainerCounts) {
  Write("/proc/self/cgroup", "0::/");
  Write("/sys/fs/cgroup/memory.max", "3000000");
  EXPECT_EQ(MemoryLimitBytes(root_), 3000000u);
}

TEST_F(MemoryLimitTest, GroupOfVersion1Counts) {
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/jobs/7\n0::/");
  Write("/sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "4000000");
  EXPECT_EQ(MemoryLimitBytes(root_), 4000000u);
}

}  // namespace
}  // namespace pawl
