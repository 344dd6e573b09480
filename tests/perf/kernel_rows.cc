#include "tests/perf/kernel_rows.h"

#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/job_specs.h"
#include "client_lib/base/testing/table_specs.h"
#include "google/protobuf/text_format.h"
#include "server/optimizer/update_rule.h"
#include "server/shard/partition.h"
#include "server/shard/row_store.h"
#include "tests/perf/zipf_keys.h"

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

// The processor time of this thread, in seconds: other processes disturb it less than real time.
double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Bytes per second of `pass`, which moves `bytes`.
template <typename Pass>
double Rate(double seconds, double bytes, Pass pass) {
  pass();
  const double begin = ThreadSeconds();
  double elapsed = 0;
  int passes = 0;
  do {
    pass();
    ++passes;
    elapsed = ThreadSeconds() - begin;
  } while (elapsed < seconds);
  return bytes * passes / elapsed;
}

// Ends of a SYNC step in 256 partitions by 10,000 ranks without pushes, compared with 100 ranks.
BenchRow StepEndRow(double seconds) {
  constexpr uint32_t kPartitions = 256;
  const auto ends_a_second = [&](uint32_t ranks) {
    const PartitionOptions options{
        .partitions = kPartitions, .logical_workers = ranks, .consistency = ConsistencyOf(SYNC)};
    std::deque<Partition> partitions;
    for (uint32_t index = 0; index < kPartitions; ++index) partitions.emplace_back(index, options);
    const double begin = ThreadSeconds();
    double elapsed = 0;
    uint64_t ends = 0;
    for (uint64_t step = 0; elapsed < seconds; ++step) {
      for (uint32_t rank = 0; rank < ranks && elapsed < seconds; ++rank) {
        for (Partition& partition : partitions) {
          if (!partition.EndStep({Sender::Kind::kLogicalWorker, rank, 1, step}, 0).ok())
            std::abort();
        }
        ends += kPartitions;
        elapsed = ThreadSeconds() - begin;
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

// The partitions of a server with a table of kWide floats a row and one of a single float, and
// gradients of several ranks for both: a server's part of the steps of a click model.
class StepBench {
 public:
  explicit StepBench(ConsistencyMode mode) {
    const PartitionOptions options{
        .partitions = kPartitions, .logical_workers = kRanks, .consistency = ConsistencyOf(mode)};
    for (uint32_t index = 0; index < kPartitions; ++index) partitions_.emplace_back(index, options);
    for (uint32_t id = 1; id <= kTables; ++id) {
      TableSpec spec = SparseTableSpec("table-" + std::to_string(id), Width(id), id);
      spec.mutable_optimizer()->mutable_adagrad()->set_learning_rate(0.01f);
      spec.mutable_initializer()->mutable_normal()->set_stddev(0.01f);
      const auto table = TableSchema::Create(spec, /*job_seed=*/1).value();
      for (Partition& partition : partitions_) {
        if (!partition.CreateTable(table).ok()) std::abort();
      }
    }
    ZipfKeys zipf(kRows, /*seed=*/1);
    for (size_t i = 0; i < kKeySets * kRanks; ++i) messages_.push_back(Make(zipf.Distinct(kKeys)));
  }

  static constexpr double kKeysInStep = 2.0 * 4 * 25000;

  void PushAndEnd() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const Message& message = MessageOf(rank);
      for (const Segment& segment : message.segments) {
        const Gradient gradient{segment.keys, segment.values, message.memory, message.bytes};
        if (!partitions_[segment.partition]
                 .Push(SenderOf(rank), segment.table - 1, segment.table, gradient)
                 .ok()) {
          std::abort();
        }
      }
    }
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (Partition& partition : partitions_) {
        if (!partition.EndStep(SenderOf(rank), kTables).ok()) std::abort();
      }
    }
    ++step_;
  }

  void Pull() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      char* out = values_.data();
      for (const Segment& segment : MessageOf(rank).segments) {
        partitions_[segment.partition].Pull(segment.table, segment.keys, out);
        out += segment.values.size();
      }
    }
    ++pulls_;
  }

 private:
  static constexpr uint32_t kPartitions = 128;
  static constexpr uint32_t kRanks = 4;
  static constexpr uint32_t kTables = 2;
  static constexpr uint32_t kWide = 16;
  static constexpr uint64_t kRows = 4000000;
  static constexpr size_t kKeys = 25000;  // of a rank, in each table
  static constexpr size_t kKeySets = 8;

  struct Segment {
    uint32_t partition;
    uint32_t table;
    ByteView keys;
    ByteView values;
  };
  struct Message {
    std::shared_ptr<char[]> memory;
    size_t bytes = 0;
    std::vector<Segment> segments;
  };

  static uint32_t Width(uint32_t table) { return table == 1 ? kWide : 1; }
  Sender SenderOf(uint32_t rank) const {
    return {Sender::Kind::kLogicalWorker, rank, /*incarnation=*/1, step_};
  }
  const Message& MessageOf(uint32_t rank) const {
    return messages_[((step_ + pulls_) % kKeySets) * kRanks + rank];
  }

  Message Make(const std::vector<uint64_t>& keys) {
    Message message;
    message.bytes = keys.size() * (2 * sizeof(uint64_t) + (kWide + 1) * sizeof(float));
    message.memory = std::make_shared<char[]>(message.bytes);
    char* next = message.memory.get();
    std::vector<std::vector<uint64_t>> of_partition(kPartitions * kTables);
    for (const uint64_t key : keys) {
      for (uint32_t table = 1; table <= kTables; ++table) {
        of_partition[PartitionOf(table, key, kPartitions) * kTables + table - 1].push_back(key);
      }
    }
    for (uint32_t i = 0; i < of_partition.size(); ++i) {
      const uint32_t table = i % kTables + 1;
      const size_t key_bytes = of_partition[i].size() * sizeof(uint64_t);
      const std::vector<float> values(of_partition[i].size() * Width(table), kGradient);
      const size_t value_bytes = values.size() * sizeof(float);
      std::memcpy(next, of_partition[i].data(), key_bytes);
      std::memcpy(next + key_bytes, values.data(), value_bytes);
      message.segments.push_back(
          {i / kTables, table, ByteView(next, key_bytes), ByteView(next + key_bytes, value_bytes)});
      next += key_bytes + value_bytes;
    }
    return message;
  }

  std::deque<Partition> partitions_;
  std::vector<Message> messages_;
  std::vector<char> values_ = std::vector<char>(kKeys * (kWide + 1) * sizeof(float));
  uint64_t step_ = 0;
  uint64_t pulls_ = 0;
};

