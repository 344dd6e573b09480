// Measures how much of the communication of dense gradients is hidden behind computation: a network
// of wide layers whose dense part the workers train by collectives (dense_path: ALLREDUCE). Each
// worker is a host of its own with a link slowed until communication takes as long as computation.
// Prints one JSON object.
//
//   bazel run -c opt //tests/perf:overlap
//   bazel run -c opt //tests/perf:overlap -- --bucket_bytes=262144,1048576 --bytes_per_s=125000000
//   --rounds=9
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client_lib/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "tests/harness/network_namespaces.h"
#include "tests/harness/process_cluster.h"
#include "tests/harness/runfile.h"
#include "tests/perf/process_usage.h"

ABSL_FLAG(uint32_t, workers, 2, "worker processes with one rank each");
ABSL_FLAG(uint32_t, inputs, 256, "numbers per sample");
ABSL_FLAG(uint32_t, layers, 16, "hidden layers");
ABSL_FLAG(uint32_t, width, 384, "width of each hidden layer");
ABSL_FLAG(uint32_t, rank_batch, 256, "samples per rank and step; sets the computation time");
ABSL_FLAG(uint32_t, element_delay_ns, 0,
          "if set, simulates most of the computation by waiting this long per parameter in the "
          "forward pass and twice as long in the backward pass; for machines without a core per "
          "worker, with --rank_batch=1");
ABSL_FLAG(std::string, optimizer, "adam { learning_rate: 0.0001 }",
          "the job's optimizer, which runs on the workers");
ABSL_FLAG(std::vector<std::string>, bucket_bytes,
          std::vector<std::string>({"0", "1048576", "1073741824"}),
          "values of the job's all_reduce.bucket_bytes, one case each (0: the default). A value "
          "larger than the dense part shows the gain of sending it in pieces");
ABSL_FLAG(uint64_t, bytes_per_s, 0,
          "rate of a worker's link; 0: a step's bytes take as long as its computation");
ABSL_FLAG(uint32_t, rounds, 7,
          "rounds per case; the link alternates between unlimited and limited");
ABSL_FLAG(double, seconds, 10,
          "duration of each turn; it counts whole steps, so it should contain many");

