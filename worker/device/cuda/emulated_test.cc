// Tests the CUDA back end on the emulator: its kernels against the CPU's, and its handling of CUDA
// errors.
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "worker/device/cuda/device.h"
#include "worker/device/cuda/emulator/runtime.h"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/stream.h"
#include "worker/device/testing/kernel_checks.h"
#include "worker/device/testing/stream_contract.h"

// The memory of a GPU that hangs is never freed, because the GPU may still use it. Some traces do
// not reach the test's name.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:pawl::CudaStream::\nleak:EmulatedCudaTest_HangingGpuIsNotAwaitedAgain_Test\n";
}

namespace pawl {
namespace {

namespace emulator = cuda::emulator;

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(int number) {
  CudaDevice::Options options;
  options.number = number;
  return CudaDevice::Open(options);
}

INSTANTIATE_TEST_SUITE_P(EmulatedCuda, StreamContractTest,
                         ::testing::Values(DeviceOpener([] { return OpenGpu(0); })));

class EmulatedCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    allocated_before_ = emulator::AllocatedBytes();
    Open(std::chrono::seconds(60));
  }
  void TearDown() override {
    emulator::Hang(false);
    stream_.reset();
    device_.reset();
  }
  void Open(MonotonicDuration hang_limit) {
    stream_.reset();
    CudaDevice::Options options;
    // Not the default GPU of a thread.
    options.number = 1;
    options.hang_limit = hang_limit;
    auto device = CudaDevice::Open(options);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    auto stream = device_->CreateStream();
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
  }
  float* Floats(size_t count) {
    return static_cast<float*>(device_->Allocate(count * sizeof(float)).value());
  }

  size_t allocated_before_ = 0;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(EmulatedCudaTest, OperationsMatchTheCpu) {
  constexpr size_t kLargest = 1500;
  constexpr uint32_t kSeed = 20240607;
  for (const KernelCheck& check : CheckKernels(*device_, kLargest, kSeed)) {
    EXPECT_TRUE(check.status.ok()) << check.operation << ": " << check.status;
    EXPECT_LE(check.worst, 1) << check.operation;
    EXPECT_GT(check.cases, 0);
    // As cuda/stream.h specifies; most keys here have few entries.
    EXPECT_TRUE((check.operation != "PoolRows" && check.operation != "Update") || check.worst == 0);
  }
}

TEST_F(EmulatedCudaTest, CopiesInManyPiecesArrive) {
  // More than Staging holds, in both directions.
  constexpr size_t kCount = (Staging::kMaxChunks + 3) * Staging::kChunkBytes / sizeof(float) + 5;
  std::vector<float> there(kCount), back(kCount);
  for (size_t i = 0; i < kCount; ++i) there[i] = static_cast<float>(i % 1000003);
  float* const data = Floats(kCount);
  stream_->CopyToDevice(there.data(), kCount * sizeof(float), data);
  const Stream::Mark before = stream_->PlaceMark();
  stream_->CopyToHost(data, kCount * sizeof(float), back.data());
  const Stream::Mark mark = stream_->PlaceMark();
  EXPECT_TRUE(stream_->Await(before).ok());
  ASSERT_TRUE(stream_->Await(mark).ok());
  EXPECT_TRUE(there == back);
  ASSERT_TRUE(stream_->Synchronize().ok());
  device_->Free(data);
}

TEST_F(EmulatedCudaTest, AwaitDeliversOnlyWhatPrecedesItsMark) {
  float* const x = Floats(1);
  stream_->Zero(x, sizeof(float));
  float values[4] = {-1, -1, -1, -1};
  Stream::Mark marks[4];
  for (int i = 0; i < 4; ++i) {
    stream_->AddConstant(1, 1, x);
    stream_->CopyToHost(x, sizeof(float), &values[i]);
    marks[i] = stream_->PlaceMark();
  }
  ASSERT_TRUE(stream_->Await(marks[1]).ok());
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], 2);
  EXPECT_EQ(values[2], -1);
  ASSERT_TRUE(stream_->Await(marks[0]).ok());
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(values[2], 3);
  EXPECT_EQ(values[3], 4);
  device_->Free(x);
}

