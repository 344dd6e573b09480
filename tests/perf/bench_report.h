// The benchmark's result: rows, each compared with its limit.
#ifndef PAWL_TESTS_PERF_BENCH_REPORT_H_
#define PAWL_TESTS_PERF_BENCH_REPORT_H_

#include <string>
#include <vector>

namespace pawl {

struct BenchRow {
  // "dense push"
  std::string name = {};
  double value = 0;
  std::string unit = {};
  // The limit of the value (a lower limit for latencies), measured in the same run: "iperf3".
  // Empty: none.
  std::string limit_name = {};
  double limit = 0;
  // The target value; 0: none.
  double goal = 0;
  // A latency: smaller is better, and the share is limit / value.
  bool smaller_is_better = false;
  // CPU seconds per second of the server and of this process during the row; negative: not
  // measured.
  double server_cpu = -1;
  double client_cpu = -1;
  std::string note = {};

  double share() const;
};

std::string BenchTable(const std::vector<BenchRow>& rows);
// {"rows": [{"name", "value", "unit", "limit_name", "limit", "share", "goal", "server_cpu",
// "client_cpu", "note"}, ...]}
std::string BenchJson(const std::vector<BenchRow>& rows);

}  // namespace pawl

#endif  // PAWL_TESTS_PERF_BENCH_REPORT_H_
