// Measures the effect of moving partitions on pushes: a sparse table on two servers receives pushes
// continuously while a third server takes its share, or (--restart) while one of the two is killed
// and restarted. Prints one JSON object.
//
//   bazel run -c opt //tests/perf:moves
//   bazel run -c opt //tests/perf:moves -- --rows=2000000 --row_width=128 --replicas=2
//   --repair_bytes_per_s=50000000
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/testing/table_specs.h"
#include "client_lib/client.h"
#include "nlohmann/json.hpp"
#include "tests/harness/process_cluster.h"
#include "tests/perf/call_pipeline.h"
#include "tests/perf/zipf_keys.h"

ABSL_FLAG(uint64_t, rows, 2000000, "rows of the table");
ABSL_FLAG(uint32_t, row_width, 128, "floats per row");
ABSL_FLAG(uint32_t, partitions, 64, "partitions of the job");
ABSL_FLAG(uint32_t, replicas, 1, "replicas of each partition");
ABSL_FLAG(std::string, durability, "MEMORY", "durability of the job");
ABSL_FLAG(uint64_t, repair_bytes_per_s, uint64_t{1} << 30,
          "limit on the rate at which a server copies");
ABSL_FLAG(uint32_t, keys_in_call, 4000, "keys per push");
ABSL_FLAG(uint32_t, calls_in_flight, 4, "concurrent pushes");
ABSL_FLAG(bool, restart, false,
          "kill a server and restart it after 200 ms instead of adding one; needs two replicas");
ABSL_FLAG(bool, idle, false, "push only to fill the table; measures the moves without load");
ABSL_FLAG(int, timeout_s, 300, "time limit of the moves");
ABSL_FLAG(double, seconds, 5, "duration of the measurements before and after");

namespace pawl {
namespace {

constexpr std::chrono::milliseconds kWindow{100};
// How long a restarted server is absent, besides its start.
constexpr std::chrono::milliseconds kAway{200};
// Requests to the scheduler use the shared processors.
constexpr std::chrono::milliseconds kLookInterval{25};
constexpr uint32_t kKeySets = 16;
// A pipeline without acknowledgements ends by itself.
constexpr double kLongestRunS = 900;

// Counts acknowledged keys per time window since its construction. Thread-safe.
class Throughput {
 public:
  void Add(uint64_t keys) {
    keys_.fetch_add(keys, std::memory_order_relaxed);
    const int64_t now = Clock::Real().Now().time_since_epoch().count();
    const int64_t gap = now - last_.exchange(now);
    int64_t longest = longest_gap_.load();
    while (gap > longest && !longest_gap_.compare_exchange_weak(longest, gap)) {
    }
  }
  uint64_t keys() const { return keys_.load(std::memory_order_relaxed); }
  // Since the previous call.
  double TakeLongestGapMs() { return 1000 * Seconds(MonotonicDuration(longest_gap_.exchange(0))); }

 private:
  std::atomic<uint64_t> keys_{0};
  std::atomic<int64_t> last_{Clock::Real().Now().time_since_epoch().count()};
  std::atomic<int64_t> longest_gap_{0};
};

// Measures from its construction to Json().
class Phase {
 public:
  explicit Phase(Throughput& throughput) : throughput_(throughput), keys_(throughput.keys()) {
    throughput_.TakeLongestGapMs();
  }
  double KeysPerSecond() const {
    return static_cast<double>(throughput_.keys() - keys_) / Seconds(Clock::Real().Now() - begin_);
  }
  nlohmann::ordered_json Json() {
    return {{"seconds", Seconds(Clock::Real().Now() - begin_)},
            {"keys_per_s", KeysPerSecond()},
            {"longest_without_acknowledgement_ms", throughput_.TakeLongestGapMs()}};
  }