TEST_F(EmulatedCudaTest, HostMemoryIsReadInTheCall) {
  float* const x = Floats(1);
  float value = 3, result = 0;
  stream_->CopyToDevice(&value, sizeof(float), x);
  value = 4;
  stream_->CopyToHost(x, sizeof(float), &result);
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(result, 3);
  device_->Free(x);
}

TEST_F(EmulatedCudaTest, StreamRunsAfterTheStreamItWaitsFor) {
  auto other = device_->CreateStream().value();
  float* const x = Floats(1);
  float result = 0;
  other->Zero(x, sizeof(float));
  other->AddConstant(1, 5, x);
  stream_->WaitFor(*other);
  stream_->Scale(1, 2, x);
  other->WaitFor(*stream_);
  other->AddConstant(1, 1, x);
  stream_->CopyToHost(x, sizeof(float), &result);
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(result, 10);
  ASSERT_TRUE(other->Synchronize().ok());
  device_->Free(x);
}

// The entries of one batch are ordered once for several tables, and again when they may have
// changed.
TEST_F(EmulatedCudaTest, EntriesThatWereCopiedAgainAreReordered) {
  std::vector<uint32_t> begin = {0, 1, 2, 3, 4}, key = {0, 1, 0, 1};
  const std::vector<float> value(4, 1), gradient = {1, 10, 100, 1000};
  auto* const d_begin = static_cast<uint32_t*>(device_->Allocate(5 * 4).value());
  auto* const d_key = static_cast<uint32_t*>(device_->Allocate(4 * 4).value());
  float *const d_value = Floats(4), *const d_gradient = Floats(4), *const d_rows = Floats(2);
  const Entries entries{4, 1, 4, 2, d_begin, d_key, d_value};
  stream_->CopyToDevice(begin.data(), 20, d_begin);
  stream_->CopyToDevice(value.data(), 16, d_value);
  stream_->CopyToDevice(gradient.data(), 16, d_gradient);
  auto other = device_->CreateStream().value();
  const auto rows = [&] {
    float rows[2];
    for (int table = 0; table < 2; ++table) {
      stream_->PoolRowsBackward(entries, PoolOver::kField, {d_gradient, 4, 1, 1},
                                {d_rows, 2, 1, 1});
    }
    stream_->CopyToHost(d_rows, 8, rows);
    EXPECT_TRUE(stream_->Synchronize().ok());
    return std::vector<float>{rows[0], rows[1]};
  };
  stream_->CopyToDevice(key.data(), 16, d_key);
  EXPECT_EQ(rows(), (std::vector<float>{101, 1010}));
  key = {1, 1, 0, 0};
  stream_->CopyToDevice(key.data(), 16, d_key);
  EXPECT_EQ(rows(), (std::vector<float>{1100, 11}));
  // Without a Synchronize in between, by this stream and by one that it waits for.
  for (Stream* stream : {stream_.get(), other.get()}) {
    stream_->PoolRowsBackward(entries, PoolOver::kField, {d_gradient, 4, 1, 1}, {d_rows, 2, 1, 1});
    key = {0, 0, 0, stream == other.get() ? 0u : 1u};
    stream->WaitFor(*stream_);
    stream->CopyToDevice(key.data(), 16, d_key);
    stream_->WaitFor(*stream);
    EXPECT_EQ(rows(), stream == other.get() ? (std::vector<float>{1111, 0})
                                            : (std::vector<float>{111, 1000}));
  }
  for (void* data :
       {static_cast<void*>(d_begin), static_cast<void*>(d_key), static_cast<void*>(d_value),
        static_cast<void*>(d_gradient), static_cast<void*>(d_rows)}) {
    device_->Free(data);
  }
}

