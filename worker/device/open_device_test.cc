#include "worker/device/open_device.h"

#include <dlfcn.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "worker/device/cuda_loader.h"

namespace pawl {
namespace {

bool HasDriver() { return dlopen("libcuda.so.1", RTLD_LAZY) != nullptr; }

TEST(OpenDeviceTest, OpensTheCpu) {
  const auto device = OpenDevice("cpu");
  ASSERT_TRUE(device.ok());
  EXPECT_TRUE((*device)->SharesHostMemory());
}

TEST(OpenDeviceTest, RefusesUnknownNames) {
  for (const std::string name :
       {"", "tpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:99999999999"}) {
    EXPECT_EQ(OpenDevice(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST(OpenDeviceTest, ParsesGpuNumbers) {
  EXPECT_EQ(GpuNumber("cuda:0"), 0);
  EXPECT_EQ(GpuNumber("cuda:12"), 12);
  for (const char* const other : {"cpu", "cuda:", "cuda:-1", ""})
    EXPECT_FALSE(GpuNumber(other).has_value()) << other;
}

TEST(OpenDeviceTest, ParsesCudaMath) {
  EXPECT_EQ(*ParseCudaMath("float32"), CudaMath::kFloat32);
  EXPECT_EQ(*ParseCudaMath("tf32"), CudaMath::kTf32);
  EXPECT_EQ(ParseCudaMath("bf16").status().code(), absl::StatusCode::kInvalidArgument);
}

// On a machine with GPUs this opens the first one; elsewhere the error says what is missing, and
// never that the device name is unknown.
TEST(OpenDeviceTest, OpensAGpuOrSaysWhatIsMissing) {
  const auto device = OpenDevice("cuda:0");
  if (device.ok()) {
    EXPECT_FALSE((*device)->SharesHostMemory());
    return;
  }
  const std::string message(device.status().message());
  EXPECT_TRUE(absl::StrContains(message, "cuda:0")) << message;
  if (absl::IsUnimplemented(device.status())) {
    EXPECT_TRUE(absl::StrContains(message, "libpawl_cuda.so")) << message;
  } else if (!HasDriver()) {
    EXPECT_EQ(device.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(
        absl::StrContains(message, "no NVIDIA driver on this machine: libcuda.so.1 was not found"))
        << message;
  }
}

TEST(OpenDeviceTest, MissingGpuIsReported) {
  if (!OpenDevice("cuda:0").ok()) GTEST_SKIP() << "no GPU: " << OpenDevice("cuda:0").status();
  const auto device = OpenDevice("cuda:1000");
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(device.status().message(), "there is no GPU 1000"))
      << device.status();
}

TEST(CudaLoaderTest, MissingLibraryErrorNamesTheSearchedPaths) {
  const auto device = OpenCudaDevice(0, CudaMath::kFloat32,
                                     {"/nowhere/libpawl_cuda.so", "/nor/here/libpawl_cuda.so"});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kUnimplemented);
  for (const char* const part :
       {"/nowhere/libpawl_cuda.so", "/nor/here/libpawl_cuda.so", "use cpu"}) {
    EXPECT_TRUE(absl::StrContains(device.status().message(), part)) << device.status();
  }
}

TEST(CudaLoaderTest, SearchesBesideTheProgramAndInTheBundle) {
  const std::vector<std::string> paths = CudaLibraryPaths();
  ASSERT_GE(paths.size(), 2u);
  EXPECT_TRUE(absl::EndsWith(paths[0], "/worker/device/libpawl_cuda.so")) << paths[0];
  EXPECT_TRUE(absl::EndsWith(paths[1], "/worker/device/../lib/libpawl_cuda.so")) << paths[1];
}

TEST(CudaLoaderTest, InvalidLibraryFileIsRefused) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/libpawl_cuda.so");
  std::ofstream(path) << "not a library";
  const auto device = OpenCudaDevice(0, CudaMath::kFloat32, {path});
  EXPECT_EQ(device.status().code(),
            HasDriver() ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kUnavailable);
}

TEST(CudaLoaderTest, LoaderMessageBecomesAdvice) {
  const absl::Status without_cublas =
      CudaLoadError("/a/libpawl_cuda.so",
                    "libcublas.so.13: cannot open shared object file: No such file or directory");
  EXPECT_EQ(without_cublas.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* const part : {"/a/libpawl_cuda.so", "libcublas.so.13", "LD_LIBRARY_PATH"}) {
    EXPECT_TRUE(absl::StrContains(without_cublas.message(), part)) << without_cublas;
  }
  const absl::Status other = CudaLoadError("/a/libpawl_cuda.so", "invalid ELF header");
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(other.message(), "invalid ELF header"));
  EXPECT_FALSE(absl::StrContains(other.message(), "LD_LIBRARY_PATH"));
}

}  // namespace
}  // namespace pawl
