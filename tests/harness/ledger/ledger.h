// The ledger: exact accounting of pushes under any fault.
//
// Push s of worker w carries the gradient -1 to one row of its own in every partition of one sparse
// table (SGD, learning rate 1, initial value 0). The row's value is therefore the number of times
// that the partition applied the push. The driver notes the pushes that it sent and the answers
// that it got. After the faults, a check pulls all rows and compares them with the notes:
//
//   acknowledged   applied exactly once, in every partition
//   unknown        (sent, or failed with any code) 0 or 1 times, independently by partition
//   never sent     0 times
//
// Everything else is a bug, reported by worker, sequence and partition. All elements of a row must
// agree, because a row is applied atomically. Rows wider than 1 are ballast that makes messages
// large enough to be interrupted in the middle.
#ifndef PAWL_TESTS_HARNESS_LEDGER_LEDGER_H_
#define PAWL_TESTS_HARNESS_LEDGER_LEDGER_H_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client_lib/base/clock.h"
#include "client_lib/base/mutex.h"
#include "proto/types.pb.h"

namespace pawl {

// The spec of the ledger's table.
TableSpec LedgerTable(const std::string& name, uint32_t row_width);

// Returns the key of push (worker, sequence) in `partition`. Distinct arguments have distinct keys.
// REQUIRES: worker < 2^16, sequence < 2^28, partitions <= 4096.
uint64_t LedgerKey(uint32_t table, uint32_t worker, uint64_t sequence, uint32_t partition,
                   uint32_t partitions);

// The notes of the driver. Thread-safe.
class Ledger {
 public:
  enum class Fate { kUnknown, kAcknowledged };
  struct PushName {
    uint32_t worker = 0;
    uint64_t sequence = 0;
    friend bool operator<(const PushName& a, const PushName& b) {
      return std::tie(a.worker, a.sequence) < std::tie(b.worker, b.sequence);
    }
  };

  // The clock timestamps the notes. Monotonic time is the same in all processes of a machine.
  explicit Ledger(const Clock& clock = Clock::Real()) : clock_(clock) {}
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Also appends every note to the file before the call returns, so that the notes survive the
  // driver. First removes a truncated last line.
  absl::Status WriteTo(const std::string& path);
  // Adds the notes of a file. Its last line may be truncated. DATA_LOSS for any other malformed
  // line.
  absl::Status ReadFrom(const std::string& path);

  // Call it before the push can leave.
  void Sent(uint32_t worker, uint64_t sequence);
  void Acknowledged(uint32_t worker, uint64_t sequence);
  void Failed(uint32_t worker, uint64_t sequence, absl::StatusCode code);

  std::map<PushName, Fate> pushes() const;
  uint64_t acknowledged() const;
  // The ascending times of each worker's acknowledgements.
  std::map<uint32_t, std::vector<MonotonicTime>> AcknowledgementTimes() const;
  // The number of failures by code.
  std::map<absl::StatusCode, uint64_t> failures() const;

 private:
  void Sent(uint32_t worker, uint64_t sequence, MonotonicTime when) PAWL_EXCLUDES(mu_);
  void Acknowledged(uint32_t worker, uint64_t sequence, MonotonicTime when) PAWL_EXCLUDES(mu_);
  void Failed(uint32_t worker, uint64_t sequence, absl::StatusCode code, MonotonicTime when)
      PAWL_EXCLUDES(mu_);
  void Note(const char* kind, uint32_t worker, uint64_t sequence, int code, MonotonicTime when)
      PAWL_REQUIRES(mu_);

  const Clock& clock_;
  mutable Mutex mu_;
  std::map<PushName, Fate> pushes_ PAWL_GUARDED_BY(mu_);
  std::map<uint32_t, std::vector<MonotonicTime>> acknowledgement_times_ PAWL_GUARDED_BY(mu_);
  std::map<absl::StatusCode, uint64_t> failures_ PAWL_GUARDED_BY(mu_);
  FILE* file_ PAWL_GUARDED_BY(mu_) = nullptr;
};

// The rows to check.
struct LedgerScope {
  uint32_t workers = 0;
  // Sequences 0 to this - 1 of every worker, sent or not.
  uint64_t sequences = 0;
  uint32_t partitions = 0;
  uint32_t row_width = 1;
  // The value that one application adds to a row: 1, or 1/V if the servers divide the step's sum by
  // V.
  float unit = 1.0f;
  // Overrides `sequences` for single workers.
  std::map<uint32_t, uint64_t> sequences_of = {};
};

// Covers every worker with notes, up to its last sequence and one more, which was never sent.
LedgerScope ScopeOf(const Ledger& ledger, uint32_t partitions, uint32_t row_width);

struct LedgerVerdict {
  // Empty if the ledger is exact. At most kMaxViolations entries, each with worker, sequence,
  // partition and the row's value.
  std::vector<std::string> violations;
  uint64_t violation_count = 0;
  // Violations counted in rows: acknowledged but not applied, and applied more than once.
  uint64_t lost = 0;
  uint64_t doubled = 0;
  // Applications found over all rows. The servers' keys_pushed must equal it.
  uint64_t applied = 0;
  // Applications of pushes with an unknown outcome.
  uint64_t unknown_applied = 0;
  uint64_t unknown_not_applied = 0;

  bool exact() const { return violation_count == 0; }
  std::string ToString() const;
};
inline constexpr size_t kMaxViolations = 20;

// Sets `row` (row_width floats) to the row of push (worker, sequence) in `partition`.
using LedgerReader = std::function<absl::Status(uint32_t worker, uint64_t sequence,
                                                uint32_t partition, absl::Span<float> row)>;

// Fails only if the reader fails.
absl::StatusOr<LedgerVerdict> CheckLedger(const Ledger& ledger, const LedgerScope& scope,
                                          const LedgerReader& reader);

// Computes the digest that the servers must report for the ledger's table (PartitionDigest in
// proto/server_control.proto) from the rows that a check reads through Recording. Not thread-safe.
class LedgerDigest {
 public:
  LedgerDigest(uint32_t table, uint32_t partitions) : table_(table), partitions_(partitions) {}

  // Wraps `reader` and records the rows that it returns. Read every row once. REQUIRES: this object
  // outlives the result.
  LedgerReader Recording(LedgerReader reader);

  struct Record {
    uint32_t crc32c = 0;
    uint64_t rows = 0;
    friend bool operator==(const Record&, const Record&) = default;
  };
  // By partition; only partitions with rows.
  std::map<uint32_t, Record> Records() const;

 private:
  const uint32_t table_;
  const uint32_t partitions_;
  // By partition, then key. Rows of zeros are left out: an absent row reads as zeros, and no push
  // writes zeros.
  std::map<uint32_t, std::map<uint64_t, std::vector<float>>> rows_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_LEDGER_LEDGER_H_
