// Rows that need no cluster: optimizer kernels and partitions, on one thread.
#ifndef PAWL_TESTS_PERF_KERNEL_ROWS_H_
#define PAWL_TESTS_PERF_KERNEL_ROWS_H_

#include <string>
#include <vector>

#include "tests/perf/bench_report.h"

namespace pawl {

// Rates are per second of processor time. Returns one row per optimizer: GB/s of memory read and
// written by single-threaded updates of blocks that together exceed the caches, compared with
// memcpy; one row for step ends with many ranks; and rows for the steps of a SYNC job on sparse
// tables. `filter` is that of the command line; rows that it excludes may be returned too.
std::vector<BenchRow> RunKernelRows(double seconds_a_row, const std::string& filter);

}  // namespace pawl

#endif  // PAWL_TESTS_PERF_KERNEL_ROWS_H_
