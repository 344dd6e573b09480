#include "tests/perf/cluster_rows.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/client.h"
#include "client_lib/rpc/codec.h"
#include "client_lib/rpc/grpc/grpc_transport.h"
#include "grpcpp/grpcpp.h"
#include "proto/parameter.grpc.pb.h"
#include "tests/harness/process_cluster.h"
#include "tests/harness/runfile.h"
#include "tests/perf/call_pipeline.h"
#include "tests/perf/iperf.h"
#include "tests/perf/process_usage.h"
#include "tests/perf/sync_step_row.h"
#include "tests/perf/zipf_keys.h"

namespace pawl {
namespace {

constexpr size_t kTensorFloats = size_t{1} << 20;  // 4 MiB
constexpr size_t kTensorBytes = kTensorFloats * sizeof(float);
constexpr uint32_t kRowWidth = 16;
constexpr size_t kKeysInCall = 100000;
// Several sets of keys, so that no row measures one set that stays in the caches.
constexpr uint32_t kKeySets = 16;
// The rate of ps-lite with a hash map on such a machine, in million keys/s.
constexpr double kPullGoal = 8.0;
constexpr double kPushGoal = 3.7;
constexpr double kDenseGoalShare = 0.7;
constexpr size_t kLocalFetchAhead = 16;
// The two sides of a comparison alternate, so that other load affects both.
constexpr int kLatencyTurns = 10;

constexpr char kDensePush[] = "dense push 4 MiB";
constexpr char kJob[] =
    "name: 'bench' seed: 1 consistency { mode: ASYNC } partitions: 64 durability: ";

// CPU seconds per second since its construction.
class Usage {
 public:
  explicit Usage(pid_t server)
      : server_(server), server_begin_(CpuSeconds(server)), own_begin_(CpuSeconds(getpid())) {}
  void Set(BenchRow& row) const {
    const double seconds = Seconds(Clock::Real().Now() - begin_);
    row.server_cpu = (CpuSeconds(server_) - server_begin_) / seconds;
    row.client_cpu = (CpuSeconds(getpid()) - own_begin_) / seconds;
  }

 private:
  const pid_t server_;
  const double server_begin_;
  const double own_begin_;
  const MonotonicTime begin_ = Clock::Real().Now();
};

struct Percentiles {
  double p50 = 0;
  double p99 = 0;
};
Percentiles PercentilesOf(std::vector<double>& samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples[samples.size() * 99 / 100]};
}

class ClusterBench {
 public:
  explicit ClusterBench(const ClusterRowsOptions& options) : options_(options) {}

  absl::StatusOr<std::vector<BenchRow>> Run() {
    PAWL_RETURN_IF_ERROR(StartCluster());
    PAWL_RETURN_IF_ERROR(RunBare());
    PAWL_RETURN_IF_ERROR(RunDense());
    PAWL_RETURN_IF_ERROR(RunLatency());
    PAWL_RETURN_IF_ERROR(RunSparse());
    return std::move(rows_);
  }

 private:
  absl::Status StartCluster() {
    ProcessClusterOptions options;
    options.job = absl::StrCat(kJob, options_.durability);
    options.servers = options_.replicas;
    options.replicas = options_.replicas;
    options.tls = options_.tls;
    // A measurement may use the whole machine, so silence does not mean death.
    options.flags["scheduler"] = {"--lease_ms=60000"};
    PAWL_ASSIGN_OR_RETURN(cluster_, ProcessCluster::Start(options));
    server_ = cluster_->node("server-0").pid();
    ClientOptions client_options;
    client_options.scheduler = cluster_->scheduler_address();
    if (options_.tls) client_options.security.tls_dir = cluster_->tls_dir("client");
    PAWL_ASSIGN_OR_RETURN(client_, Client::Connect(client_options));
    return absl::OkStatus();
  }

  bool Wanted(const std::string& name) const { return absl::StrContains(name, options_.filter); }
  void Before(const std::string& name) const {
    if (options_.before_row) options_.before_row(name, server_);
  }

  absl::StatusOr<Table> MakeTable(const std::string& name, bool dense) {
    const TableSpec spec =
        dense ? DenseTableSpec(name, {kTensorFloats}) : SparseTableSpec(name, kRowWidth);
    return client_->CreateTable(WithSgd(spec, 0.01f)).get();
  }

