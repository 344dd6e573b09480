#include "client_lib/security/allowed_folders.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace pawl {
namespace {

class AllowedFoldersTest : public testing::Test {
 protected:
  AllowedFoldersTest() : top_(std::string(std::getenv("TEST_TMPDIR")) + "/top") {
    std::filesystem::remove_all(top_);
    std::filesystem::create_directories(top_ + "/allowed/inner");
    std::filesystem::create_directories(top_ + "/secret");
    std::filesystem::create_directory_symlink(top_ + "/secret", top_ + "/allowed/link");
  }

  const std::string top_;
};

TEST_F(AllowedFoldersTest, ContentsOfAllowedFoldersAreAllowed) {
  for (const std::string& root : {top_ + "/allowed", top_ + "/allowed/"}) {
    const AllowedFolders folders({"/nonexistent", root});
    for (const char* path : {"/allowed", "/allowed/", "/allowed/inner", "/allowed/new/deeper"})
      EXPECT_TRUE(folders.Check(top_ + path).ok()) << path;
  }
}

TEST_F(AllowedFoldersTest, OtherFoldersAreRefused) {
  const AllowedFolders folders({top_ + "/allowed"});
  for (const char* path : {"", "/secret", "/allowed-too", "/allowed/../secret", "/allowed/link",
                           "/allowed/link/deeper", "/allowed/inner/../../secret/x"}) {
    EXPECT_EQ(folders.Check(top_ + path).code(), absl::StatusCode::kPermissionDenied) << path;
  }
}

// The scheduler decides on gRPC's threads by the name alone.
TEST_F(AllowedFoldersTest, NamesAreCheckedWithoutTheFileSystem) {
  const AllowedFolders folders({top_ + "/allowed"});
  for (const char* path : {"/secret", "/allowed-too", "/allowed/../secret", "/allowed/inner/../.."})
    EXPECT_EQ(folders.CheckName(top_ + path).code(), absl::StatusCode::kPermissionDenied) << path;
  EXPECT_EQ(folders.CheckName("allowed").code(), absl::StatusCode::kInvalidArgument);
  // Links are left to Check.
  for (const char* path : {"/allowed", "/allowed/", "/allowed/x/../inner", "/allowed/link"})
    EXPECT_TRUE(folders.CheckName(top_ + path).ok()) << path;
}

TEST_F(AllowedFoldersTest, RootsMayBeLinks) {
  std::filesystem::create_directory_symlink(top_ + "/allowed", top_ + "/mounted");
  const AllowedFolders folders({top_ + "/mounted"});
  for (const char* path : {"/mounted/inner", "/allowed/inner"})
    EXPECT_TRUE(folders.Check(top_ + path).ok()) << path;
  for (const char* path : {"/mounted/link", "/secret", "/mounted/../secret"})
    EXPECT_EQ(folders.Check(top_ + path).code(), absl::StatusCode::kPermissionDenied) << path;
}

TEST_F(AllowedFoldersTest, RootsThatAreNotAbsoluteAllowNothing) {
  for (const char* root : {"", ".", "top"}) {
    EXPECT_EQ(AllowedFolders({root}).Check(top_ + "/allowed").code(),
              absl::StatusCode::kPermissionDenied)
        << root;
  }
}

TEST_F(AllowedFoldersTest, WithoutFoldersEveryAbsolutePathIsAllowed) {
  EXPECT_TRUE(AllowedFolders().Check("/anywhere").ok());
  EXPECT_EQ(AllowedFolders().Check("relative").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AllowedFolders().Check("").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pawl