 private:
  Throughput& throughput_;
  const uint64_t keys_;
  const MonotonicTime begin_ = Clock::Real().Now();
};

// Kills server-1, restarts it, and waits until all of its replicas are in sync again.
absl::StatusOr<nlohmann::ordered_json> RestartServer(ProcessCluster& cluster) {
  PAWL_ASSIGN_OR_RETURN(const GetStatusResponse before, cluster.GetStatus());
  const MonotonicTime killed = Clock::Real().Now();
  PAWL_RETURN_IF_ERROR(cluster.Kill("server-1"));
  std::this_thread::sleep_for(kAway);
  PAWL_RETURN_IF_ERROR(cluster.Restart("server-1"));
  PAWL_RETURN_IF_ERROR(
      cluster.WaitUntilMember("server-1", std::chrono::seconds(absl::GetFlag(FLAGS_timeout_s)))
          .status());
  const double back_s = Seconds(Clock::Real().Now() - killed);
  const std::string in_sync = "replicas in sync again";
  PAWL_RETURN_IF_ERROR(cluster
                           .WaitFor(
                               [&](const GetStatusResponse&) {
                                 std::this_thread::sleep_for(kLookInterval);
                                 return cluster.Log("scheduler").find(in_sync) != std::string::npos;
                               },
                               std::chrono::seconds(absl::GetFlag(FLAGS_timeout_s)))
                           .status());
  const double in_sync_s = Seconds(Clock::Real().Now() - killed);
  // The counters arrive with the next heartbeats.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  PAWL_ASSIGN_OR_RETURN(const GetStatusResponse last, cluster.GetStatus());
  const ServerCounters& counters = last.counters();
  return nlohmann::ordered_json{
      {"registered_after_s", back_s},
      {"in_sync_after_s", in_sync_s},
      {"snapshot_bytes_sent",
       counters.snapshot_bytes_sent() - before.counters().snapshot_bytes_sent()},
      {"catch_up_bytes_sent",
       counters.catch_up_bytes_sent() - before.counters().catch_up_bytes_sent()},
      {"parameter_bytes", counters.parameter_bytes()}};
}

std::string RepairFlag() {
  return absl::StrCat("--repair_bytes_per_s=", absl::GetFlag(FLAGS_repair_bytes_per_s));
}

absl::StatusOr<std::unique_ptr<ProcessCluster>> StartCluster() {
  ProcessClusterOptions options;
  options.job = absl::StrCat(
      "name: 'moves' seed: 1 elastic: true consistency { mode: ASYNC } partitions: ",
      absl::GetFlag(FLAGS_partitions), " durability: ", absl::GetFlag(FLAGS_durability));
  options.servers = 2;
  options.replicas = absl::GetFlag(FLAGS_replicas);
  // All processes share the machine's cores.
  options.flags["scheduler"] = {"--lease_ms=2000"};
  for (const char* const server : {"server-0", "server-1"}) options.flags[server] = {RepairFlag()};
  return ProcessCluster::Start(options);
}

// Pushes to the table. Not thread-safe.
class Pusher {
 public:
  Pusher(Session& session, Table table, uint32_t row_width)
      : session_(session),
        table_(std::move(table)),
        gradients_(calls_in_flight_, std::vector<float>(size_t{keys_in_call_} * row_width, 1e-3f)) {
  }

  // Pushes to all rows.
  absl::Status Fill() {
    const uint64_t rows = absl::GetFlag(FLAGS_rows);
    std::vector<std::vector<uint64_t>> keys(calls_in_flight_);
    return RunCalls(calls_in_flight_, rows / keys_in_call_,
                    [&](uint32_t slot, uint64_t call, Callback done) {
                      keys[slot].resize(keys_in_call_);
                      for (size_t i = 0; i < keys_in_call_; ++i)
                        keys[slot][i] = ZipfKeys::KeyOf(call * keys_in_call_ + i);
                      session_.Push({{.table = table_,
                                      .keys = keys[slot],
                                      .gradients = gradients_[slot],
                                      .keys_are_distinct = true}},
                                    {}, std::move(done));
                    })
        .status();
  }