  absl::Status RunDense() {
    const bool push = Wanted(kDensePush);
    const bool pull = Wanted("dense pull 4 MiB");
    if (!push && !pull) return absl::OkStatus();
    // Measured before and after each row, so that other load affects both.
    absl::StatusOr<double> iperf = MeasureIperf(options_.seconds_a_row / 2, cluster_->folder());
    if (!iperf.ok())
      rows_.push_back({.name = "iperf3", .note = std::string(iperf.status().message())});
    struct Slot {
      Table table;
      std::vector<float> floats;
    };
    std::vector<Slot> slots(options_.calls_in_flight);
    for (size_t i = 0; i < slots.size(); ++i) {
      PAWL_ASSIGN_OR_RETURN(slots[i].table, MakeTable(absl::StrCat("tensor-", i), /*dense=*/true));
      slots[i].floats.assign(kTensorFloats, 1e-3f);
    }
    const auto measure = [&](const std::string& name, const StartCall& start) -> absl::Status {
      Before(name);
      const Usage usage(server_);
      PAWL_ASSIGN_OR_RETURN(const PipelineResult result,
                            RunPipeline(options_.calls_in_flight, options_.seconds_a_row, start));
      BenchRow row;
      row.name = name;
      row.unit = "GB/s";
      row.value = 1e-9 * kTensorBytes * static_cast<double>(result.calls) / result.seconds;
      usage.Set(row);
      if (iperf.ok()) {
        const double before = *iperf;
        PAWL_ASSIGN_OR_RETURN(const double after,
                              MeasureIperf(options_.seconds_a_row / 2, cluster_->folder()));
        iperf = after;
        row.limit_name = "iperf3";
        row.limit = 1e-9 * (before + after) / 2;
        row.goal = kDenseGoalShare * row.limit;
      }
      rows_.push_back(row);
      return absl::OkStatus();
    };
    Session& session = client_->free_running();
    if (push) {
      PAWL_RETURN_IF_ERROR(measure(kDensePush, [&](uint32_t slot, Callback done) {
        session.Push({{.table = slots[slot].table, .gradients = slots[slot].floats}}, {},
                     std::move(done));
      }));
    }
    if (pull) {
      PAWL_RETURN_IF_ERROR(measure("dense pull 4 MiB", [&](uint32_t slot, Callback done) {
        session.Pull({{.table = slots[slot].table, .values = absl::MakeSpan(slots[slot].floats)}},
                     {}, std::move(done));
      }));
    }
    return absl::OkStatus();
  }

  // A program of this folder to compare with, and its address.
  struct Comparison {
    std::unique_ptr<ChildProcess> process;
    std::string address;
  };
  absl::StatusOr<Comparison> StartComparison(const std::string& name) {
    PAWL_ASSIGN_OR_RETURN(const std::string program, Runfile(absl::StrCat("tests/perf/", name)));
    const std::string address_file = absl::StrCat(cluster_->folder(), "/", name, ".addr");
    Comparison result;
    PAWL_ASSIGN_OR_RETURN(
        result.process,
        ChildProcess::Start(
            {name, program, {address_file}, absl::StrCat(cluster_->folder(), "/", name, ".log")}));
    Eventually([&] {
      std::ifstream file(address_file);
      std::getline(file, result.address);
      return !result.address.empty() || result.process->HasEnded();
    });
    if (result.address.empty())
      return absl::UnavailableError(absl::StrCat(name, " does not start"));
    return result;
  }

  // Messages of a tensor's size through gRPC alone, in GB/s.
  absl::Status RunBare() {
    if (!Wanted("bare gRPC push 4 MiB") && !Wanted("bare gRPC pull 4 MiB")) return absl::OkStatus();
    PAWL_ASSIGN_OR_RETURN(const auto bare, StartComparison("bare_server"));
    GrpcTransport transport(grpc::InsecureChannelCredentials());
    const std::vector<float> floats(kTensorFloats, 1e-3f);
    const ByteView values(floats.data(), kTensorBytes);
    const uint64_t key = 0;
    const SegmentView push{.keys = ByteView(&key, sizeof(key)), .values = values};
    const SegmentView pull{.keys = ByteView(&key, sizeof(key))};
    for (const Method method : {Method::kPush, Method::kPull}) {
      PAWL_ASSIGN_OR_RETURN(const double before,
                            MeasureIperf(options_.seconds_a_row / 2, cluster_->folder()));
      PAWL_ASSIGN_OR_RETURN(
          const PipelineResult result,
          RunPipeline(options_.calls_in_flight, options_.seconds_a_row,
                      [&](uint32_t, Callback done) {
                        transport.Call(
                            bare.address, method,
                            method == Method::kPush ? EncodePushRequest({}, {&push, 1})
                                                    : EncodePullRequest({}, {&pull, 1}),
                            std::chrono::seconds(10),
                            [done = std::move(done)](absl::Status status, IncomingMessage) mutable {
                              done(std::move(status));
                            });
                      }));
      PAWL_ASSIGN_OR_RETURN(const double after,
                            MeasureIperf(options_.seconds_a_row / 2, cluster_->folder()));
      rows_.push_back(
          {.name = method == Method::kPush ? "bare gRPC push 4 MiB" : "bare gRPC pull 4 MiB",
           .value = 1e-9 * kTensorBytes * static_cast<double>(result.calls) / result.seconds,
           .unit = "GB/s",
           .limit_name = "iperf3",
           .limit = 1e-9 * (before + after) / 2});
    }
    return absl::OkStatus();
  }