namespace pawl {
namespace {

constexpr uint32_t kClasses = 10;
// The number of generated samples.
constexpr uint64_t kSamples = 4096;
// The time for a changed link or a new worker to reach its steady rate.
constexpr std::chrono::milliseconds kWarmUp{1000};
constexpr std::chrono::seconds kReportTimeout{60};
// Heartbeats report the progress; several of them fit a lease.
constexpr char kLease[] = "--lease_ms=1500";
constexpr char kWorker[] = "worker-0";

// Elements of all layers, weights and biases.
uint64_t DenseElements() {
  uint64_t inputs = absl::GetFlag(FLAGS_inputs);
  uint64_t elements = 0;
  for (uint32_t i = 0; i < absl::GetFlag(FLAGS_layers); ++i) {
    elements += (inputs + 1) * absl::GetFlag(FLAGS_width);
    inputs = absl::GetFlag(FLAGS_width);
  }
  return elements + (inputs + 1) * kClasses;
}

// The bytes that a worker must send per step for an optimal all-reduce.
double LeastBytes() {
  const double workers = absl::GetFlag(FLAGS_workers);
  return 2 * (workers - 1) / workers * static_cast<double>(DenseElements() * sizeof(float));
}

void AppendBigEndian(std::string& text, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(value >> shift));
}

// Writes noise as IDX files; the learned model does not matter. Returns the images' path.
absl::StatusOr<std::string> WriteData() {
  PAWL_ASSIGN_OR_RETURN(const std::string folder, MakeOutputFolder("overlap"));
  const uint32_t inputs = absl::GetFlag(FLAGS_inputs);
  std::mt19937 random(1);
  std::string images("\0\0\x08\x02", 4);
  AppendBigEndian(images, kSamples);
  AppendBigEndian(images, inputs);
  for (uint64_t i = 0; i < kSamples * inputs; ++i)
    images.push_back(static_cast<char>(random() & 0xff));
  std::string labels("\0\0\x08\x01", 4);
  AppendBigEndian(labels, kSamples);
  for (uint64_t i = 0; i < kSamples; ++i) labels.push_back(static_cast<char>(random() % kClasses));
  std::string path = absl::StrCat(folder, "/images-idx3");
  for (const auto& [name, bytes] :
       {std::pair(path, &images), std::pair(absl::StrCat(folder, "/labels-idx1"), &labels)}) {
    std::ofstream file(name, std::ios::binary);
    file << *bytes;
    file.close();
    if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", name));
  }
  return path;
}

absl::StatusOr<std::unique_ptr<ProcessCluster>> Start(NetworkNamespaces& network,
                                                      const std::string& data, uint32_t workers,
                                                      uint32_t rank_batch,
                                                      uint32_t element_delay_ns,
                                                      uint64_t bucket_bytes) {
  ProcessClusterOptions options;
  // No evaluation, and no write-back that would affect the measurement.
  options.job = absl::StrCat(
      "name: 'overlap' seed: 1 data { train: '", data, "' format: IDX }\nmodel { mlp { hidden: [",
      absl::StrJoin(std::vector<uint32_t>(absl::GetFlag(FLAGS_layers), absl::GetFlag(FLAGS_width)),
                    ", "),
      "] classes: ", kClasses, " } } optimizer { ", absl::GetFlag(FLAGS_optimizer),
      " }\nconsistency { mode: SYNC } partitions: 8 durability: MEMORY epochs: "
      "1000000\nbatch_size: ",
      workers * rank_batch, " logical_workers: ", workers,
      " dense_path: ALLREDUCE all_reduce { bucket_bytes: ", bucket_bytes,
      " write_back_steps: 1000000 }\n");
  options.servers = 1;
  options.workers = workers;
  options.network = &network;
  options.flags["scheduler"] = {kLease};
  // Each worker computes on one core.
  for (uint32_t i = 0; i < workers; ++i) {
    options.environment[absl::StrCat("worker-", i)] = {"OPENBLAS_NUM_THREADS=1"};
    options.flags[absl::StrCat("worker-", i)] = {
        absl::StrCat("--element_delay_ns=", element_delay_ns)};
  }
  return ProcessCluster::Start(std::move(options));
}

// The busy time of all processors since the machine started, in seconds.
double MachineCpuSeconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft_interrupts = 0,
         steal = 0;
  file >> name >> user >> nice >> system >> idle >> waiting >> interrupts >> soft_interrupts >>
      steal;
  return (user + nice + system + interrupts + soft_interrupts + steal) /
         static_cast<double>(sysconf(_SC_CLK_TCK));
}

// A worker's progress at its last report.
struct Progress {
  uint64_t steps = 0;
  double training_s = 0;
  double waiting_s = 0;
  double cpu_s = 0;
  // CPU seconds of processes outside the cluster.
  double others_cpu_s = 0;
  double sent_bytes = 0;
  MonotonicTime time;
};

// Waits for the next report.
absl::StatusOr<Progress> NextReport(ProcessCluster& cluster, NetworkNamespaces& network) {
  std::optional<uint64_t> first;
  Progress progress;
  PAWL_RETURN_IF_ERROR(cluster
                           .WaitFor(
                               [&](const GetStatusResponse& status) {
                                 for (const NodeStatus& node : status.nodes()) {
                                   if (node.node() != kWorker) continue;
                                   progress.steps = node.worker().steps_min();
                                   progress.training_s = node.worker().training_s();
                                   progress.waiting_s = node.worker().waiting_s();
                                 }
                                 if (!first.has_value()) first = progress.steps;
                                 return status.state() > RUNNING || progress.steps > *first;
                               },
                               kReportTimeout)
                           .status());
  if (progress.steps == *first)
    return absl::AbortedError(absl::StrCat("the training has ended:\n", cluster.Describe()));
  progress.time = Clock::Real().Now();
  progress.cpu_s = CpuSeconds(cluster.node(kWorker).pid());
  progress.others_cpu_s = MachineCpuSeconds();
  for (const std::string& name : cluster.names())
    progress.others_cpu_s -= CpuSeconds(cluster.node(name).pid());
  PAWL_ASSIGN_OR_RETURN(const uint64_t sent, network.SentBytes(kWorker));
  progress.sent_bytes = static_cast<double>(sent);
  return progress;
}

