#include "tests/perf/sync_step_row.h"

#include <unistd.h>

#include <cstdint>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/client.h"
#include "tests/harness/process_cluster.h"
#include "tests/perf/process_usage.h"
#include "tests/perf/zipf_keys.h"

namespace pawl {
namespace {

constexpr uint32_t kRanks = 4;
constexpr uint32_t kServers = 2;
constexpr uint64_t kRows = 4000000;
constexpr size_t kKeysOfRank = 25000;
constexpr uint32_t kWidths[] = {16, 1};
// Steps with different keys, so that the caches do not hold the rows of all of them.
constexpr uint64_t kKeySets = 8;

absl::StatusOr<Table> MakeTable(Client& client, uint32_t width) {
  TableSpec spec = SparseTableSpec(absl::StrCat("table-", width), width);
  spec.mutable_optimizer()->mutable_adagrad()->set_learning_rate(0.01f);
  return client.CreateTable(spec).get();
}

absl::Status WaitFor(std::vector<std::future<absl::Status>> calls) {
  absl::Status result;
  for (std::future<absl::Status>& call : calls) result.Update(call.get());
  return result;
}

}  // namespace

absl::StatusOr<BenchRow> RunSyncStepRow(double seconds) {
  ProcessClusterOptions options;
  options.job =
      absl::StrCat("name: 'bench' seed: 1 consistency { mode: SYNC } logical_workers: ", kRanks,
                   " partitions: 256 durability: LOG");
  options.servers = kServers;
  options.expected_workers = 1;
  // A measurement may use the whole machine, so silence does not mean death.
  options.flags["scheduler"] = {"--lease_ms=60000"};
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<ProcessCluster> cluster,
                        ProcessCluster::Start(options));
  ClientOptions client_options;
  client_options.scheduler = cluster->scheduler_address();
  client_options.role = WORKER_ROLE;
  for (uint32_t rank = 0; rank < kRanks; ++rank) client_options.logical_workers.push_back(rank);
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(client_options));
  std::vector<Table> tables;
  for (const uint32_t width : kWidths) {
    PAWL_ASSIGN_OR_RETURN(tables.emplace_back(), MakeTable(*client, width));
  }
  std::vector<LogicalWorker*> ranks;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    PAWL_ASSIGN_OR_RETURN(ranks.emplace_back(), client->OpenLogicalWorker(rank));
  }
  ZipfKeys zipf(kRows, /*seed=*/1);
  std::vector<std::vector<uint64_t>> keys;
  for (uint64_t i = 0; i < kKeySets * kRanks; ++i) keys.push_back(zipf.Distinct(kKeysOfRank));
  // By rank and table.
  std::vector<std::vector<float>> values;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    for (const uint32_t width : kWidths) values.emplace_back(kKeysOfRank * width, 1e-3f);
  }

  const auto step = [&](uint64_t number) -> absl::Status {
    std::vector<std::future<absl::Status>> pulls, pushes, ends;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      std::vector<PullItem> items;
      for (size_t i = 0; i < tables.size(); ++i) {
        items.push_back({.table = tables[i],
                         .keys = keys[number % kKeySets * kRanks + rank],
                         .values = absl::MakeSpan(values[rank * tables.size() + i]),
                         .keys_are_distinct = true});
      }
      pulls.push_back(ranks[rank]->Pull(items));
    }
    PAWL_RETURN_IF_ERROR(WaitFor(std::move(pulls)));
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      std::vector<PushItem> items;
      for (size_t i = 0; i < tables.size(); ++i) {
        items.push_back({.table = tables[i],
                         .keys = keys[number % kKeySets * kRanks + rank],
                         .gradients = values[rank * tables.size() + i],
                         .keys_are_distinct = true});
      }
      pushes.push_back(ranks[rank]->Push(items));
    }
    PAWL_RETURN_IF_ERROR(WaitFor(std::move(pushes)));
    for (LogicalWorker* const rank : ranks) ends.push_back(rank->EndStep());
    return WaitFor(std::move(ends));
  };

  uint64_t steps = 0;
  // Creates the rows.
  for (; steps < kKeySets; ++steps) PAWL_RETURN_IF_ERROR(step(steps));
  const auto server_seconds = [&] {
    double sum = 0;
    for (uint32_t i = 0; i < kServers; ++i)
      sum += CpuSeconds(cluster->node(absl::StrCat("server-", i)).pid());
    return sum;
  };
  const double servers_before = server_seconds();
  const double client_before = CpuSeconds(getpid());
  const uint64_t first = steps;
  const MonotonicTime begin = Clock::Real().Now();
  double elapsed = 0;
  for (; elapsed < seconds; elapsed = Seconds(Clock::Real().Now() - begin))
    PAWL_RETURN_IF_ERROR(step(steps++));
  const double mega_keys =
      1e-6 * static_cast<double>((steps - first) * kRanks * kKeysOfRank * tables.size());
  const double servers = server_seconds() - servers_before;
  BenchRow row;
  row.name = kSyncStepRow;
  row.unit = "Mkeys/s";
  row.value = mega_keys / elapsed;
  row.server_cpu = servers / elapsed;
  row.client_cpu = (CpuSeconds(getpid()) - client_before) / elapsed;
  row.note = absl::StrCat(1e3 * servers / mega_keys, " ms of server CPU time per million keys");
  return row;
}

}  // namespace pawl
