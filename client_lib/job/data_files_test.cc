#include "client_lib/job/data_files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(std::getenv("TEST_TMPDIR")) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_ / "sub");
    for (const char* name : {"b.csv", "a.csv", "a.csv.pawlindex", ".hidden", "_SUCCESS", "x[1].csv",
                             "c.gz", "sub/d.csv", "n-images-idx3", "n-labels-idx1"}) {
      std::ofstream(folder_ / name) << "x";
    }
  }

  std::string At(const std::string& name) { return (folder_ / name).string(); }

  absl::StatusOr<std::vector<std::string>> Expand(const std::vector<std::string>& paths,
                                                  DataFormat format = CSV) {
    const google::protobuf::RepeatedPtrField<std::string> repeated(paths.begin(), paths.end());
    return ExpandDataFiles("data.train", repeated, format);
  }

  std::filesystem::path folder_;
};

TEST_F(DataFilesTest, FolderStandsForItsDataFilesInOrderOfNames) {
  EXPECT_THAT(Expand({folder_.string()}).value(),
              ElementsAre(At("a.csv"), At("b.csv"), At("c.gz"), At("n-images-idx3"),
                          At("n-labels-idx1"), At("x[1].csv")));
  EXPECT_THAT(Expand({folder_.string()}, IDX).value(), ElementsAre(At("n-images-idx3")));
}

TEST_F(DataFilesTest, GlobStandsForItsMatchesAndEntriesKeepTheirOrder) {
  EXPECT_THAT(Expand({At("c.gz"), At("[ab].csv*"), At("absent")}).value(),
              ElementsAre(At("c.gz"), At("a.csv"), At("b.csv"), At("absent")));
}

// Workers that skipped it would train on other data.
TEST_F(DataFilesTest, FileThatCannotBeExaminedIsNamed) {
  std::filesystem::create_symlink(At("gone"), At("late.csv"));
  for (const std::string& path : {folder_.string(), At("*.csv")}) {
    const auto files = Expand({path});
    EXPECT_EQ(files.status().code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(files.status().message(),
                HasSubstr("data.train: cannot examine " + At("late.csv")));
  }
}

TEST_F(DataFilesTest, FileAndItsLinkAreTheSame) {
  std::filesystem::create_symlink(At("a.csv"), At("latest.csv"));
  const auto files = Expand({folder_.string()});
  EXPECT_EQ(files.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(files.status().message(), HasSubstr("latest.csv is named twice"));
}

TEST_F(DataFilesTest, ExistingFileIsNoGlob) {
  EXPECT_THAT(Expand({At("x[1].csv")}).value(), ElementsAre(At("x[1].csv")));
}

TEST_F(DataFilesTest, NothingFoundIsNamed) {
  const auto glob = Expand({At("*.libsvm")});
  EXPECT_EQ(glob.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(glob.status().message(), HasSubstr("data.train: no file matches " + At("*.libsvm")));
  std::filesystem::create_directories(folder_ / "empty");
  EXPECT_THAT(Expand({At("empty")}).status().message(), HasSubstr("has no data files"));
}

TEST_F(DataFilesTest, FileNamedTwiceIsRefused) {
  const auto twice = Expand({At("a.csv"), At("sub/../a.csv")});
  EXPECT_EQ(twice.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(twice.status().message(), HasSubstr("a.csv is named twice"));
}

}  // namespace
}  // namespace pawl