  absl::Status RunLatency() {
    if (!Wanted("one-row pull")) return absl::OkStatus();
    PAWL_ASSIGN_OR_RETURN(const Table table, MakeTable("one-row", /*dense=*/false));
    Session& session = client_->free_running();
    const std::vector<uint64_t> keys = {42};
    std::vector<float> row(kRowWidth, 1.0f);
    PAWL_RETURN_IF_ERROR(session.Push({{.table = table, .keys = keys, .gradients = row}}).get());

    PAWL_ASSIGN_OR_RETURN(const auto echo, StartComparison("echo_server"));
    const std::string& address = echo.address;
    const auto stub =
        Parameter::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    PullRequest request;
    request.mutable_header()->set_client(1);
    // As many bytes each way as the pull's.
    request.add_segments()->set_keys(std::string(kRowWidth * sizeof(float), 'k'));

    std::vector<double> echo_samples, pull_samples;
    Before("one-row pull");
    const Usage usage(server_);
    for (int turn = 0; turn < kLatencyTurns; ++turn) {
      const double seconds = options_.seconds_a_row / kLatencyTurns;
      PAWL_RETURN_IF_ERROR(Repeat(seconds, echo_samples, [&]() -> absl::Status {
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
        PullResponse response;
        const grpc::Status status = stub->Pull(&context, request, &response);
        return status.ok() ? absl::OkStatus() : absl::UnavailableError(status.error_message());
      }));
      PAWL_RETURN_IF_ERROR(Repeat(seconds, pull_samples, [&] {
        return session.Pull({{.table = table, .keys = keys, .values = absl::MakeSpan(row)}}).get();
      }));
    }
    const Percentiles echoed = PercentilesOf(echo_samples);
    const Percentiles pulled = PercentilesOf(pull_samples);
    const auto add = [&](const std::string& name, double value, double limit) {
      BenchRow result;
      result.name = name;
      result.unit = "us";
      result.value = 1e6 * value;
      result.limit_name = "gRPC echo";
      result.limit = 1e6 * limit;
      result.smaller_is_better = true;
      usage.Set(result);
      rows_.push_back(result);
    };
    add("one-row pull p50", pulled.p50, echoed.p50);
    add("one-row pull p99", pulled.p99, echoed.p99);
    return absl::OkStatus();
  }

  template <typename CallOnce>
  static absl::Status Repeat(double seconds, std::vector<double>& samples, CallOnce call) {
    const MonotonicTime begin = Clock::Real().Now();
    MonotonicTime before = begin;
    while (Seconds(before - begin) < seconds) {
      PAWL_RETURN_IF_ERROR(call());
      const MonotonicTime after = Clock::Real().Now();
      samples.push_back(Seconds(after - before));
      before = after;
    }
    return absl::OkStatus();
  }