// Steps of a SYNC job on existing rows, compared with the same gradients applied on arrival, and
// pulls of the same rows.
void StepRows(double seconds, std::vector<BenchRow>& rows) {
  StepBench sync(SYNC);
  StepBench async(ASYNC);
  const auto rate = [&](auto pass) { return 1e-6 * Rate(seconds, StepBench::kKeysInStep, pass); };
  for (int step = 0; step < 8; ++step) {
    sync.PushAndEnd();
    async.PushAndEnd();
  }
  BenchRow row;
  row.name = "kernel SYNC push and end, 4 ranks";
  row.unit = "Mkeys/s";
  row.limit_name = "ASYNC";
  row.limit = rate([&] { async.PushAndEnd(); });
  row.value = rate([&] { sync.PushAndEnd(); });
  rows.push_back(row);
  row = BenchRow();
  row.name = "kernel SYNC pull, 4 ranks";
  row.unit = "Mkeys/s";
  row.value = rate([&] { sync.Pull(); });
  rows.push_back(row);
}

// The memory of a row of 16 floats with its slots, as a multiple of its data, at the worst of the
// sizes from 1 to 10 million rows in 256 partitions.
void MemoryRows(std::vector<BenchRow>& rows) {
  constexpr uint64_t kStores = 4;
  const auto allocated = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  for (const auto& [name, floats] :
       {std::pair("Adagrad", 32), {"Adam", 49}, {"row-wise Adagrad", 17}}) {
    const size_t before = allocated();
    std::deque<RowStore> stores;
    for (uint64_t i = 0; i < kStores; ++i) stores.emplace_back(floats);
    BenchRow row;
    row.name = std::string("kernel memory, ") + name;
    row.unit = "x data";
    row.smaller_is_better = true;
    uint64_t next_size = 1000000 / 256;
    for (uint64_t i = 0; i < 10000000 / 256; ++i) {
      for (uint64_t store = 0; store < kStores; ++store) {
        bool inserted;
        stores[store].FindOrInsert(ZipfKeys::KeyOf(i * kStores + store), floats, inserted);
      }
      if (i + 1 != next_size) continue;
      next_size += next_size / 64;
      const double data = 1.0 * kStores * (i + 1) * floats * sizeof(float);
      row.value = std::max(row.value, static_cast<double>(allocated() - before) / data);
    }
    rows.push_back(row);
  }
}

}  // namespace

std::vector<BenchRow> RunKernelRows(double seconds_a_row, const std::string& filter) {
  std::vector<BenchRow> rows;
  if (absl::StrContains("kernel memory", filter)) MemoryRows(rows);
  if (filter == "kernel memory") return rows;
  if (absl::StrContains("kernel SYNC", filter)) StepRows(seconds_a_row, rows);
  if (filter == "kernel SYNC") return rows;
  constexpr size_t kFloats = kBlocks * kBlockElements;
  const std::vector<float> gradient(kFloats, kGradient);
  std::vector<float> copy(kFloats);
  const double memcpy_rate = Rate(seconds_a_row, 2.0 * kFloats * sizeof(float), [&] {
    std::memcpy(copy.data(), gradient.data(), kFloats * sizeof(float));
    // Keeps the copy from being optimised away.
    asm volatile("" : : "r"(copy.data()) : "memory");
  });
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
