#include "client_lib/base/env.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

class EnvTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = JoinPath(testing::TempDir(),
                       absl::StrCat(testing::UnitTest::GetInstance()->current_test_info()->name()));
    ASSERT_TRUE(env_.MakeFolder(folder_).ok());
  }
  std::string Path(absl::string_view name) const { return JoinPath(folder_, name); }
  std::string Read(const std::string& path) const {
    return ReadWholeFile(env_, path, 1 << 30).value();
  }

  Env& env_ = Env::Real();
  std::string folder_;
};

TEST_F(EnvTest, ThousandsOfFragmentsAreWrittenInOrder) {
  std::vector<std::string> pieces;
  std::string expected;
  for (int i = 0; i < 5000; ++i) pieces.emplace_back(i % 7, static_cast<char>('a' + i % 26));
  std::vector<WritableFile::Fragment> fragments;
  for (const std::string& piece : pieces) {
    fragments.emplace_back(piece.data(), piece.size());
    expected += piece;
  }
  auto file = env_.Create(Path("f"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append(fragments).ok());
  EXPECT_EQ((*file)->size(), expected.size());
  ASSERT_TRUE((*file)->Append("end").ok());
  ASSERT_TRUE((*file)->Sync().ok());
  ASSERT_TRUE((*file)->Close().ok());
  EXPECT_EQ(Read(Path("f")), expected + "end");
  EXPECT_EQ(env_.FileSize(Path("f")).value(), expected.size() + 3);
}

TEST_F(EnvTest, AppendContinuesAfterTruncate) {
  auto file = env_.Create(Path("f")).value();
  ASSERT_TRUE(file->Append("0123456789").ok());
  ASSERT_TRUE(file->Truncate(4).ok());
  ASSERT_TRUE(file->Append("x").ok());
  EXPECT_EQ(file->size(), 5u);
  EXPECT_EQ(Read(Path("f")), "0123x");
  auto again = env_.OpenForAppend(Path("f")).value();
  EXPECT_EQ(again->size(), 5u);
  ASSERT_TRUE(again->Append("y").ok());
  EXPECT_EQ(Read(Path("f")), "0123xy");
}

TEST_F(EnvTest, DroppedFileLeavesTheCacheAndKeepsItsContents) {
  constexpr size_t kPage = 4096, kPages = 256;
  const std::string contents(kPages * kPage, 'x');
  auto file = env_.Create(Path("f"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append(contents).ok());
  const auto cached = [&] {
    std::vector<unsigned char> pages(kPages);
    const int fd = open(Path("f").c_str(), O_RDONLY);
    void* const mapped = mmap(nullptr, contents.size(), PROT_READ, MAP_SHARED, fd, /*offset=*/0);
    EXPECT_NE(mapped, MAP_FAILED);
    EXPECT_EQ(mincore(mapped, contents.size(), pages.data()), 0);
    munmap(mapped, contents.size());
    close(fd);
    return std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
  };
  EXPECT_EQ(cached(), kPages);
  ASSERT_TRUE((*file)->Sync().ok());
  env_.DropCached(Path("f"));
  // On some file systems, such as tmpfs, the hint has no effect.
  struct statfs system = {};
  ASSERT_EQ(statfs(folder_.c_str(), &system), 0);
  if (system.f_type == EXT4_SUPER_MAGIC || system.f_type == XFS_SUPER_MAGIC) {
    EXPECT_EQ(cached(), 0);
  }
  EXPECT_EQ(Read(Path("f")), contents);
}

TEST_F(EnvTest, ReadStopsAtTheEndOfTheFile) {
  ASSERT_TRUE(env_.Create(Path("f")).value()->Append("0123456789").ok());
  auto file = env_.OpenForRead(Path("f")).value();
  char out[8];
  EXPECT_EQ(file->Read(6, absl::MakeSpan(out)).value(), 4u);
  EXPECT_EQ(absl::string_view(out, 4), "6789");
  EXPECT_EQ(file->Read(10, absl::MakeSpan(out)).value(), 0u);
  EXPECT_EQ(file->Size().value(), 10u);
}

TEST_F(EnvTest, FoldersListRenameAndDelete) {
  ASSERT_TRUE(env_.MakeFolder(folder_).ok()) << "an existing folder is no error";
  for (const char* name : {"b", "a", "c"}) ASSERT_TRUE(env_.Create(Path(name)).ok());
  ASSERT_TRUE(env_.Rename(Path("c"), Path("a")).ok());
  EXPECT_EQ(env_.List(folder_).value(), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(env_.SyncFolder(folder_).ok());
  EXPECT_FALSE(env_.DeleteFolder(folder_).ok()) << "it is not empty";
  EXPECT_TRUE(env_.Delete(Path("a")).ok());
  EXPECT_TRUE(env_.Delete(Path("b")).ok());
  EXPECT_TRUE(env_.DeleteFolder(folder_).ok());
  EXPECT_EQ(env_.List(folder_).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(EnvTest, ErrorsNameTheFileAndTheReason) {
  const absl::Status status = env_.OpenForRead(Path("missing")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            absl::StrCat("open ", Path("missing"), ": No such file or directory"));
  EXPECT_EQ(FileError("write", "f", ENOSPC).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FileError("write", "f", EIO).code(), absl::StatusCode::kDataLoss);
}

TEST_F(EnvTest, PermanentErrorsAreNotUnavailable) {
  ASSERT_TRUE(WriteFileDurably(env_, Path("file"), "").ok());
  EXPECT_EQ(env_.MakeFolder(Path("file/x")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(env_.MakeFolder(Path(std::string(300, 'x'))).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(env_.OpenForAppend(folder_).status().code(), absl::StatusCode::kFailedPrecondition);
  for (const int number : {EACCES, EPERM, EROFS}) {
    EXPECT_EQ(FileError("open", "f", number).code(), absl::StatusCode::kPermissionDenied) << number;
  }
  EXPECT_EQ(FileError("open", "f", ELOOP).code(), absl::StatusCode::kInvalidArgument);
  for (const int number : {EAGAIN, EBUSY, ESTALE, ETIMEDOUT, EINTR}) {
    EXPECT_EQ(FileError("open", "f", number).code(), absl::StatusCode::kUnavailable) << number;
  }
}

TEST_F(EnvTest, FullDiskIsResourceExhausted) {
  // A device that is always full.
  auto file = env_.OpenForAppend("/dev/full");
  if (!file.ok()) GTEST_SKIP() << file.status();
  const absl::Status status = (*file)->Append("x");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "/dev/full")) << status;
  EXPECT_EQ((*file)->Append("x").code(), absl::StatusCode::kFailedPrecondition)
      << "not truncated yet";
}

TEST_F(EnvTest, LockedFolderCannotBeLockedAgain) {
  auto lock = env_.LockFolder(folder_);
  ASSERT_TRUE(lock.ok());
  const absl::Status status = env_.LockFolder(folder_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), folder_)) << status;
  lock->reset();
  EXPECT_TRUE(env_.LockFolder(folder_).ok());
}

TEST_F(EnvTest, WholeFilesAreReplacedAndReadUpToALimit) {
  const std::string one = "one", two = "two!";
  const std::vector<WritableFile::Fragment> first = {{one.data(), one.size()}};
  const std::vector<WritableFile::Fragment> second = {{one.data(), one.size()},
                                                      {two.data(), two.size()}};
  ASSERT_TRUE(WriteFileDurably(env_, Path("f"), first).ok());
  EXPECT_EQ(Read(Path("f")), "one");
  ASSERT_TRUE(WriteFileDurably(env_, Path("f"), second).ok());
  EXPECT_EQ(Read(Path("f")), "onetwo!");
  EXPECT_EQ(env_.List(folder_)->size(), 1u);
  EXPECT_EQ(ReadWholeFile(env_, Path("f"), 6).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(PathTest, JoinsAndSplits) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(FolderOf("/a/b"), "/a");
  EXPECT_EQ(FolderOf("/a"), "/");
  EXPECT_EQ(FolderOf("a"), ".");
}

}  // namespace
}  // namespace pawl