  absl::Status RunSparse() {
    const std::string pull_name = absl::StrCat("sparse pull ", kKeysInCall, " keys");
    const std::string push_name = absl::StrCat("sparse push ", kKeysInCall, " keys");
    if (!Wanted(pull_name) && !Wanted(push_name)) return absl::OkStatus();
    PAWL_ASSIGN_OR_RETURN(const Table table, MakeTable("sparse", /*dense=*/false));
    Session& session = client_->free_running();
    struct Slot {
      std::vector<uint64_t> keys;
      std::vector<float> floats = std::vector<float>(kKeysInCall * kRowWidth, 1e-3f);
    };
    std::vector<Slot> slots(options_.calls_in_flight);

    // Fills the whole table, so that measured calls find rows as far apart as in a real one.
    PAWL_ASSIGN_OR_RETURN(const PipelineResult filled,
                          RunCalls(options_.calls_in_flight, options_.sparse_rows / kKeysInCall,
                                   [&](uint32_t slot, uint64_t call, Callback done) {
                                     slots[slot].keys.resize(kKeysInCall);
                                     for (size_t i = 0; i < kKeysInCall; ++i)
                                       slots[slot].keys[i] =
                                           ZipfKeys::KeyOf(call * kKeysInCall + i);
                                     session.Push({{.table = table,
                                                    .keys = slots[slot].keys,
                                                    .gradients = slots[slot].floats,
                                                    .keys_are_distinct = true}},
                                                  {}, std::move(done));
                                   }));
    rows_.push_back({.name = "sparse push, new rows",
                     .value = 1e-6 * static_cast<double>(options_.sparse_rows) / filled.seconds,
                     .unit = "Mkeys/s",
                     .note = absl::StrCat(options_.sparse_rows, " rows")});

    ZipfKeys zipf(options_.sparse_rows, /*seed=*/1);
    std::vector<std::vector<uint64_t>> key_sets;
    for (uint32_t i = 0; i < kKeySets; ++i) key_sets.push_back(zipf.Distinct(kKeysInCall));
    const LocalRates local = MeasureLocalTable(key_sets);

    const auto measure = [&](const std::string& name, double limit, double goal,
                             const auto& start) -> absl::Status {
      uint64_t next = 0;
      Before(name);
      const Usage usage(server_);
      PAWL_ASSIGN_OR_RETURN(const PipelineResult result,
                            RunPipeline(options_.calls_in_flight, options_.seconds_a_row,
                                        [&](uint32_t slot, Callback done) {
                                          start(slots[slot], key_sets[next++ % kKeySets],
                                                std::move(done));
                                        }));
      BenchRow row;
      row.name = name;
      row.unit = "Mkeys/s";
      row.value = 1e-6 * kKeysInCall * static_cast<double>(result.calls) / result.seconds;
      row.limit_name = "local hash map, 1 thread";
      row.limit = limit;
      row.goal = goal;
      usage.Set(row);
      rows_.push_back(row);
      return absl::OkStatus();
    };
    // The client must find out that the keys are distinct, which is part of its work.
    if (Wanted(pull_name)) {
      PAWL_RETURN_IF_ERROR(measure(
          pull_name, local.pull, kPullGoal,
          [&](Slot& slot, const std::vector<uint64_t>& keys, Callback done) {
            session.Pull({{.table = table, .keys = keys, .values = absl::MakeSpan(slot.floats)}},
                         {}, std::move(done));
          }));
    }
    if (Wanted(push_name)) {
      for (Slot& slot : slots) std::fill(slot.floats.begin(), slot.floats.end(), 1e-3f);
      PAWL_RETURN_IF_ERROR(
          measure(push_name, local.push, kPushGoal,
                  [&](Slot& slot, const std::vector<uint64_t>& keys, Callback done) {
                    session.Push({{.table = table, .keys = keys, .gradients = slot.floats}}, {},
                                 std::move(done));
                  }));
    }
    return absl::OkStatus();
  }

  // Million keys per second.
  struct LocalRates {
    double pull = 0;
    double push = 0;
  };
  // Looks the same keys up in a hash map of this process, without network, checks or locks, on one
  // thread that prefetches.
  LocalRates MeasureLocalTable(const std::vector<std::vector<uint64_t>>& key_sets) const {
    std::vector<float> table(options_.sparse_rows * kRowWidth, 1.0f);
    absl::flat_hash_map<uint64_t, float*> index;
    index.reserve(options_.sparse_rows);
    for (uint64_t rank = 0; rank < options_.sparse_rows; ++rank) {
      index.emplace(ZipfKeys::KeyOf(rank), &table[rank * kRowWidth]);
    }
    std::vector<float> buffer(kKeysInCall * kRowWidth, 1e-3f);
    std::vector<float*> rows(kKeysInCall);
    const auto rate = [&](const auto& visit) {
      const MonotonicTime begin = Clock::Real().Now();
      double seconds = 0;
      uint64_t keys_done = 0;
      for (size_t set = 0; seconds < options_.seconds_a_row / 3; ++set) {
        const std::vector<uint64_t>& keys = key_sets[set % key_sets.size()];
        for (size_t i = 0; i < kKeysInCall; ++i) {
          if (i + kLocalFetchAhead < kKeysInCall) index.prefetch(keys[i + kLocalFetchAhead]);
          rows[i] = index.find(keys[i])->second;
          __builtin_prefetch(rows[i]);
        }
        for (size_t i = 0; i < kKeysInCall; ++i) {
          if (i + kLocalFetchAhead < kKeysInCall) __builtin_prefetch(rows[i + kLocalFetchAhead]);
          visit(rows[i], &buffer[i * kRowWidth]);
        }
        keys_done += kKeysInCall;
        seconds = Seconds(Clock::Real().Now() - begin);
      }
      return 1e-6 * static_cast<double>(keys_done) / seconds;
    };
    LocalRates rates;
    rates.push = rate([](float* row, const float* gradient) {
      for (uint32_t i = 0; i < kRowWidth; ++i) row[i] -= 0.01f * gradient[i];
    });
    rates.pull = rate(
        [](const float* row, float* out) { std::memcpy(out, row, kRowWidth * sizeof(float)); });
    return rates;
  }

