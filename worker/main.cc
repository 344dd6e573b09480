// pawl-worker: computes gradients for a job.
//
//   pawl-worker --scheduler=10.0.0.1:7000
//   pawl-worker --make_index --job=clicks.pbtxt
//
// Joins the job that the scheduler runs, reads the job's data, and trains the logical workers that
// the scheduler assigns to it until the job ends. kUsage has the exit codes.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/daemon/daemon.h"
#include "client_lib/daemon/health_endpoint.h"
#include "client_lib/job/job_file.h"
#include "client_lib/job/job_validation.h"
#include "client_lib/job/straggler.h"
#include "client_lib/process/malloc_tuning.h"
#include "client_lib/security/security.h"
#include "spdlog/spdlog.h"
#include "worker/collective/open_collectives.h"
#include "worker/device/cpu/openblas_kernels.h"
#include "worker/device/open_device.h"
#include "worker/process/interrupt.h"
#include "worker/process/job_data.h"
#include "worker/process/worker.h"

ABSL_FLAG(
    std::string, scheduler, "",
    "host:port of the scheduler, or of the scheduler and its standbys (IP addresses, separated "
    "by commas). Default: the environment variable PAWL_SCHEDULER");
ABSL_FLAG(std::string, listen, "127.0.0.1:0",
          "host:port of the gRPC health service and reflection; port 0 picks a free port");
ABSL_FLAG(std::string, tls_dir, "", pawl::kTlsDirHelp);
ABSL_FLAG(bool, insecure, false, pawl::kInsecureHelp);
ABSL_FLAG(std::string, device, "cpu",
          "where to compute: cpu, or cuda:N (GPUs are numbered from 0)");
ABSL_FLAG(bool, cuda_graphs, false,
          "on a GPU, record the steps of a model without categorical fields as CUDA graphs, which "
          "are launched as a whole. Faster for models so small that launching kernels one by one "
          "takes longer than running them. All gradients are then ready at the end of the step");
ABSL_FLAG(std::string, cuda_math, "float32",
          "how a GPU multiplies matrices: float32; or tf32, which rounds factors to 11 bits (the "
          "speed-up has not been measured yet)");
ABSL_FLAG(
    std::string, matmul_kernel, "auto",
    "instructions for computations on the CPU: auto (the best of this processor), avx512, avx2 "
    "or portable. All give the same bits, unless the job says matmul: FAST");
ABSL_FLAG(
    std::string, collectives, "auto",
    "transport of dense gradients between workers (dense_path: ALLREDUCE). gloo: TCP. nccl: "
    "NVIDIA's NCCL; needs --device=cuda:N, libpawl_nccl.so and NCCL. auto: NCCL if all workers "
    "have the same version of it and each has a GPU of its own, otherwise Gloo; also Gloo if "
    "NCCL fails to connect them. A worker that shares no transport with the others is refused");
ABSL_FLAG(
    std::string, collective_host, "",
    "IP address or name at which the other workers reach this machine (dense_path: ALLREDUCE). "
    "Default: the address on the route to the scheduler; on the scheduler's own machine that "
    "may be one that others cannot reach. NCCL ignores this flag and picks its network by its "
    "own environment variable NCCL_SOCKET_IFNAME");
ABSL_FLAG(bool, insecure_collectives, false,
          "with --tls_dir: allow dense_path: ALLREDUCE between machines, although it is neither "
          "encrypted nor authenticated");
ABSL_FLAG(std::string, data_dir, "",
          "folder for the worker's identity; created if missing. A worker restarted with the same "
          "folder gets its ranks back at once. Without it the worker joins as a new one and gets "
          "the ranks when the old one's lease has expired");
ABSL_FLAG(
    uint64_t, max_data_bytes, 0,
    "memory limit of the job's data, including the evaluation data; a job that needs more fails, "
    "naming the file. Streamed data (data.window_samples) counts by its windows. Default: the "
    "machine's memory or, if it is less, the limit of this process's control group. Set it where "
    "this worker shares its machine");