// The means of a step in one turn.
struct Turn {
  double step_ms = 0;
  // Not waiting for anything, including other workers.
  double computing_ms = 0;
  double cpu_ms = 0;
  double sent_bytes = 0;
  // The number of processors that other programs kept busy.
  double others_processors = 0;
};

absl::StatusOr<Turn> MeasureTurn(ProcessCluster& cluster, NetworkNamespaces& network) {
  std::this_thread::sleep_for(kWarmUp);
  PAWL_ASSIGN_OR_RETURN(const Progress begin, NextReport(cluster, network));
  std::this_thread::sleep_for(std::chrono::duration<double>(absl::GetFlag(FLAGS_seconds)));
  PAWL_ASSIGN_OR_RETURN(const Progress end, NextReport(cluster, network));
  const auto steps = static_cast<double>(end.steps - begin.steps);
  const double training_s = end.training_s - begin.training_s;
  const Turn turn = {.step_ms = 1e3 * training_s / steps,
                     .computing_ms = 1e3 * (training_s - (end.waiting_s - begin.waiting_s)) / steps,
                     .cpu_ms = 1e3 * (end.cpu_s - begin.cpu_s) / steps,
                     .sent_bytes = (end.sent_bytes - begin.sent_bytes) / steps,
                     .others_processors =
                         (end.others_cpu_s - begin.others_cpu_s) / Seconds(end.time - begin.time)};
  std::fprintf(stderr,
               "%.0f steps of %.1f ms, %.1f ms computing; others keep %.1f processors busy\n",
               steps, turn.step_ms, turn.computing_ms, turn.others_processors);
  return turn;
}

// The half of the turns with the least load by other programs.
std::vector<Turn> LeastDisturbed(std::vector<Turn> turns) {
  std::sort(turns.begin(), turns.end(),
            [](const Turn& a, const Turn& b) { return a.others_processors < b.others_processors; });
  turns.resize((turns.size() + 1) / 2);
  return turns;
}

