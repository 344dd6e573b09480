// Compares optimizer kernels with memcpy.
#ifndef PAWL_TESTS_PERF_KERNEL_ROWS_H_
#define PAWL_TESTS_PERF_KERNEL_ROWS_H_

#include <vector>

#include "tests/perf/bench_report.h"

namespace pawl {

// Returns one row per optimizer: GB/s of memory read and written by single-threaded updates of
// blocks that together exceed the caches, compared with memcpy; and one row for step ends with many
// ranks.
std::vector<BenchRow> RunKernelRows(double seconds_a_row);

}  // namespace pawl

#endif  // PAWL_TESTS_PERF_KERNEL_ROWS_H_
