#include "tests/harness/ledger/ledger.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/partitioner.h"
#include "client_lib/base/testing/table_specs.h"

namespace pawl {
namespace {

constexpr int kPartitionBits = 12;
constexpr int kSequenceBits = 28;
// Bits of the salt, which is chosen so that the key falls into the partition. The chance that no
// salt fits is at most e^-16.
constexpr uint64_t kSaltBits = 16;
// Up to it, each count of applications is a float.
constexpr float kMaxCount = 1 << 24;

}  // namespace

TableSpec LedgerTable(const std::string& name, uint32_t row_width) {
  return WithSgd(SparseTableSpec(name, row_width));
}

uint64_t LedgerKey(uint32_t table, uint32_t worker, uint64_t sequence, uint32_t partition,
                   uint32_t partitions) {
  // The salt fills the middle bits. The partition follows from the key, so the key need not contain
  // it.
  const uint64_t base = (uint64_t{worker} << (64 - 16)) | (sequence << (64 - 16 - kSequenceBits));
  for (uint64_t salt = 0; salt < (uint64_t{1} << kSaltBits); ++salt) {
    if (const uint64_t key = base | salt; PartitionOf(table, key, partitions) == partition)
      return key;
  }
  std::abort();
}

static_assert(16 + kSequenceBits + kSaltBits <= 64 &&
              kPartitionBits <= static_cast<int>(kSaltBits) - 4);

Ledger::~Ledger() {
  MutexLock lock(mu_);
  if (file_ != nullptr) std::fclose(file_);
}

absl::Status Ledger::WriteTo(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    std::filesystem::resize_file(
        path, text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1, error);
    if (error)
      return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot write the ledger ", path));
  }
  MutexLock lock(mu_);
  file_ = std::fopen(path.c_str(), "ae");
  if (file_ == nullptr)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write the ledger ", path));
  return absl::OkStatus();
}

absl::Status Ledger::ReadFrom(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no ledger ", path));
  std::string line;
  uint64_t number = 0;
  while (std::getline(file, line)) {
    ++number;
    if (file.eof()) break;  // a line without an end: truncated
    char kind = 0;
    uint32_t worker = 0;
    uint64_t sequence = 0;
    int code = 0;
    int64_t microseconds = 0;
    int length = -1;
    if (std::sscanf(line.c_str(), "%c %" SCNu32 " %" SCNu64 " %d %" SCNd64 "%n", &kind, &worker,
                    &sequence, &code, &microseconds, &length) != 5 ||
        static_cast<size_t>(length) != line.size() || (kind != 's' && kind != 'a' && kind != 'f')) {
      return absl::DataLossError(
          absl::StrCat(path, ":", number, ": '", line, "' is not a note of a ledger"));
    }
    const MonotonicTime when{std::chrono::microseconds(microseconds)};
    if (kind == 's') Sent(worker, sequence, when);
    if (kind == 'a') Acknowledged(worker, sequence, when);
    if (kind == 'f') Failed(worker, sequence, static_cast<absl::StatusCode>(code), when);
  }
  return absl::OkStatus();
}

void Ledger::Note(const char* kind, uint32_t worker, uint64_t sequence, int code,
                  MonotonicTime when) {
  if (file_ == nullptr) return;
  const int64_t microseconds =
      std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count();
  std::fprintf(file_, "%s %" PRIu32 " %" PRIu64 " %d %" PRId64 "\n", kind, worker, sequence, code,
               microseconds);
  std::fflush(file_);
}

void Ledger::Sent(uint32_t worker, uint64_t sequence) { Sent(worker, sequence, clock_.Now()); }

void Ledger::Acknowledged(uint32_t worker, uint64_t sequence) {
  Acknowledged(worker, sequence, clock_.Now());
}

void Ledger::Failed(uint32_t worker, uint64_t sequence, absl::StatusCode code) {
  Failed(worker, sequence, code, clock_.Now());
}

void Ledger::Sent(uint32_t worker, uint64_t sequence, MonotonicTime when) {
  MutexLock lock(mu_);
  pushes_.try_emplace({worker, sequence}, Fate::kUnknown);
  Note("s", worker, sequence, 0, when);
}

void Ledger::Acknowledged(uint32_t worker, uint64_t sequence, MonotonicTime when) {
  MutexLock lock(mu_);
  pushes_[{worker, sequence}] = Fate::kAcknowledged;
  acknowledgement_times_[worker].push_back(when);
  Note("a", worker, sequence, 0, when);
}

void Ledger::Failed(uint32_t worker, uint64_t sequence, absl::StatusCode code, MonotonicTime when) {
  MutexLock lock(mu_);
  pushes_.try_emplace({worker, sequence}, Fate::kUnknown);
  ++failures_[code];
  Note("f", worker, sequence, static_cast<int>(code), when);
}

std::map<Ledger::PushName, Ledger::Fate> Ledger::pushes() const {
  MutexLock lock(mu_);
  return pushes_;
}

uint64_t Ledger::acknowledged() const {
  MutexLock lock(mu_);
  uint64_t count = 0;
  for (const auto& [name, fate] : pushes_) count += fate == Fate::kAcknowledged;
  return count;
}

