// Pushes by the rules of the ledger, through the client library.
#ifndef PAWL_TESTS_HARNESS_LEDGER_LEDGER_DRIVER_H_
#define PAWL_TESTS_HARNESS_LEDGER_LEDGER_DRIVER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "client_lib/client.h"
#include "tests/harness/ledger/ledger.h"

namespace pawl {

struct LedgerDriverOptions {
  // The job's partitions.
  uint32_t partitions = 0;
  // Which worker of the ledger this is.
  uint32_t worker = 0;
  // Pushes 0 to this - 1.
  uint64_t sequences = 0;
  // Pushes under way at a time.
  uint32_t in_flight = 8;
};

// Makes all pushes, noting in `ledger` what was sent and what came of it; returns when the last one
// has ended. A push that fails is noted and not made again (the client has tried for its whole
// deadline); the first such failure is returned. `table` is of LedgerTable.
absl::Status DriveFreeRunning(Session& session, const Table& table,
                              const LedgerDriverOptions& options, Ledger& ledger);

// One push in each step. Steps overlap as far as the session lets them.
absl::Status DriveSteps(LogicalWorker& worker, const Table& table,
                        const LedgerDriverOptions& options, Ledger& ledger);

// Reads rows through `session`, those of many sequences of a worker with one call.
LedgerReader ReadThrough(Session& session, const Table& table, uint32_t partitions);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_LEDGER_LEDGER_DRIVER_H_