  const ClusterRowsOptions options_;
  std::unique_ptr<ProcessCluster> cluster_;
  pid_t server_ = 0;
  std::unique_ptr<Client> client_;  // destroyed before the cluster
  std::vector<BenchRow> rows_;
};

absl::StatusOr<BenchRow> MeasureRow(ClusterRowsOptions shape, const std::string& name) {
  // Both percentiles of a latency are measured together.
  shape.filter = absl::StartsWith(name, "one-row") ? "one-row pull" : name;
  PAWL_ASSIGN_OR_RETURN(std::vector<BenchRow> measured, ClusterBench(shape).Run());
  for (BenchRow& row : measured) {
    if (row.name == name) return std::move(row);
  }
  return absl::InternalError(absl::StrCat("there is no row ", name));
}

}  // namespace

absl::StatusOr<std::vector<BenchRow>> RunClusterRows(const ClusterRowsOptions& options) {
  PAWL_ASSIGN_OR_RETURN(std::vector<BenchRow> rows, ClusterBench(options).Run());
  if (absl::StrContains(kSyncStepRow, options.filter)) {
    PAWL_ASSIGN_OR_RETURN(rows.emplace_back(), RunSyncStepRow(options.seconds_a_row));
  }
  return rows;
}

absl::StatusOr<std::vector<BenchRow>> RunSafetyRows(const ClusterRowsOptions& options) {
  std::vector<BenchRow> rows;
  for (const std::string& push :
       {std::string(kDensePush), absl::StrCat("sparse push ", kKeysInCall, " keys")}) {
    const auto measure = [&](uint32_t replicas,
                             const std::string& durability) -> absl::StatusOr<BenchRow> {
      ClusterRowsOptions shape = options;
      shape.replicas = replicas;
      shape.durability = durability;
      return MeasureRow(shape, push);
    };
    PAWL_ASSIGN_OR_RETURN(const BenchRow before, measure(1, "MEMORY"));
    std::vector<BenchRow> safe;
    for (const auto& [replicas, durability] :
         {std::pair(2u, "MEMORY"), {1u, "LOG"}, {1u, "FSYNC"}, {2u, "LOG"}}) {
      PAWL_ASSIGN_OR_RETURN(BenchRow row, measure(replicas, durability));
      row.name = absl::StrCat(push, ", ", durability, ", ", replicas,
                              replicas == 1 ? " replica" : " replicas");
      safe.push_back(std::move(row));
    }
    PAWL_ASSIGN_OR_RETURN(const BenchRow after, measure(1, "MEMORY"));
    for (BenchRow& row : safe) {
      row.limit_name = "MEMORY, 1 replica";
      row.limit = (before.value + after.value) / 2;
      row.goal = 0;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

absl::StatusOr<std::vector<BenchRow>> RunTlsRows(const ClusterRowsOptions& options) {
  std::vector<BenchRow> rows;
  for (const std::string& name :
       {std::string(kDensePush), std::string("dense pull 4 MiB"), std::string("one-row pull p50"),
        std::string("one-row pull p99"), absl::StrCat("sparse push ", kKeysInCall, " keys"),
        absl::StrCat("sparse pull ", kKeysInCall, " keys")}) {
    ClusterRowsOptions tls = options;
    tls.tls = true;
    PAWL_ASSIGN_OR_RETURN(const BenchRow before, MeasureRow(options, name));
    PAWL_ASSIGN_OR_RETURN(BenchRow row, MeasureRow(tls, name));
    PAWL_ASSIGN_OR_RETURN(const BenchRow after, MeasureRow(options, name));
    row.name += ", TLS";
    row.limit_name = "without TLS";
    row.limit = (before.value + after.value) / 2;
    row.goal = 0;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace pawl