double Median(const std::vector<Turn>& turns, double Turn::*figure) {
  std::vector<double> values;
  for (const Turn& turn : LeastDisturbed(turns)) values.push_back(turn.*figure);
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

nlohmann::ordered_json Json(const std::vector<Turn>& turns) {
  nlohmann::ordered_json figures = {{"step_ms", Median(turns, &Turn::step_ms)},
                                    {"computing_ms", Median(turns, &Turn::computing_ms)},
                                    {"worker_cpu_ms", Median(turns, &Turn::cpu_ms)},
                                    {"sent_bytes", Median(turns, &Turn::sent_bytes)},
                                    {"others_processors", Median(turns, &Turn::others_processors)}};
  for (const Turn& turn : turns) figures["turns"].push_back({turn.step_ms, turn.others_processors});
  return figures;
}

absl::StatusOr<std::vector<Turn>> MeasureTurns(ProcessCluster& cluster,
                                               NetworkNamespaces& network) {
  std::vector<Turn> turns;
  for (uint32_t i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
    PAWL_ASSIGN_OR_RETURN(turns.emplace_back(), MeasureTurn(cluster, network));
  }
  return turns;
}

absl::Status LimitAll(NetworkNamespaces& network, uint64_t bytes_per_second) {
  for (uint32_t i = 0; i < absl::GetFlag(FLAGS_workers); ++i) {
    PAWL_RETURN_IF_ERROR(network.Limit(absl::StrCat("worker-", i), bytes_per_second));
  }
  return absl::OkStatus();
}

absl::Status UnlimitAll(NetworkNamespaces& network) {
  for (uint32_t i = 0; i < absl::GetFlag(FLAGS_workers); ++i) {
    PAWL_RETURN_IF_ERROR(network.Unlimit(absl::StrCat("worker-", i)));
  }
  return absl::OkStatus();
}

// The rate of the links at which a step's bytes take this long.
uint64_t RateFor(double communication_ms) {
  const uint64_t wanted = absl::GetFlag(FLAGS_bytes_per_s);
  return wanted > 0 ? wanted : static_cast<uint64_t>(1e3 * LeastBytes() / communication_ms);
}

// A turn with limited links and the unlimited turn before it, under the same load of the machine.
struct Pair {
  Turn free;
  Turn limited;
  double communication_ms = 0;

  double Larger() const { return std::max(free.computing_ms, communication_ms); }
};

absl::StatusOr<nlohmann::ordered_json> MeasureCase(NetworkNamespaces& network,
                                                   const std::string& data, uint64_t bucket_bytes) {
  std::vector<Pair> pairs;
  {
    PAWL_ASSIGN_OR_RETURN(
        const auto cluster,
        Start(network, data, absl::GetFlag(FLAGS_workers), absl::GetFlag(FLAGS_rank_batch),
              absl::GetFlag(FLAGS_element_delay_ns), bucket_bytes));
    for (uint32_t i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
      Pair& pair = pairs.emplace_back();
      PAWL_ASSIGN_OR_RETURN(pair.free, MeasureTurn(*cluster, network));
      const uint64_t bytes_per_second = RateFor(pair.free.computing_ms);
      pair.communication_ms = 1e3 * LeastBytes() / static_cast<double>(bytes_per_second);
      PAWL_RETURN_IF_ERROR(LimitAll(network, bytes_per_second));
      PAWL_ASSIGN_OR_RETURN(pair.limited, MeasureTurn(*cluster, network));
      PAWL_RETURN_IF_ERROR(UnlimitAll(network));
    }
  }
  std::vector<Turn> free;
  std::vector<Turn> limited;
  std::vector<double> ratios;
  nlohmann::ordered_json turns;
  std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
    return std::max(a.free.others_processors, a.limited.others_processors) <
           std::max(b.free.others_processors, b.limited.others_processors);
  });
  for (const Pair& pair : pairs) {
    turns.push_back(
        {{"computing_ms", pair.free.computing_ms},
         {"communication_ms", pair.communication_ms},
         {"step_ms", pair.limited.step_ms},
         {"step_of_larger", pair.limited.step_ms / pair.Larger()},
         {"others_processors", {pair.free.others_processors, pair.limited.others_processors}}});
    free.push_back(pair.free);
    limited.push_back(pair.limited);
    if (2 * ratios.size() < pairs.size()) ratios.push_back(pair.limited.step_ms / pair.Larger());
  }
  std::sort(ratios.begin(), ratios.end());
  return nlohmann::ordered_json{
      {"bucket_bytes", bucket_bytes},
      {"step_of_larger", ratios[ratios.size() / 2]},
      {"sent_of_least_bytes", Median(limited, &Turn::sent_bytes) / LeastBytes()},
      {"link_not_limited", Json(free)},
      {"link_limited", Json(limited)},
      {"turns", turns}};
}

