// Measures how fast a worker reads training data.
//
//   read_bench --job=clicks.pbtxt [--samples=N]
//
// Reads data.train as the job says, into memory or streamed, makes all batches of one epoch (or of
// its first N samples) for the job's logical workers, one after another, and prints one line of
// JSON:
//   samples, batches_s, batches_cpu_s        all batches: time, and processor time of all threads
//   samples_per_s, samples_per_cpu_s
//   open_s, open_cpu_s                       reading into memory, or making and opening the index
//   waited_s, windows                        streamed: the time that batches waited for windows
//   memory_bytes                             the most memory that the process had resident
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/job/data_files.h"
#include "client_lib/job/job_file.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/data/stream/streamed_data.h"

ABSL_FLAG(std::string, job, "", "the job file");
ABSL_FLAG(uint64_t, samples, 0, "samples to read; 0: an epoch");

namespace pawl {
namespace {

struct Times {
  double wall_s;
  double cpu_s;

  static Times Now() {
    timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    return {
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
        static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) / 1e9};
  }
  Times Since(const Times& begin) const { return {wall_s - begin.wall_s, cpu_s - begin.cpu_s}; }
};

absl::Status Measure() {
  PAWL_ASSIGN_OR_RETURN(Job job, ReadJobFile(absl::GetFlag(FLAGS_job)));
  FillDefaults(job, /*workers=*/1);
  const Data& spec = job.data();
  PAWL_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                        ExpandDataFiles("data.train", spec.train(), spec.format()));
  const Times opening = Times::Now();
  std::unique_ptr<TrainingData> data;
  const StreamedData* streamed = nullptr;
  if (spec.window_samples() > 0) {
    PAWL_ASSIGN_OR_RETURN(auto opened, StreamedData::Open(spec, files, {}));
    streamed = opened.get();
    data = std::move(opened);
  } else {
    PAWL_ASSIGN_OR_RETURN(data, Dataset::Load(spec, files));
  }
  const Times opened = Times::Now().Since(opening);
  PAWL_ASSIGN_OR_RETURN(const Sampler sampler,
                        Sampler::Create({.samples = data->size(),
                                         .batch_size = job.batch_size(),
                                         .logical_workers = job.logical_workers(),
                                         .seed = job.seed(),
                                         .keep_order = spec.keep_order()}));
  uint64_t steps = sampler.epochs().StepsOf(0);
  if (const uint64_t samples = absl::GetFlag(FLAGS_samples); samples > 0)
    steps = std::min(steps, samples / job.batch_size());
  const Times making = Times::Now();
  uint64_t samples = 0;
  Batch batch;
  for (uint32_t rank = 0; rank < job.logical_workers(); ++rank) {
    const auto batches =
        data->OpenRank(sampler, rank, steps,
                       {FieldLayout::Single(data->shape().field_count), {{1, job.partitions()}}});
    for (uint64_t step = 0; step < steps; ++step) {
      PAWL_RETURN_IF_ERROR(batches->Assemble(step, &batch));
      samples += batch.samples;
    }
  }
  const Times made = Times::Now().Since(making);
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const StreamCounts counts = streamed == nullptr ? StreamCounts() : streamed->counts();
  std::printf(
      "{\"samples\": %.0f, \"batches_s\": %.3f, \"batches_cpu_s\": %.3f, \"samples_per_s\": %.0f, "
      "\"samples_per_cpu_s\": %.0f, \"open_s\": %.3f, \"open_cpu_s\": %.3f, \"waited_s\": %.3f, "
      "\"windows\": %.0f, \"memory_bytes\": %.0f}\n",
      static_cast<double>(samples), made.wall_s, made.cpu_s,
      static_cast<double>(samples) / made.wall_s, static_cast<double>(samples) / made.cpu_s,
      opened.wall_s, opened.cpu_s, counts.waited_s, static_cast<double>(counts.windows),
      static_cast<double>(usage.ru_maxrss) * 1024);
  return absl::OkStatus();
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("measures how fast a worker reads training data");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = pawl::Measure();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
