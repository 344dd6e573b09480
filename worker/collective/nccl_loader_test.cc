#include "worker/collective/nccl_loader.h"

#include <dlfcn.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

bool HasDriver() { return dlopen("libcuda.so.1", RTLD_LAZY) != nullptr; }

TEST(NcclLoaderTest, MissingLibraryErrorNamesThePathsAndTheRemedy) {
  const auto opened = OpenNccl(0, {"/nowhere/libpawl_nccl.so"});
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnimplemented);
  for (const char* const part : {"/nowhere/libpawl_nccl.so", "--collectives=gloo"}) {
    EXPECT_TRUE(absl::StrContains(opened.status().message(), part)) << opened.status();
  }
}

TEST(NcclLoaderTest, SearchesBesideTheProgramAndInTheBundle) {
  const std::vector<std::string> paths = NcclLibraryPaths();
  ASSERT_GE(paths.size(), 2u);
  EXPECT_TRUE(absl::EndsWith(paths[0], "/worker/collective/libpawl_nccl.so")) << paths[0];
  EXPECT_TRUE(absl::EndsWith(paths[1], "/worker/collective/../lib/libpawl_nccl.so")) << paths[1];
}

TEST(NcclLoaderTest, InvalidLibraryFileIsRefused) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/libpawl_nccl.so");
  std::ofstream(path) << "not a library";
  const auto opened = OpenNccl(0, {path});
  EXPECT_EQ(opened.status().code(),
            HasDriver() ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kUnavailable);
}

// The real library, where it was built.
TEST(NcclLoaderTest, OpensAGpuOrSaysWhatIsMissing) {
  const auto opened = OpenNccl(0, NcclLibraryPaths());
  if (opened.ok()) {
    EXPECT_TRUE(absl::StartsWith(opened->version, "2.")) << opened->version;
    EXPECT_FALSE(opened->gpu.empty());
    return;
  }
  if (absl::IsUnimplemented(opened.status())) return;
  if (!HasDriver()) {
    EXPECT_TRUE(absl::IsUnavailable(opened.status()));
    EXPECT_TRUE(absl::StrContains(opened.status().message(), "no NVIDIA driver"))
        << opened.status();
  }
}

TEST(NcclLoaderTest, MissingNcclErrorSaysHowToInstallIt) {
  const absl::Status status =
      NcclLoadError("/a/libpawl_nccl.so",
                    "libnccl.so.2: cannot open shared object file: No such file or directory");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* const part :
       {"/a/libpawl_nccl.so", "libnccl.so.2", "libnccl2", "LD_LIBRARY_PATH"}) {
    EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
  }
}

TEST(NcclLoaderTest, MachineFollowsTheEnvironment) {
  unsetenv("NCCL_HOSTID");
  const std::string machine = ThisMachine();
  EXPECT_FALSE(machine.empty());
  EXPECT_EQ(NcclMachine(), machine);
  setenv("NCCL_HOSTID", "pawl-1", 1);
  EXPECT_EQ(NcclMachine(), "pawl-1");
  setenv("NCCL_HOSTID", "", 1);
  EXPECT_EQ(NcclMachine(), "");
  EXPECT_EQ(ThisMachine(), machine);
}

}  // namespace
}  // namespace pawl
