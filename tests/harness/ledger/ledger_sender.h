// A sender that pushes by the rules of the ledger until it is told to stop, through whatever
// happens.
#ifndef PAWL_TESTS_HARNESS_LEDGER_LEDGER_SENDER_H_
#define PAWL_TESTS_HARNESS_LEDGER_LEDGER_SENDER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client_lib/base/clock.h"
#include "client_lib/client.h"
#include "tests/harness/ledger/ledger.h"

namespace pawl {

struct LedgerSenderOptions {
  std::string scheduler;
  // The name of the ledger's table.
  std::string table = "ledger";
  uint32_t row_width = 64;
  // Which worker of the ledger this is.
  uint32_t worker = 0;
  // Push as this rank of the job, one push a step, and not as a free-running client.
  std::optional<uint32_t> rank = std::nullopt;
  // Of a free-running client: the first sequence. A rank goes on where the servers say.
  uint64_t first_sequence = 0;
  // 0: as fast as it goes.
  double pushes_per_second = 100;
  // Pushes under way at a time.
  uint32_t in_flight = 8;
  // Bytes of zeros for another table ("ballast") in every push, so that messages take long and are
  // cut in their middle.
  size_t ballast_bytes = 0;
  // What a client retries for; longer than any fault lasts.
  MonotonicDuration call_timeout = std::chrono::seconds(120);
  MonotonicDuration connect_timeout = std::chrono::seconds(30);
  // Ends the process as by kill -9 `die_after` after the start of the push of this number, from 1
  // up, of this incarnation.
  uint64_t die_in_push = 0;
  MonotonicDuration die_after = {};
};

struct LedgerSenderSummary {
  uint64_t sent = 0;
  uint64_t acknowledged = 0;
  uint64_t failed = 0;
  // Clients made after the first one: a push that fails leaves its session broken.
  uint64_t reconnects = 0;
  // Of all its clients.
  ClientCounters client;
};

// Connects, creates the table, and pushes, noting in `ledger` what was sent and what came of it.
// After UNAVAILABLE or a lost message the client library sends the same push ids again; a push that
// fails for good is noted as such and followed by a new client, which goes on with the next
// sequence. Returns when the next sequence is `end()` or more and the pushes under way have ended;
// or with the error of a client that could not be made within connect_timeout. `end` is called
// every few milliseconds, from this thread; in SYNC all ranks must be given the same one, for a
// step closes only with all of them.
absl::StatusOr<LedgerSenderSummary> RunLedgerSender(const LedgerSenderOptions& options,
                                                    Ledger& ledger,
                                                    const std::function<uint64_t()>& end);

// One past the last sequence that `ledger` has of this worker.
uint64_t NextSequence(const Ledger& ledger, uint32_t worker);

// The table of the ballast.
TableSpec BallastTable();

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_LEDGER_LEDGER_SENDER_H_
