// Compares the speed of a GPU's operations with the limits of its memory and its multipliers, or
// checks their results.
//
//   gpu_kernels                        times each operation and prints JSON
//   gpu_kernels --check                compares each with the CPU instead
//
// It first measures the limits on the same GPU: the bytes per second of a large copy within its
// memory, and the operations per second of a large matrix product. An operation's floor is the
// larger of its bytes and its operations at these rates. A time is the mean of a row of runs issued
// to the stream at once, for the best of several rows.
//
// Exit codes: 0: done (with --check: all results are right), 1: some results are wrong, 2: wrong
// usage, 3: this machine has no such device.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/daemon/daemon.h"
#include "nlohmann/json.hpp"
#include "tests/gpu/kernel_cases.h"
#include "worker/device/open_device.h"
#include "worker/device/testing/kernel_checks.h"

ABSL_FLAG(std::string, device, "cuda:0", "cuda:N for the N-th GPU, or cpu");
ABSL_FLAG(std::string, cuda_math, "float32", "matrix multiplication: float32 or tf32");
ABSL_FLAG(bool, check, false, "compare each operation with the CPU");
ABSL_FLAG(int, samples, 65536, "samples per timed batch");
ABSL_FLAG(int, row_ms, 20, "approximate duration of a row of runs");

namespace pawl {
namespace {

constexpr int kRows = 5;
constexpr int kMaxRunsInRow = 2000;
constexpr size_t kCheckLargest = 100000;
constexpr uint32_t kCheckSeeds[] = {1, 2, 3};
// Large enough for a copy and a product to reach a GPU's limits; smaller for the CPU, where they
// would take too long.
constexpr size_t kCopyFloats = size_t{64} << 20;
constexpr size_t kProductSide = 8192;
constexpr size_t kSmaller = 16;

double TimeRuns(const std::function<void(Stream&)>& run, Stream& stream, int runs,
                absl::Status* status) {
  const MonotonicTime start = Clock::Real().Now();
  for (int i = 0; i < runs; ++i) run(stream);
  status->Update(stream.Synchronize());
  return Seconds(Clock::Real().Now() - start) / runs;
}

// The seconds of one run.
absl::StatusOr<double> TimeOf(const std::function<void(Stream&)>& run, Stream& stream) {
  absl::Status status;
  // The first run loads code and allocates memory.
  TimeRuns(run, stream, 1, &status);
  const double once = TimeRuns(run, stream, 2, &status);
  const double wanted = absl::GetFlag(FLAGS_row_ms) * 1e-3 / std::max(once, 1e-7);
  const int runs = static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(kMaxRunsInRow)));
  double best = 0;
  for (int row = 0; row < kRows; ++row) {
    const double time = TimeRuns(run, stream, runs, &status);
    if (row == 0 || time < best) best = time;
  }
  PAWL_RETURN_IF_ERROR(status);
  return best;
}

absl::StatusOr<nlohmann::json> Measure(Device& device) {
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.CreateStream());
  const size_t divisor = device.SharesHostMemory() ? kSmaller : 1;
  double copy_bytes_per_s = 0, operations_per_s = 0;
  {
    Workspace workspace(device);
    PAWL_ASSIGN_OR_RETURN(const Matrix from, workspace.AllocateMatrix(1, kCopyFloats / divisor));
    PAWL_ASSIGN_OR_RETURN(const Matrix to, workspace.AllocateMatrix(1, kCopyFloats / divisor));
    stream->Zero(from.data, from.columns * sizeof(float));
    PAWL_ASSIGN_OR_RETURN(const double copy,
                          TimeOf([&](Stream& s) { s.Copy(from, Write::kReplace, to); }, *stream));
    copy_bytes_per_s = 2 * sizeof(float) * from.columns / copy;
    const size_t side = kProductSide / divisor;
    PAWL_ASSIGN_OR_RETURN(const Matrix a, workspace.AllocateMatrix(side, side));
    PAWL_ASSIGN_OR_RETURN(const Matrix c, workspace.AllocateMatrix(side, side));
    stream->Zero(a.data, side * side * sizeof(float));
    stream->AddConstant(side * side, 0.5f, a.data);
    PAWL_ASSIGN_OR_RETURN(const double product, TimeOf(
                                                    [&](Stream& s) {
                                                      s.Gemm(Factors::kFloat32, Transpose::kNo,
                                                             Transpose::kNo, 1, a, a, 0, c);
                                                    },
                                                    *stream));
    operations_per_s = 2.0 * side * side * side / product;
  }
  nlohmann::json kernels = nlohmann::json::array();
  Workspace workspace(device);
  PAWL_ASSIGN_OR_RETURN(const std::vector<KernelCase> cases,
                        KernelCases(absl::GetFlag(FLAGS_samples), *stream, workspace));
  for (const KernelCase& kernel : cases) {
    PAWL_ASSIGN_OR_RETURN(const double time, TimeOf(kernel.run, *stream));
    const double floor =
        std::max(kernel.bytes / copy_bytes_per_s, kernel.operations / operations_per_s);
    kernels.push_back({{"operation", kernel.operation},
                       {"shape", kernel.shape},
                       {"time_us", time * 1e6},
                       {"floor_us", floor * 1e6},
                       {"ratio", time / floor},
                       {"bytes", kernel.bytes},
                       {"operations", kernel.operations}});
  }
  return nlohmann::json{{"device", absl::GetFlag(FLAGS_device)},
                        {"cuda_math", absl::GetFlag(FLAGS_cuda_math)},
                        {"copy_bytes_per_s", copy_bytes_per_s},
                        {"gemm_operations_per_s", operations_per_s},
                        {"kernels", kernels}};
}

// Returns true if all results are right.
bool Check(Device& device) {
  nlohmann::json checks = nlohmann::json::array();
  bool all_right = true;
  for (const uint32_t seed : kCheckSeeds) {
    for (const KernelCheck& check : CheckKernels(device, kCheckLargest, seed)) {
      all_right &= check.status.ok();
      checks.push_back({{"operation", check.operation},
                        {"seed", seed},
                        {"cases", check.cases},
                        {"worst", check.worst},
                        {"error", check.status.ok() ? "" : check.status.ToString()}});
    }
  }
  const nlohmann::json report = {
      {"device", absl::GetFlag(FLAGS_device)}, {"all_right", all_right}, {"checks", checks}};
  std::printf("%s\n", report.dump(2).c_str());
  return all_right;
}

int Main(int argc, char** argv) {
  SetUpDaemon("gpu_kernels",
              "measures a GPU's operations, or with --check compares them with the CPU", argc,
              argv);
  if (absl::GetFlag(FLAGS_samples) < 1) return UsageError("--samples must be at least 1");
  const auto math = ParseCudaMath(absl::GetFlag(FLAGS_cuda_math));
  if (!math.ok()) {
    std::fprintf(stderr, "gpu_kernels: --cuda_math: %s\n", math.status().ToString().c_str());
    return 2;
  }
  const auto device = OpenDevice(absl::GetFlag(FLAGS_device), *math);
  if (!device.ok()) {
    std::fprintf(stderr, "gpu_kernels: %s\n", device.status().ToString().c_str());
    return absl::IsInvalidArgument(device.status()) ? 2 : 3;
  }
  if (absl::GetFlag(FLAGS_check)) return Check(**device) ? 0 : 1;
  const absl::StatusOr<nlohmann::json> report = Measure(**device);
  if (!report.ok()) {
    std::fprintf(stderr, "gpu_kernels: %s\n", report.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", report->dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) { return pawl::Main(argc, argv); }
