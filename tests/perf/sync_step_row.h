// The row for whole steps of a SYNC job.
#ifndef PAWL_TESTS_PERF_SYNC_STEP_ROW_H_
#define PAWL_TESTS_PERF_SYNC_STEP_ROW_H_

#include "absl/status/statusor.h"
#include "tests/perf/bench_report.h"

namespace pawl {

inline constexpr char kSyncStepRow[] = "SYNC step, 4 ranks, LOG";

// Starts a scheduler and two servers with durability LOG, and makes the steps of four ranks in this
// process: each pulls and pushes keys of a table of 16 floats a row and of one of a single float,
// and ends the step. The rate counts the keys of both tables once for a step, not for each call.
absl::StatusOr<BenchRow> RunSyncStepRow(double seconds);

}  // namespace pawl

#endif  // PAWL_TESTS_PERF_SYNC_STEP_ROW_H_
