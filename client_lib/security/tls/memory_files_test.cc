#include "client_lib/security/tls/memory_files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator begin("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin, std::filesystem::directory_iterator()));
}

std::string Content(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string NewFolder(const std::string& name) {
  const std::string folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  std::filesystem::create_directories(folder);
  return folder;
}

TEST(MemoryFileTest, PathStaysWhileContentIsReplaced) {
  MemoryFile file("test");
  ASSERT_TRUE(file.Replace("first and longer").ok());
  const std::string path = file.path();
  EXPECT_EQ(Content(path), "first and longer");
  std::ifstream reader(path);
  ASSERT_TRUE(file.Replace("second").ok());
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(Content(path), "second");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(reader), {}), "first and longer");
}

TEST(MemoryFilesLeaseTest, FolderThatIsOpenedAgainNeedsNoMoreDescriptors) {
  const std::string folder = NewFolder("again");
  const auto use = [](const std::string& path) {
    MemoryFilesLease lease(path);
    EXPECT_TRUE(lease.files().authorities.Replace("a").ok());
    EXPECT_TRUE(lease.files().certificate.Replace("c").ok());
    EXPECT_TRUE(lease.files().key.Replace("k").ok());
  };
  use(folder);
  const size_t before = OpenDescriptors();
  // Also by another name of the same folder.
  std::filesystem::create_directory_symlink(folder, folder + "-link");
  for (int i = 0; i < 200; ++i) use(i % 2 == 0 ? folder : folder + "-link");
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(MemoryFilesLeaseTest, UsersAtTheSameTimeAndOtherFoldersHaveTheirOwn) {
  const std::string folder = NewFolder("shared");
  auto one = std::make_unique<MemoryFilesLease>(folder);
  MemoryFilesLease two(folder), other(NewFolder("other"));
  ASSERT_TRUE(one->files().key.Replace("one").ok());
  ASSERT_TRUE(two.files().key.Replace("two").ok());
  ASSERT_TRUE(other.files().key.Replace("other").ok());
  EXPECT_EQ(Content(one->files().key.path()), "one");
  EXPECT_EQ(Content(two.files().key.path()), "two");
  const std::string returned = one->files().key.path();
  one = nullptr;
  MemoryFilesLease third(folder);
  ASSERT_TRUE(third.files().key.Replace("third").ok());
  EXPECT_EQ(third.files().key.path(), returned);
  EXPECT_EQ(Content(other.files().key.path()), "other");
}

}  // namespace
}  // namespace pawl