ABSL_FLAG(
    uint64_t, max_rank_data_bytes, uint64_t{512} << 20,
    "memory limit of the two windows of streamed data that each rank holds; a job with larger "
    "ones fails. 0: only --max_data_bytes limits them");
ABSL_FLAG(std::string, index_dir, "",
          "an existing folder for the indexes of streamed data, which are made where they are "
          "missing. Default: each index is beside its file");
ABSL_FLAG(bool, make_index, false,
          "instead of joining a job: make the indexes of the streamed data that --job names where "
          "they are missing or outdated, and print the data's identity (data.data_id)");
ABSL_FLAG(std::string, job, "", "with --make_index: the job file");
ABSL_FLAG(int, connect_timeout_s, 300,
          "how long to try to reach the scheduler, and to wait for the job's servers");
ABSL_FLAG(
    int, element_delay_ns, 0,
    "for tests and measurements: wait this long for each dense parameter in the forward pass "
    "of a step, and twice as long in the backward pass, to simulate a slow model (dense_path: "
    "ALLREDUCE, no micro_batches)");
ABSL_FLAG(
    int, step_delay_ms, 0,
    "for tests and demonstrations: wait this long in each step before ending it, to simulate a "
    "slow worker");
ABSL_FLAG(
    std::string, straggler, "",
    "for experiments: delays each rank in every step before it computes, as if its machine were "
    "slow. One of constant:ms=20, exponential:mean_ms=5 and pareto:shape=1.5,scale_ms=5. Each "
    "takes max_ms=N (default: 10000) and ranks=0+2+8-11 (default: all). The delays depend only on "
    "the job's seed, the rank and the step, so runs can be compared");

namespace pawl {
namespace {

constexpr char kUsage[] =
    "computes gradients for a job.\n\n"
    "  pawl-worker --scheduler=HOST:PORT [--tls_dir=FOLDER] [--data_dir=FOLDER] "
    "[--device=cpu|cuda:N]\n"
    "  pawl-worker --make_index --job=FILE [--index_dir=FOLDER]\n\n"
    "Joins the job that the scheduler runs, reads the job's data files (their paths must be\n"
    "valid on this machine), trains the logical workers that the scheduler assigns to it, and\n"
    "ends with the job. The job starts when as many workers have joined as pawl-scheduler's\n"
    "--workers says; `pawlctl run` does all of that on one machine. More workers may join at\n"
    "any time: they take their share if the job says `elastic: true`, and otherwise stand by\n"
    "until another one leaves.\n\n"
    "To restart a worker that has died, run the same command: it continues from the step that\n"
    "the servers report. If it does not return, the other workers take over its ranks. SIGTERM\n"
    "makes a worker end its current step and leave; its ranks move to the other workers at\n"
    "once, or wait for the next worker if there is none.\n\n"
    "Exit codes:\n"
    "  0  the job completed or was stopped, or a signal asked this process to end\n"
    "  1  the job failed, the scheduler cannot be reached, or it has declared this process dead\n"
    "  2  wrong usage, or this worker cannot do the job (for example because of bad data)";

// How long the current steps may take after a signal, and how long the shutdown may take after
// that, in case something hangs.
constexpr std::chrono::seconds kStepGrace{4};
constexpr std::chrono::seconds kEndGrace{3};
constexpr std::chrono::milliseconds kSignalInterval{50};

// Sets `leave` on a signal, and `abandon` if the worker has not left after kStepGrace. Ends the
// process if that is not enough.
class SignalWatcher {
 public:
  SignalWatcher(EndSignal& signal, Interrupt& leave, Interrupt& abandon)
      : signal_(signal), leave_(leave), abandon_(abandon), thread_([this] { Watch(); }) {}
  ~SignalWatcher() {
    ending_ = true;
    thread_.join();
  }