  // Pushes popular keys on a thread, until Stop.
  void Start() {
    ZipfKeys zipf(absl::GetFlag(FLAGS_rows), /*seed=*/1);
    for (uint32_t i = 0; i < kKeySets; ++i) key_sets_.push_back(zipf.Distinct(keys_in_call_));
    thread_ = std::thread([this] { pushed_ = Run(); });
  }
  // Returns the error by which the pushes ended earlier.
  absl::Status Stop() {
    stop_ = true;
    thread_.join();
    return absl::IsCancelled(pushed_) ? absl::OkStatus() : pushed_;
  }

  Throughput& throughput() { return throughput_; }

 private:
  // Ends when the first push after stop_ fails.
  absl::Status Run() {
    return RunPipeline(calls_in_flight_, kLongestRunS,
                       [this](uint32_t slot, Callback done) {
                         if (stop_) {
                           done(absl::CancelledError("stopped"));
                           return;
                         }
                         session_.Push({{.table = table_,
                                         .keys = key_sets_[next_++ % kKeySets],
                                         .gradients = gradients_[slot]}},
                                       {},
                                       [this, done = std::move(done)](absl::Status status) mutable {
                                         if (status.ok()) throughput_.Add(keys_in_call_);
                                         done(std::move(status));
                                       });
                       })
        .status();
  }