TEST_F(EmulatedCudaTest, RecordingReplaysWithCurrentMemory) {
  // Enough rows for their sum to need scratch memory.
  constexpr size_t kRows = 300;
  ASSERT_GT(cuda::SumColumnsScratch(kRows, 1), 0u);
  float* const x = Floats(kRows);
  float* const sum = Floats(1);
  const std::vector<float> ones(kRows, 1), fours(kRows, 4);
  const auto sum_now = [&] {
    float result = 0;
    stream_->CopyToHost(sum, 4, &result);
    EXPECT_TRUE(stream_->Synchronize().ok());
    return result;
  };
  stream_->CopyToDevice(ones.data(), 4 * kRows, x);
  stream_->Zero(sum, 4);
  ASSERT_TRUE(stream_->BeginRecording());
  stream_->AddConstant(kRows, 1, x);
  stream_->SumColumns({x, kRows, 1, 1}, sum);
  const std::unique_ptr<Recording> recording = stream_->EndRecording();
  ASSERT_NE(recording, nullptr);
  EXPECT_EQ(sum_now(), 0) << "recording executes nothing";
  stream_->Play(*recording);
  EXPECT_EQ(sum_now(), 2 * kRows);
  stream_->CopyToDevice(fours.data(), 4 * kRows, x);
  stream_->Play(*recording);
  stream_->Play(*recording);
  EXPECT_EQ(sum_now(), 6 * kRows);
  device_->Free(x);
  device_->Free(sum);
}

TEST_F(EmulatedCudaTest, FailedRecordingIsReportedAndTheStreamContinues) {
  float* const x = Floats(4);
  emulator::FailNext("cudaStreamBeginCapture", cudaErrorInvalidValue);
  EXPECT_FALSE(stream_->BeginRecording());
  EXPECT_TRUE(absl::StrContains(stream_->Synchronize().message(), "BeginRecording"));
  ASSERT_TRUE(stream_->BeginRecording());
  emulator::FailNext("launch", cudaErrorLaunchOutOfResources);
  stream_->AddConstant(4, 1, x);
  EXPECT_EQ(stream_->EndRecording(), nullptr);
  EXPECT_FALSE(stream_->Synchronize().ok());
  ASSERT_TRUE(stream_->BeginRecording());
  stream_->Zero(x, 16);
  const std::unique_ptr<Recording> recording = stream_->EndRecording();
  ASSERT_NE(recording, nullptr) << stream_->Synchronize();
  ASSERT_TRUE(stream_->BeginRecording());
  emulator::FailNext("cudaGraphInstantiate", cudaErrorMemoryAllocation);
  EXPECT_EQ(stream_->EndRecording(), nullptr);
  EXPECT_TRUE(absl::StrContains(stream_->Synchronize().message(), "EndRecording"));
  emulator::FailNext("cudaGraphLaunch", cudaErrorLaunchFailure);
  stream_->Play(*recording);
  EXPECT_TRUE(absl::StrContains(stream_->Synchronize().message(), "Play"));
  stream_->Play(*recording);
  float result[4];
  stream_->CopyToHost(x, 16, result);
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(result[3], 0);
  device_->Free(x);
}