 private:
  void Watch() {
    while (!signal_.Wait(kSignalInterval)) {
      if (ending_) return;
    }
    leave_.Set(absl::CancelledError("a signal asked this process to end"));
    const MonotonicTime asked = Clock::Real().Now();
    while (!ending_) {
      const MonotonicTime now = Clock::Real().Now();
      if (now >= asked + kStepGrace)
        abandon_.Set(absl::CancelledError("the current steps take too long"));
      if (now >= asked + kStepGrace + kEndGrace) {
        spdlog::warn("the worker has not left {} s after the signal; ending without a goodbye",
                     (kStepGrace + kEndGrace).count());
        std::_Exit(kExitDone);
      }
      signal_.Wait(kSignalInterval);
    }
  }

  EndSignal& signal_;
  Interrupt& leave_;
  Interrupt& abandon_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

int Report(const WorkerOutcome& outcome) {
  const std::string why(outcome.status.message());
  switch (outcome.end) {
    case WorkerEnd::kCompleted:
      spdlog::info("the job has completed");
      return kExitDone;
    case WorkerEnd::kStopped:
      spdlog::info("{}", why);
      return kExitDone;
    case WorkerEnd::kInterrupted:
      spdlog::info("left the job: {}", why);
      return kExitDone;
    case WorkerEnd::kFailed:
      spdlog::error("{}", why);
      return kExitFailed;
    case WorkerEnd::kUnable:
      spdlog::error("this worker cannot train the job: {}", why);
      return kExitUsage;
  }
  std::abort();
}

// Prints "data_id: ..." for pawlctl and for people.
int MakeIndex() {
  absl::StatusOr<Job> job = ReadJobFile(absl::GetFlag(FLAGS_job));
  if (!job.ok()) return UsageError(job.status().message());
  if (const absl::Status valid = ValidateJob(*job, {.check_files = false}); !valid.ok())
    return UsageError(valid.message());
  const absl::StatusOr<std::string> id = MakeDataIndex(*job, absl::GetFlag(FLAGS_index_dir));
  if (!id.ok()) return UsageError(id.status().message());
  std::cout << "data_id: " << *id << std::endl;
  return kExitDone;
}

// The options of the command line. Creates --data_dir.
absl::StatusOr<WorkerOptions> ReadOptions() {
  WorkerOptions options;
  options.scheduler = SchedulerAddress(absl::GetFlag(FLAGS_scheduler));
  if (options.scheduler.empty()) {
    return absl::InvalidArgumentError(
        "--scheduler is missing and the environment variable PAWL_SCHEDULER is not set");
  }
  PAWL_RETURN_IF_ERROR(CheckSchedulerAddress(options.scheduler));
  options.data_dir = absl::GetFlag(FLAGS_data_dir);
  if (!options.data_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.data_dir, error);
    if (error)
      return absl::InvalidArgumentError(
          absl::StrCat("--data_dir=", options.data_dir, " cannot be created: ", error.message()));
  }
  options.security = WithEnvironment({absl::GetFlag(FLAGS_tls_dir), absl::GetFlag(FLAGS_insecure)});
  options.device = absl::GetFlag(FLAGS_device);
  const absl::StatusOr<CudaMath> cuda_math = ParseCudaMath(absl::GetFlag(FLAGS_cuda_math));
  if (!cuda_math.ok())
    return absl::InvalidArgumentError(absl::StrCat("--cuda_math: ", cuda_math.status().message()));
  options.cuda_math = *cuda_math;
  const absl::StatusOr<GemmKernel> kernel = ParseGemmKernel(absl::GetFlag(FLAGS_matmul_kernel));
  if (!kernel.ok())
    return absl::InvalidArgumentError(absl::StrCat("--matmul_kernel: ", kernel.status().message()));
  options.matmul_kernel = *kernel;
  const absl::StatusOr<CollectivesChoice> collectives =
      ParseCollectives(absl::GetFlag(FLAGS_collectives));
  if (!collectives.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("--collectives: ", collectives.status().message()));
  options.collectives = *collectives;
  options.records_steps = absl::GetFlag(FLAGS_cuda_graphs);
  options.insecure_collectives = absl::GetFlag(FLAGS_insecure_collectives);
  options.collective_host = absl::GetFlag(FLAGS_collective_host);
  if (absl::StrContains(options.collective_host, "://") ||
      absl::StrContains(options.collective_host, ' ')) {
    return absl::InvalidArgumentError(absl::StrCat("--collective_host=", options.collective_host,
                                                   " is not an IP address or name"));
  }
  options.max_data_bytes = absl::GetFlag(FLAGS_max_data_bytes);
  options.max_rank_data_bytes = absl::GetFlag(FLAGS_max_rank_data_bytes);
  options.index_dir = absl::GetFlag(FLAGS_index_dir);
  if (absl::GetFlag(FLAGS_connect_timeout_s) < 1)
    return absl::InvalidArgumentError("--connect_timeout_s must be at least 1");
  options.connect_timeout = std::chrono::seconds(absl::GetFlag(FLAGS_connect_timeout_s));
  if (absl::GetFlag(FLAGS_element_delay_ns) < 0)
    return absl::InvalidArgumentError("--element_delay_ns must not be negative");
  options.element_delay = std::chrono::nanoseconds(absl::GetFlag(FLAGS_element_delay_ns));
  if (absl::GetFlag(FLAGS_step_delay_ms) < 0)
    return absl::InvalidArgumentError("--step_delay_ms must not be negative");
  options.step_delay = std::chrono::milliseconds(absl::GetFlag(FLAGS_step_delay_ms));
  const absl::StatusOr<Straggler> straggler = ParseStraggler(absl::GetFlag(FLAGS_straggler));
  if (!straggler.ok())
    return absl::InvalidArgumentError(absl::StrCat("--straggler: ", straggler.status().message()));
  options.straggler = *straggler;
  return options;
}

int Main(int argc, char** argv) {
  RestartWithHugePages(argv);
  RestartWithBetterOpenBlasKernels(argv);
  SetUpDaemon("pawl-worker", kUsage, argc, argv);
  if (absl::GetFlag(FLAGS_make_index)) return MakeIndex();
  absl::StatusOr<WorkerOptions> read = ReadOptions();
  if (!read.ok()) return UsageError(read.status().message());
  WorkerOptions options = *std::move(read);
  const absl::StatusOr<std::unique_ptr<Security>> security =
      Security::Open(options.security, RoleSet(PeerRole::kWorker));
  if (!security.ok()) return UsageError(security.status().message());
  absl::Status addresses = (*security)->CheckAddresses("scheduler", options.scheduler);
  addresses.Update((*security)->CheckAddresses("listen", absl::GetFlag(FLAGS_listen)));
  if (!addresses.ok()) return UsageError(addresses.message());

  spdlog::info("CPU kernels: {}; OpenBLAS kernels: {}", GemmKernelName(options.matmul_kernel),
               OpenBlasKernels());
  if (const std::string straggler = absl::GetFlag(FLAGS_straggler); !straggler.empty())
    spdlog::warn("--straggler={}: delaying this worker's steps", straggler);
  EndSignal signal;
  absl::StatusOr<std::unique_ptr<HealthEndpoint>> health =
      HealthEndpoint::Listen(absl::GetFlag(FLAGS_listen), (*security)->Listening());
  if (!health.ok()) return UsageError(absl::StrCat("--listen: ", health.status().message()));
  spdlog::info("serving health checks on {}", (*health)->address());
  options.on_training = [&health] { (*health)->SetServing(true); };
  Interrupt leave;
  Interrupt abandon;
  WorkerOutcome outcome;
  {
    SignalWatcher watcher(signal, leave, abandon);
    outcome = RunWorker(options, leave, abandon);
  }
  (*health)->SetServing(false);
  const int exit_code = Report(outcome);
  // A thread may still be reading data, so nothing that it uses may be destroyed.
  if (outcome.end != WorkerEnd::kCompleted || outcome.is_reading) std::_Exit(exit_code);
  return exit_code;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) { return pawl::Main(argc, argv); }