std::map<uint32_t, std::vector<MonotonicTime>> Ledger::AcknowledgementTimes() const {
  MutexLock lock(mu_);
  std::map<uint32_t, std::vector<MonotonicTime>> times = acknowledgement_times_;
  // Concurrent calls may add their notes in a different order than their timestamps.
  for (auto& [worker, of_worker] : times) std::sort(of_worker.begin(), of_worker.end());
  return times;
}

std::map<absl::StatusCode, uint64_t> Ledger::failures() const {
  MutexLock lock(mu_);
  return failures_;
}

LedgerScope ScopeOf(const Ledger& ledger, uint32_t partitions, uint32_t row_width) {
  LedgerScope scope;
  scope.partitions = partitions;
  scope.row_width = row_width;
  for (const auto& [name, _] : ledger.pushes()) {
    scope.workers = std::max(scope.workers, name.worker + 1);
    uint64_t& sequences = scope.sequences_of[name.worker];
    sequences = std::max(sequences, name.sequence + 2);
  }
  return scope;
}

std::string LedgerVerdict::ToString() const {
  return absl::StrCat(exact() ? "exact" : absl::StrCat(violation_count, " violations"), ", ",
                      applied, " applied, of the unknown ", unknown_applied, " applied and ",
                      unknown_not_applied, " not", exact() ? "" : "\n",
                      absl::StrJoin(violations, "\n"));
}

absl::StatusOr<LedgerVerdict> CheckLedger(const Ledger& ledger, const LedgerScope& scope,
                                          const LedgerReader& reader) {
  const std::map<Ledger::PushName, Ledger::Fate> pushes = ledger.pushes();
  LedgerVerdict verdict;
  const auto violation = [&](auto&&... words) {
    if (verdict.violation_count++ < kMaxViolations)
      verdict.violations.push_back(absl::StrCat(words...));
  };
  const auto sequences_of = [&scope](uint32_t worker) {
    const auto found = scope.sequences_of.find(worker);
    return found == scope.sequences_of.end() ? scope.sequences : found->second;
  };
  for (const auto& [name, fate] : pushes) {
    if (name.worker >= scope.workers || name.sequence >= sequences_of(name.worker)) {
      violation("push ", name.sequence, " of worker ", name.worker, " is outside the scope");
    }
  }
  std::vector<float> row(scope.row_width);
  for (uint32_t worker = 0; worker < scope.workers; ++worker) {
    for (uint64_t sequence = 0; sequence < sequences_of(worker); ++sequence) {
      const auto push = pushes.find({worker, sequence});
      const bool sent = push != pushes.end();
      const bool acknowledged = sent && push->second == Ledger::Fate::kAcknowledged;
      for (uint32_t partition = 0; partition < scope.partitions; ++partition) {
        if (const absl::Status status = reader(worker, sequence, partition, absl::MakeSpan(row));
            !status.ok()) {
          return status;
        }
        const std::string where = absl::StrCat("worker ", worker, ", sequence ", sequence,
                                               ", partition ", partition, ": ");
        const float value = row[0];
        bool torn = false;
        for (const float element : row) torn |= element != value;
        if (torn) {
          violation(where, "the row is torn; its first element is ", value);
          continue;
        }
        const float times = value / scope.unit;
        // A larger one, such as infinity, is no count. It is a violation below.
        if (times >= 1.0f && times < kMaxCount) verdict.applied += static_cast<uint64_t>(times);
        const char* what = acknowledged ? "acknowledged" : (sent ? "unknown" : "never sent");
        if (times == 1.0f && sent) {
          verdict.unknown_applied += !acknowledged;
        } else if (times == 0.0f && !acknowledged) {
          verdict.unknown_not_applied += sent;
        } else {
          verdict.lost += times == 0.0f;
          verdict.doubled += times > 1.0f;
          violation(where, "the push is ", what, " and the row shows that it was applied ", times,
                    " times");
        }
      }
    }
  }
  return verdict;
}

LedgerReader LedgerDigest::Recording(LedgerReader reader) {
  return [this, reader = std::move(reader)](uint32_t worker, uint64_t sequence, uint32_t partition,
                                            absl::Span<float> row) -> absl::Status {
    if (absl::Status status = reader(worker, sequence, partition, row); !status.ok()) return status;
    if (std::any_of(row.begin(), row.end(), [](float element) { return element != 0.0f; })) {
      rows_[partition][LedgerKey(table_, worker, sequence, partition, partitions_)].assign(
          row.begin(), row.end());
    }
    return absl::OkStatus();
  };
}

std::map<uint32_t, LedgerDigest::Record> LedgerDigest::Records() const {
  std::map<uint32_t, Record> records;
  for (const auto& [partition, rows] : rows_) {
    Record& record = records[partition];
    for (const auto& [key, row] : rows) {
      record.crc32c = Crc32c(record.crc32c, &key, sizeof(key));
      record.crc32c = Crc32c(record.crc32c, row.data(), row.size() * sizeof(float));
      ++record.rows;
    }
  }
  return records;
}

}  // namespace pawl