TEST_F(EmulatedCudaTest, ErrorIsReportedOnceWithTheOperation) {
  float* const x = Floats(8);
  emulator::FailNext("cudaMallocFromPoolAsync", cudaErrorMemoryAllocation);
  stream_->Zero(x, 32);
  double* const loss = reinterpret_cast<double*>(x);
  stream_->SquaredLoss(2, x, x + 2, /*weights=*/nullptr, 1, x + 4, loss);
  stream_->Scale(8, 2, x);
  const Stream::Mark mark = stream_->PlaceMark();
  EXPECT_EQ(stream_->Await(mark).code(), absl::StatusCode::kResourceExhausted);
  const absl::Status status = stream_->Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(absl::StrContains(status.message(), "GPU 1: SquaredLoss")) << status;
  EXPECT_TRUE(stream_->Synchronize().ok());
  emulator::FailNext("launch", cudaErrorLaunchOutOfResources);
  stream_->AddConstant(8, 2, x);
  const absl::Status launch = stream_->Synchronize();
  EXPECT_EQ(launch.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(absl::StrContains(launch.message(), "GPU 1: AddConstant")) << launch;
  float host[8];
  stream_->CopyToHost(x, 32, host);
  EXPECT_TRUE(stream_->Synchronize().ok());
  EXPECT_EQ(host[7], 0);
  device_->Free(x);
}

TEST_F(EmulatedCudaTest, FailedCopyWritesNothingToTheHost) {
  float* const x = Floats(1);
  float host = 7;
  stream_->CopyToHost(x, 4, &host);
  emulator::FailNext("cudaMemcpyAsync", cudaErrorIllegalAddress);
  stream_->CopyToHost(x, 4, &host);
  const absl::Status status = stream_->Synchronize();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(absl::StrContains(status.message(), "CopyToHost")) << status;
  EXPECT_EQ(host, 7);
  device_->Free(x);
}

TEST_F(EmulatedCudaTest, HangingGpuIsNotAwaitedAgain) {
  Open(std::chrono::milliseconds(30));
  float* const x = Floats(1);
  float host = 7;
  stream_->Zero(x, 4);
  stream_->CopyToHost(x, 4, &host);
  const Stream::Mark mark = stream_->PlaceMark();
  emulator::Hang(true);
  EXPECT_EQ(stream_->Await(mark).code(), absl::StatusCode::kDeadlineExceeded);
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = stream_->Synchronize();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_TRUE(absl::StrContains(status.message(), "hangs")) << status;
  }
  stream_->Zero(x, 4);
  EXPECT_FALSE(stream_->Synchronize().ok());
  // Destruction does not wait either.
  stream_.reset();
  EXPECT_EQ(host, 7);
}

TEST_F(EmulatedCudaTest, MemoryIsReleased) {
  for (int i = 0; i < 3; ++i) {
    float* const x = Floats(100);
    auto stream = device_->CreateStream().value();
    stream->Zero(x, 400);
    stream->Gemm(Factors::kFloat32, Transpose::kNo, Transpose::kNo, 1, {x, 10, 10, 10},
                 {x, 10, 10, 10}, 1, {x, 10, 10, 10});
    ASSERT_TRUE(stream->Synchronize().ok());
    stream.reset();
    device_->Free(x);
  }
  stream_.reset();
  device_.reset();
  EXPECT_EQ(emulator::AllocatedBytes(), allocated_before_);
}

TEST_F(EmulatedCudaTest, DeviceContinuesAfterOutOfMemory) {
  EXPECT_EQ(device_->Allocate(emulator::kMemoryBytes + 1).status().code(),
            absl::StatusCode::kResourceExhausted);
  float* const x = Floats(10);
  stream_->Zero(x, 40);
  stream_->AddConstant(10, 1, x);
  EXPECT_TRUE(stream_->Synchronize().ok());
  device_->Free(x);
}

TEST_F(EmulatedCudaTest, AnyThreadMayUseAStream) {
  float* const x = Floats(1000);
  std::thread([&] {
    stream_->Zero(x, 4000);
    stream_->AddConstant(1000, 1, x);
    EXPECT_TRUE(stream_->Synchronize().ok());
  }).join();
  device_->Free(x);
}

TEST_F(EmulatedCudaTest, MarksHaveALimit) {
  for (size_t i = 0; i < CudaStream::kMaxMarks; ++i) stream_->PlaceMark();
  EXPECT_TRUE(stream_->Synchronize().ok());
  for (size_t i = 0; i <= CudaStream::kMaxMarks; ++i) stream_->PlaceMark();
  EXPECT_EQ(stream_->Synchronize().code(), absl::StatusCode::kResourceExhausted);
}

TEST(EmulatedCudaOpenTest, OpenErrorsSayWhatIsWrongWithAGpu) {
  EXPECT_TRUE(OpenGpu(0).ok());
  const absl::Status absent = OpenGpu(emulator::kGpus).status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(absent.message(), "there is no GPU 2: this machine has 2 GPUs"))
      << absent;
  emulator::SetCapability(75);
  const absl::Status old = OpenGpu(0).status();
  emulator::SetCapability(90);
  EXPECT_EQ(old.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(old.message(), "compute capability 7.5; 8.0 is needed")) << old;
  emulator::FailNext("cudaGetDeviceCount", cudaErrorNoDevice);
  EXPECT_EQ(OpenGpu(0).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace pawl
