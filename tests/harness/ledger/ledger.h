// The ledger: exact accounting of pushes under any fault.
//
// Push s of worker w carries the gradient -1 to one row of its own in every
// partition of one sparse table (SGD, learning rate 1, initial value 0), so that
// the row reads as how often the push was applied there. The driver notes what it
// sent and what it was told. After the storm all rows are pulled and every push
// must stand in its rows as the notes allow:
//
//   acknowledged   applied exactly once, in every partition
//   unknown        (sent, or failed with any code) 0 or 1 times, each partition by itself
//   never sent     0 times
//
// Anything else is a bug, and is named by worker, sequence and partition. All
// elements of a row must agree: a row is applied whole or not at all. Rows wider
// than 1 are ballast that makes messages large enough to be cut in the middle.
#ifndef PAWL_TESTS_HARNESS_LEDGER_LEDGER_H_
#define PAWL_TESTS_HARNESS_LEDGER_LEDGER_H_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
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

// The table that the ledger is kept in.
TableSpec LedgerTable(const std::string& name, uint32_t row_width);

// The key of push (worker, sequence) in `partition`; distinct for distinct arguments.
// REQUIRES: worker < 2^16, sequence < 2^28, partitions <= 4096.
uint64_t LedgerKey(uint32_t table, uint32_t worker, uint64_t sequence, uint32_t partition,
                   uint32_t partitions);

// What the driver knows. Thread-safe.
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

  // The clock dates the notes; monotonic time is the same in all processes of a machine.
  explicit Ledger(const Clock& clock = Clock::Real()) : clock_(clock) {}
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Also appends every note to the file, before the call returns, so that a driver that is killed
  // leaves its notes. A last line that is cut is taken off first.
  absl::Status WriteTo(const std::string& path);
  // Takes in the notes of a file; its last line may be cut. DATA_LOSS for anything else that is not
  // a note.
  absl::Status ReadFrom(const std::string& path);

  // To be called before the push can have left.
  void Sent(uint32_t worker, uint64_t sequence);
  void Acknowledged(uint32_t worker, uint64_t sequence);
  void Failed(uint32_t worker, uint64_t sequence, absl::StatusCode code);

  std::map<PushName, Fate> pushes() const;
  uint64_t acknowledged() const;
  // When the pushes of each worker were acknowledged, ascending.
  std::map<uint32_t, std::vector<MonotonicTime>> AcknowledgementTimes() const;
  // Failures noted, by code.
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

// What there is to be looked at.
struct LedgerScope {
  uint32_t workers = 0;
  // Sequences 0 to this - 1 of every worker, sent or not.
  uint64_t sequences = 0;
  uint32_t partitions = 0;
  uint32_t row_width = 1;
  // What one application adds to a row: 1, or 1/V where the servers divide the step's sum by V.
  float unit = 1.0f;
  // The number of sequences of single workers, in place of `sequences`.
  std::map<uint32_t, uint64_t> sequences_of = {};
};

// Of every worker with notes, up to its last one and one more, which was never sent.
LedgerScope ScopeOf(const Ledger& ledger, uint32_t partitions, uint32_t row_width);

struct LedgerVerdict {
  // Empty: the ledger is exact. At most kMaxViolations, each with worker, sequence, partition and
  // the row's value.
  std::vector<std::string> violations;
  uint64_t violation_count = 0;
  // Of these, in rows: acknowledged but not applied, and applied more than once.
  uint64_t lost = 0;
  uint64_t doubled = 0;
  // Applications found, over all rows: what the servers' pushes_applied must be.
  uint64_t applied = 0;
  // Of pushes whose fate the driver does not know.
  uint64_t unknown_applied = 0;
  uint64_t unknown_not_applied = 0;

  bool exact() const { return violation_count == 0; }
  std::string ToString() const;
};
inline constexpr size_t kMaxViolations = 20;

// Sets `row` (row_width floats) to the row of push (worker, sequence) in `partition`.
using LedgerReader = std::function<absl::Status(uint32_t worker, uint64_t sequence,
                                                uint32_t partition, absl::Span<float> row)>;

// An error only if the reader gives one.
absl::StatusOr<LedgerVerdict> CheckLedger(const Ledger& ledger, const LedgerScope& scope,
                                          const LedgerReader& reader);

// What the servers must report as the digest of the ledger's table (PartitionDigest in
// proto/server_control.proto), from the rows that a check has read: wrap its reader. Not
// thread-safe.
class LedgerDigest {
 public:
  LedgerDigest(uint32_t table, uint32_t partitions) : table_(table), partitions_(partitions) {}

  // `reader`, noting what it reads; every row is to be read once. REQUIRES: this outlives the
  // result.
  LedgerReader Noting(LedgerReader reader);

  struct Record {
    uint32_t crc32c = 0;
    uint64_t rows = 0;
    friend bool operator==(const Record&, const Record&) = default;
  };
  // By partition; only of partitions with rows.
  std::map<uint32_t, Record> Records() const;

 private:
  const uint32_t table_;
  const uint32_t partitions_;
  // By partition, then key. A row that was never pushed reads as zeros, and no push makes one of
  // zeros.
  std::map<uint32_t, std::map<uint64_t, std::vector<float>>> rows_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_HARNESS_LEDGER_LEDGER_H_
