// Optimizer kernels against memcpy.
#ifndef PAWL_TESTS_PERF_KERNEL_ROWS_H_
#define PAWL_TESTS_PERF_KERNEL_ROWS_H_

#include <vector>

#include "tests/perf/bench_report.h"

namespace pawl {

// One row for each optimizer: GB/s of memory read and written by updates of blocks that together
// are larger than the caches, on one thread, beside that of memcpy. And one for the ends of steps
// of many ranks.
std::vector<BenchRow> RunKernelRows(double seconds_a_row);

}  // namespace pawl

#endif  // PAWL_TESTS_PERF_KERNEL_ROWS_H_
