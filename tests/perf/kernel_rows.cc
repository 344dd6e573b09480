#include "tests/perf/kernel_rows.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>

#include "client_lib/base/clock.h"
#include "client_lib/base/partitioner.h"
#include "google/protobuf/text_format.h"
#include "server/optimizer/update_rule.h"
#include "server/shard/partition.h"

namespace pawl {
namespace {

// 16 MiB of weights: with gradient and slots far larger than the caches.
constexpr size_t kBlocks = 64;
// Any value would do, except that subnormal weights are slow.
constexpr float kGradient = 1e-3f;

struct Kernel {
  const char* name;
  const char* spec;
  // Floats read and written per element.
  int traffic;
};
constexpr Kernel kKernels[] = {
    {"sgd", "sgd { learning_rate: 0.01 }", 3},
    {"momentum", "momentum { learning_rate: 0.01 }", 5},
    {"adagrad", "adagrad { learning_rate: 0.01 }", 5},
    {"adam", "adam { learning_rate: 0.01 }", 7},
    {"ftrl", "ftrl { learning_rate: 0.01 }", 7},
};

// Bytes per second of `pass`, which moves `bytes`.
template <typename Pass>
double Rate(double seconds, double bytes, Pass pass) {
  pass();
  const MonotonicTime begin = Clock::Real().Now();
  double elapsed = 0;
  int passes = 0;
  do {
    pass();
    ++passes;
    elapsed = Seconds(Clock::Real().Now() - begin);
  } while (elapsed < seconds);
  return bytes * passes / elapsed;
}

// Ends of a SYNC step in 256 partitions by 10,000 ranks without pushes, compared with 100 ranks.
BenchRow StepEndRow(double seconds) {
  constexpr uint32_t kPartitions = 256;
  const auto ends_a_second = [&](uint32_t ranks) {
    PartitionOptions options;
    options.partitions = kPartitions;
    options.logical_workers = ranks;
    options.consistency.set_mode(SYNC);
    std::deque<Partition> partitions;
    for (uint32_t index = 0; index < kPartitions; ++index) partitions.emplace_back(index, options);
    const MonotonicTime begin = Clock::Real().Now();
    double elapsed = 0;
    uint64_t ends = 0;
    for (uint64_t step = 0; elapsed < seconds; ++step) {
      for (uint32_t rank = 0; rank < ranks && elapsed < seconds; ++rank) {
        for (Partition& partition : partitions) {
          if (!partition.EndStep({Sender::Kind::kLogicalWorker, rank, 1, step}, 0).ok())
            std::abort();
        }
        ends += kPartitions;
        elapsed = Seconds(Clock::Real().Now() - begin);
      }
    }
    return static_cast<double>(ends) / elapsed;
  };
  BenchRow row;
  row.name = "kernel step end, 10,000 ranks";
  row.unit = "M/s";
  row.value = 1e-6 * ends_a_second(10000);
  row.limit_name = "100 ranks";
  row.limit = 1e-6 * ends_a_second(100);
  return row;
}

}  // namespace

std::vector<BenchRow> RunKernelRows(double seconds_a_row) {
  constexpr size_t kFloats = kBlocks * kBlockElements;
  const std::vector<float> gradient(kFloats, kGradient);
  std::vector<float> copy(kFloats);
  const double memcpy_rate = Rate(seconds_a_row, 2.0 * kFloats * sizeof(float), [&] {
    std::memcpy(copy.data(), gradient.data(), kFloats * sizeof(float));
    // Keeps the copy from being optimised away.
    asm volatile("" : : "r"(copy.data()) : "memory");
  });
  std::vector<BenchRow> rows;
  for (const Kernel& kernel : kKernels) {
    Optimizer spec;
    if (!google::protobuf::TextFormat::ParseFromString(kernel.spec, &spec)) std::abort();
    const std::unique_ptr<const UpdateRule> rule = UpdateRule::Create(spec).value();
    // As on a server: each block's weights and slots are contiguous.
    const size_t block_floats = kBlockElements + rule->SlotCount(kBlockElements);
    std::vector<float> state(kBlocks * block_floats, 0.5f);
    for (size_t block = 0; block < kBlocks; ++block) {
      rule->InitializeSlots(kBlockElements, &state[block * block_floats + kBlockElements]);
    }
    uint64_t step = 0;
    BenchRow row;
    row.name = std::string("kernel ") + kernel.name;
    row.unit = "GB/s";
    row.value = 1e-9 * Rate(seconds_a_row, 1.0 * kernel.traffic * kFloats * sizeof(float), [&] {
                  const UpdatePosition position = {step, step};
                  ++step;
                  for (size_t block = 0; block < kBlocks; ++block) {
                    float* weights = &state[block * block_floats];
                    rule->Apply(position, 1.0f, &gradient[block * kBlockElements], kBlockElements,
                                0, kBlockElements, weights, weights + kBlockElements);
                  }
                });
    row.limit_name = "memcpy";
    row.limit = 1e-9 * memcpy_rate;
    rows.push_back(row);
  }
  rows.push_back(StepEndRow(seconds_a_row));
  return rows;
}

}  // namespace pawl
