// Pushes for the ledger through any fault until it is told to stop.
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
  SecurityOptions security = {};
  // The name of the ledger's table.
  std::string table = "ledger";
  uint32_t row_width = 64;
  // The worker's number in the ledger.
  uint32_t worker = 0;
  // If set, pushes once per step as this rank of the job; otherwise as a free-running client.
  std::optional<uint32_t> rank = std::nullopt;
  // The first sequence of a free-running client. A rank continues at the step that the servers
  // report.
  uint64_t first_sequence = 0;
  // 0: no limit.
  double pushes_per_second = 100;
  // The number of concurrent pushes.
  uint32_t in_flight = 8;
  // Adds this many bytes for another table ("ballast") to every push, so that messages take long
  // enough to be interrupted in the middle. Rows 0 to BallastRows - 1 count their applications.
  size_t ballast_bytes = 0;
  // How long the client retries. Longer than any fault lasts.
  MonotonicDuration call_timeout = std::chrono::seconds(120);
  MonotonicDuration connect_timeout = std::chrono::seconds(30);
  // If not 0, kills the process as kill -9 does, `die_after` after the start of this incarnation's
  // push with this number (from 1).
  uint64_t die_in_push = 0;
  MonotonicDuration die_after = {};
};

struct LedgerSenderSummary {
  uint64_t sent = 0;
  uint64_t acknowledged = 0;
  uint64_t failed = 0;
  // The number of clients after the first. A failed push breaks its session, so a new client
  // follows.
  uint64_t reconnects = 0;
  // Summed over all clients.
  ClientCounters client;
};

// Connects, creates the table, and pushes; notes the pushes and their outcomes in `ledger`. After
// UNAVAILABLE or a lost message the client library resends the same push ids. A push that fails
// permanently is noted, and a new client continues with the next sequence. Returns when the next
// sequence is at least `end()` and no push is in flight, or with an error if a client cannot
// connect within connect_timeout. Calls `end` every few milliseconds on this thread. In SYNC all
// ranks must get the same end, because a step closes only with all of them.
absl::StatusOr<LedgerSenderSummary> RunLedgerSender(const LedgerSenderOptions& options,
                                                    Ledger& ledger,
                                                    const std::function<uint64_t()>& end);

// Returns one past the last sequence of this worker in `ledger`.
uint64_t NextSequence(const Ledger& ledger, uint32_t worker);

// The spec of the ballast's table, and the rows of a push with this much ballast.
TableSpec BallastTable();
uint64_t BallastRows(size_t ballast_bytes);

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_LEDGER_LEDGER_SENDER_H_