  const uint32_t keys_in_call_ = absl::GetFlag(FLAGS_keys_in_call);
  const uint32_t calls_in_flight_ = absl::GetFlag(FLAGS_calls_in_flight);
  Session& session_;
  const Table table_;
  // By slot.
  const std::vector<std::vector<float>> gradients_;
  std::vector<std::vector<uint64_t>> key_sets_;
  Throughput throughput_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> next_{0};
  absl::Status pushed_;
  std::thread thread_;
};

// Waits until all replicas are where they should be. Returns the throughputs of the windows
// meanwhile, ascending.
absl::StatusOr<std::vector<double>> AwaitMoves(ProcessCluster& cluster, Throughput& throughput) {
  std::vector<double> windows;
  MonotonicTime window_began = Clock::Real().Now();
  uint64_t window_keys = throughput.keys();
  const auto look = [&](const GetStatusResponse& status) {
    const MonotonicTime now = Clock::Real().Now();
    if (now - window_began >= kWindow) {
      const uint64_t keys = throughput.keys();
      windows.push_back(static_cast<double>(keys - window_keys) / Seconds(now - window_began));
      window_began = now;
      window_keys = keys;
    }
    std::this_thread::sleep_for(kLookInterval);
    return status.moves().settled();
  };
  PAWL_RETURN_IF_ERROR(
      cluster.WaitFor(look, std::chrono::seconds(absl::GetFlag(FLAGS_timeout_s))).status());
  std::sort(windows.begin(), windows.end());
  return windows;
}

nlohmann::ordered_json PausesJson(const MovesStatus& moves) {
  return {{"handovers", moves.handovers()},
          {"p50", moves.pause_ms_p50()},
          {"p99", moves.pause_ms_p99()},
          {"max", moves.pause_ms_max()}};
}

// Adds a server, and measures until it has its share and after.
absl::Status AddServer(ProcessCluster& cluster, Throughput& throughput, double steady,
                       nlohmann::ordered_json& figures) {
  PAWL_RETURN_IF_ERROR(cluster.AddServer({RepairFlag()}));
  PAWL_RETURN_IF_ERROR(
      cluster
          .WaitFor([](const auto& status) { return status.moves().replicas_left() > 0; },
                   std::chrono::seconds(absl::GetFlag(FLAGS_timeout_s)))
          .status());
  Phase during(throughput);
  PAWL_ASSIGN_OR_RETURN(const std::vector<double> windows, AwaitMoves(cluster, throughput));
  const double moving = during.KeysPerSecond();
  figures["during"] = during.Json();
  if (!windows.empty()) {
    figures["during"]["windows_of_100_ms"] = {{"least_keys_per_s", windows.front()},
                                              {"tenth_keys_per_s", windows[windows.size() / 10]},
                                              {"median_keys_per_s", windows[windows.size() / 2]}};
  }
  Phase after(throughput);
  std::this_thread::sleep_for(std::chrono::duration<double>(absl::GetFlag(FLAGS_seconds)));
  figures["after"] = after.Json();
  if (steady > 0) figures["during_of_before"] = moving / steady;
  // The new primaries have reported their pauses by now.
  PAWL_ASSIGN_OR_RETURN(const GetStatusResponse last, cluster.GetStatus());
  const MovesStatus& moves = last.moves();
  // The new server's share of all replicas.
  const double ideal = static_cast<double>(absl::GetFlag(FLAGS_rows)) *
                       absl::GetFlag(FLAGS_row_width) * sizeof(float) *
                       absl::GetFlag(FLAGS_replicas) / 3;
  figures["moved"] = {
      {"replicas", moves.replicas_moved()},
      {"bytes", moves.bytes_moved()},
      {"ideal_bytes", ideal},
      {"parameter_bytes_of_all_servers", static_cast<double>(last.counters().parameter_bytes())}};
  figures["pauses_ms"] = PausesJson(moves);
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::ordered_json> MeasurePhases(ProcessCluster& cluster,
                                                     Throughput& throughput) {
  const auto for_a_while = std::chrono::duration<double>(absl::GetFlag(FLAGS_seconds));
  nlohmann::ordered_json figures = {
      {"rows", absl::GetFlag(FLAGS_rows)},
      {"row_width", absl::GetFlag(FLAGS_row_width)},
      {"partitions", absl::GetFlag(FLAGS_partitions)},
      {"replicas", absl::GetFlag(FLAGS_replicas)},
      {"durability", absl::GetFlag(FLAGS_durability)},
      {"repair_bytes_per_s", absl::GetFlag(FLAGS_repair_bytes_per_s)}};
  // Warms up caches and connections.
  std::this_thread::sleep_for(for_a_while / 2);
  Phase before(throughput);
  std::this_thread::sleep_for(for_a_while);
  const double steady = before.KeysPerSecond();
  figures["before"] = before.Json();
  if (absl::GetFlag(FLAGS_restart)) {
    Phase during(throughput);
    PAWL_ASSIGN_OR_RETURN(figures["restart"], RestartServer(cluster));
    figures["during"] = during.Json();
    // The server gets primaries back.
    PAWL_RETURN_IF_ERROR(AwaitMoves(cluster, throughput).status());
    Phase after(throughput);
    std::this_thread::sleep_for(for_a_while);
    figures["after"] = after.Json();
    PAWL_ASSIGN_OR_RETURN(const GetStatusResponse last, cluster.GetStatus());
    figures["pauses_ms"] = PausesJson(last.moves());
  } else {
    PAWL_RETURN_IF_ERROR(AddServer(cluster, throughput, steady, figures));
  }
  return figures;
}

absl::StatusOr<nlohmann::ordered_json> Measure() {
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<ProcessCluster> cluster, StartCluster());
  ClientOptions client_options;
  client_options.scheduler = cluster->scheduler_address();
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(client_options));
  const TableSpec spec = WithSgd(SparseTableSpec("table", absl::GetFlag(FLAGS_row_width)), 0.01f);
  PAWL_ASSIGN_OR_RETURN(const Table table, client->CreateTable(spec).get());
  Pusher pusher(client->free_running(), table, spec.row_width());
  PAWL_RETURN_IF_ERROR(pusher.Fill());
  if (absl::GetFlag(FLAGS_idle)) return MeasurePhases(*cluster, pusher.throughput());
  pusher.Start();
  absl::StatusOr<nlohmann::ordered_json> figures = MeasurePhases(*cluster, pusher.throughput());
  const absl::Status pushed = pusher.Stop();
  if (figures.ok() && !pushed.ok()) return pushed;
  return figures;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("measures the effect of moving partitions on pushes");
  absl::ParseCommandLine(argc, argv);
  // As the daemons do (client_lib/daemon/daemon.cc).
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const absl::StatusOr<nlohmann::ordered_json> figures = pawl::Measure();
  if (!figures.ok()) {
    std::fprintf(stderr, "moves: %s\n", figures.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", figures->dump(2).c_str());
  return 0;
}
