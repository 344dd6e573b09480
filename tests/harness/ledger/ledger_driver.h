// Pushes for the ledger through the client library.
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
  // The job's number of partitions.
  uint32_t partitions = 0;
  // The worker's number in the ledger.
  uint32_t worker = 0;
  // Pushes sequences 0 to this - 1.
  uint64_t sequences = 0;
  // The number of concurrent pushes.
  uint32_t in_flight = 8;
};

// Makes all pushes, notes them and their outcomes in `ledger`, and returns when the last one has
// ended. A failed push is noted and not repeated, because the client has retried until its
// deadline. Returns the first failure. `table` was created from LedgerTable.
absl::Status DriveFreeRunning(Session& session, const Table& table,
                              const LedgerDriverOptions& options, Ledger& ledger);

// Makes one push per step. Steps overlap as far as the session allows.
absl::Status DriveSteps(LogicalWorker& worker, const Table& table,
                        const LedgerDriverOptions& options, Ledger& ledger);

// Reads rows through `session`. One call reads many sequences of a worker.
LedgerReader ReadThrough(Session& session, const Table& table, uint32_t partitions);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_LEDGER_LEDGER_DRIVER_H_
