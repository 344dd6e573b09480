// The rows that need a cluster: a scheduler and a server (or one server per replica) as processes,
// with this process as the client.
#ifndef PAWL_TESTS_PERF_CLUSTER_ROWS_H_
#define PAWL_TESTS_PERF_CLUSTER_ROWS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/perf/bench_report.h"

namespace pawl {

struct ClusterRowsOptions {
  double seconds_a_row = 3;
  // The rows of the sparse table, all created before the measurement.
  uint64_t sparse_rows = 10000000;
  // Concurrent calls in throughput rows.
  uint32_t calls_in_flight = 4;
  // Runs the rows whose name contains it.
  std::string filter;
  // The job's replicas; it also sets the number of servers.
  uint32_t replicas = 1;
  std::string durability = "MEMORY";
  // Mutual TLS on all connections.
  bool tls = false;
  // Called before the measurement of each row, for a profiler.
  std::function<void(const std::string& row, int server_pid)> before_row;
};

absl::StatusOr<std::vector<BenchRow>> RunClusterRows(const ClusterRowsOptions& options);

// Measures the cost of replicas and logs: the push rows with each, compared with the same rows
// without, measured before and after.
absl::StatusOr<std::vector<BenchRow>> RunSafetyRows(const ClusterRowsOptions& options);

// Measures what TLS costs: bulk and small calls with it, compared with the same rows without it,
// measured before and after.
absl::StatusOr<std::vector<BenchRow>> RunTlsRows(const ClusterRowsOptions& options);

}  // namespace pawl

#endif  // PAWL_TESTS_PERF_CLUSTER_ROWS_H_
