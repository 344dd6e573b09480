#include "deploy/pawlctl/cluster/out_folder.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

namespace fs = std::filesystem;

std::string NewPath() {
  static int number = 0;
  return testing::TempDir() + "out-" + std::to_string(++number) + "/run";
}

void Touch(const std::string& path) { std::ofstream(path) << "x"; }

TEST(OutFolderTest, OpenCreatesParents) {
  const std::string path = NewPath();
  const auto folder = OutFolder::Open(path);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_TRUE(fs::is_directory((*folder)->path() + "/logs"));
  EXPECT_TRUE(fs::path((*folder)->path()).is_absolute());
}

TEST(OutFolderTest, SecondRunIsRefused) {
  const std::string path = NewPath();
  auto first = OutFolder::Open(path);
  ASSERT_TRUE(first.ok());
  const absl::Status second = OutFolder::Open(path).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(second.message(), "another pawlctl run")) << second;
  first->reset();
  EXPECT_TRUE(OutFolder::Open(path).ok());
}

TEST(OutFolderTest, OpenRemovesOnlyEarlierResults) {
  const std::string path = NewPath();
  {
    const auto folder = OutFolder::Open(path);
    ASSERT_TRUE(folder.ok());
    Touch((*folder)->metrics_file());
    Touch((*folder)->address_file());
    Touch((*folder)->log("server-0"));
    Touch(path + "/notes.txt");
  }
  const auto folder = OutFolder::Open(path);
  ASSERT_TRUE(folder.ok());
  EXPECT_FALSE(fs::exists((*folder)->metrics_file()));
  EXPECT_FALSE(fs::exists((*folder)->address_file()));
  EXPECT_FALSE(fs::exists((*folder)->log("server-0")));
  EXPECT_TRUE(fs::exists(path + "/notes.txt"));
}

TEST(OutFolderTest, UnreadableFolderIsAnError) {
  const std::string path = NewPath();
  fs::create_directories(path);
  fs::create_symlink(".pawlctl-run", path + "/.pawlctl-run");
  const absl::Status status = OutFolder::Open(path).status();
  EXPECT_TRUE(absl::StrContains(status.message(), path)) << status;
}

TEST(OutFolderTest, OpenKeepsFilesOfOthers) {
  const std::string path = NewPath();
  fs::create_directories(path + "/data");
  Touch(path + "/data/precious.csv");
  const absl::Status status = OutFolder::Open(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(status.message(), path + "/data")) << status;
  EXPECT_TRUE(fs::exists(path + "/data/precious.csv"));
}

TEST(OutFolderTest, WriteReplacesTheWholeFile) {
  const auto folder = OutFolder::Open(NewPath());
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE((*folder)->Write((*folder)->metrics_file(), "a longer text").ok());
  ASSERT_TRUE((*folder)->Write((*folder)->metrics_file(), "short").ok());
  std::stringstream text;
  text << std::ifstream((*folder)->metrics_file()).rdbuf();
  EXPECT_EQ(text.str(), "short");
}

TEST(OutFolderTest, ErrorNamesUnwritableFolder) {
  const std::string path = NewPath();
  fs::create_directories(fs::path(path).parent_path());
  Touch(path);
  const absl::Status status = OutFolder::Open(path + "/below").status();
  EXPECT_TRUE(absl::StrContains(status.message(), path)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "--out")) << status;
}

}  // namespace
}  // namespace pawl
