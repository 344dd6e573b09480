// The rows that need a cluster: a scheduler and a server (or as many as replicas) as processes,
// this process as the client.
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
  // Rows of the sparse table, all of them created before the measurement.
  uint64_t sparse_rows = 10000000;
  // Calls under way at a time in the rows about throughput.
  uint32_t calls_in_flight = 4;
  // Which rows: those whose name contains it.
  std::string filter;
  // The job's, with as many servers as replicas.
  uint32_t replicas = 1;
  std::string durability = "MEMORY";
  // Called before each row is measured, for a profiler.
  std::function<void(const std::string& row, int server_pid)> before_row;
};

absl::StatusOr<std::vector<BenchRow>> RunClusterRows(const ClusterRowsOptions& options);

// What replicas and logs cost: the push rows with each, beside the same without any of them,
// measured before and after.
absl::StatusOr<std::vector<BenchRow>> RunSafetyRows(const ClusterRowsOptions& options);

}  // namespace pawl

#endif  // PAWL_TESTS_PERF_CLUSTER_ROWS_H_