absl::StatusOr<nlohmann::ordered_json> Measure() {
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<NetworkNamespaces> network,
                        NetworkNamespaces::Enter());
  PAWL_ASSIGN_OR_RETURN(const std::string data, WriteData());
  std::vector<uint64_t> cases;
  for (const std::string& text : absl::GetFlag(FLAGS_bucket_bytes)) {
    if (!absl::SimpleAtoi(text, &cases.emplace_back())) {
      return absl::InvalidArgumentError(absl::StrCat("--bucket_bytes: not a number: `", text, "`"));
    }
  }
  if (cases.empty() || absl::GetFlag(FLAGS_workers) < 2 || absl::GetFlag(FLAGS_rounds) == 0) {
    return absl::InvalidArgumentError(
        "--bucket_bytes and --rounds: at least one; --workers: at least 2");
  }

  std::vector<Turn> alone;
  {
    PAWL_ASSIGN_OR_RETURN(const auto cluster,
                          Start(*network, data, /*workers=*/1, absl::GetFlag(FLAGS_rank_batch),
                                absl::GetFlag(FLAGS_element_delay_ns), cases.front()));
    PAWL_ASSIGN_OR_RETURN(alone, MeasureTurns(*cluster, *network));
  }
  const uint64_t bytes_per_second = RateFor(Median(alone, &Turn::step_ms));
  nlohmann::ordered_json figures = {{"workers", absl::GetFlag(FLAGS_workers)},
                                    {"processors", std::thread::hardware_concurrency()},
                                    {"dense_bytes", DenseElements() * sizeof(float)},
                                    {"least_bytes_of_worker_and_step", LeastBytes()},
                                    {"one_worker_alone", Json(alone)}};
  {
    // One sample per rank: computation is negligible.
    PAWL_ASSIGN_OR_RETURN(const auto cluster,
                          Start(*network, data, absl::GetFlag(FLAGS_workers), /*rank_batch=*/1,
                                /*element_delay_ns=*/0, cases.front()));
    PAWL_RETURN_IF_ERROR(LimitAll(*network, bytes_per_second));
    PAWL_ASSIGN_OR_RETURN(const std::vector<Turn> turns, MeasureTurns(*cluster, *network));
    PAWL_RETURN_IF_ERROR(UnlimitAll(*network));
    figures["one_sample_a_rank"] = Json(turns);
    figures["one_sample_a_rank"]["least_ms"] =
        1e3 * LeastBytes() / static_cast<double>(bytes_per_second);
  }
  for (const uint64_t bucket_bytes : cases) {
    PAWL_ASSIGN_OR_RETURN(figures["cases"].emplace_back(),
                          MeasureCase(*network, data, bucket_bytes));
  }
  return figures;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Measures how much of the communication of dense gradients is hidden behind computation.\n"
      "Workers train an MLP's dense part by collectives. Each is a host of its own (a network\n"
      "namespace, without root where the kernel permits it), with a link limited until a step's\n"
      "bytes take as long as its computation. Prints:\n"
      "  one_worker_alone    computation without communication\n"
      "  one_sample_a_rank   communication with negligible computation, at the limited rate\n"
      "  cases               both, for each of --bucket_bytes, in pairs of turns: first without,\n"
      "                      then with the limit. step_of_larger is the step's time divided by\n"
      "                      the larger of computation (without the limit) and communication\n"
      "                      (the least bytes over the rate): 1 is perfect, 2 is no overlap\n"
      "All figures are means of a step of worker-0, as it reports its progress. Each is the\n"
      "median of the half of --rounds turns with the least load by other programs\n"
      "(others_processors is the number of processors that these used; `turns` lists all turns).\n"
      "computing_ms is the part of a step in which the worker does not wait, worker_cpu_ms the\n"
      "processor time of all its threads. Each worker needs a core of its own; with fewer cores:\n"
      "  bazel run -c opt //tests/perf:overlap -- --rank_batch=1 --element_delay_ns=60");
  absl::ParseCommandLine(argc, argv);
  const auto figures = pawl::Measure();
  if (!figures.ok()) {
    std::fprintf(stderr, "overlap: %s\n", std::string(figures.status().message()).c_str());
    return 1;
  }
  std::printf("%s\n", figures->dump(2).c_str());
  return 0;
}
