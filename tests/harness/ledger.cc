#include "tests/harness/ledger.h"

#include <cerrno>
#include <cinttypes>
#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/partitioner.h"

namespace pawl {
namespace {

constexpr int kPartitionBits = 12;
constexpr int kSequenceBits = 28;
// Keys tried for one partition; that none of them falls into it has a chance of e^-16 and less.
constexpr uint64_t kSaltBits = 16;

}  // namespace

TableSpec LedgerTable(const std::string& name, uint32_t row_width) {
  TableSpec spec;
  spec.set_name(name);
  spec.set_kind(SPARSE);
  spec.set_row_width(row_width);
  spec.mutable_optimizer()->mutable_sgd()->set_learning_rate(1.0f);
  return spec;
}

uint64_t LedgerKey(uint32_t table, uint32_t worker, uint64_t sequence, uint32_t partition, uint32_t partitions) {
  // The salt in the middle is free; the partition follows from the key, so it need not be in it.
  const uint64_t base = (uint64_t{worker} << (64 - 16)) | (sequence << (64 - 16 - kSequenceBits));
  for (uint64_t salt = 0; salt < (uint64_t{1} << kSaltBits); ++salt) {
    if (const uint64_t key = base | salt; PartitionOf(table, key, partitions) == partition) return key;
  }
  std::abort();
}

static_assert(16 + kSequenceBits + kSaltBits <= 64 && kPartitionBits <= static_cast<int>(kSaltBits) - 4);

Ledger::~Ledger() {
  MutexLock lock(mu_);
  if (file_ != nullptr) std::fclose(file_);
}

absl::Status Ledger::WriteTo(const std::string& path) {
  MutexLock lock(mu_);
  file_ = std::fopen(path.c_str(), "ae");
  if (file_ == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write the ledger ", path));
  return absl::OkStatus();
}

absl::Status Ledger::ReadFrom(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("there is no ledger ", path));
  std::string line;
  uint64_t number = 0;
  while (std::getline(file, line)) {
    ++number;
    if (file.eof()) break;  // without its end: cut
    char kind = 0;
    uint32_t worker = 0;
    uint64_t sequence = 0;
    int code = 0;
    int length = -1;
    if (std::sscanf(line.c_str(), "%c %" SCNu32 " %" SCNu64 " %d%n", &kind, &worker, &sequence, &code, &length) != 4 ||
        static_cast<size_t>(length) != line.size() || (kind != 's' && kind != 'a' && kind != 'f')) {
      return absl::DataLossError(absl::StrCat(path, ":", number, ": '", line, "' is not a note of a ledger"));
    }
    if (kind == 's') Sent(worker, sequence);
    if (kind == 'a') Acknowledged(worker, sequence);
    if (kind == 'f') Failed(worker, sequence, static_cast<absl::StatusCode>(code));
  }
  return absl::OkStatus();
}

void Ledger::Note(const char* kind, uint32_t worker, uint64_t sequence, int code) {
  if (file_ == nullptr) return;
  std::fprintf(file_, "%s %" PRIu32 " %" PRIu64 " %d\n", kind, worker, sequence, code);
  std::fflush(file_);
}

void Ledger::Sent(uint32_t worker, uint64_t sequence) {
  MutexLock lock(mu_);
  pushes_.try_emplace({worker, sequence}, Fate::kUnknown);
  Note("s", worker, sequence, 0);
}

void Ledger::Acknowledged(uint32_t worker, uint64_t sequence) {
  MutexLock lock(mu_);
  pushes_[{worker, sequence}] = Fate::kAcknowledged;
  Note("a", worker, sequence, 0);
}

void Ledger::Failed(uint32_t worker, uint64_t sequence, absl::StatusCode code) {
  MutexLock lock(mu_);
  pushes_.try_emplace({worker, sequence}, Fate::kUnknown);
  ++failures_[code];
  Note("f", worker, sequence, static_cast<int>(code));
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

std::map<absl::StatusCode, uint64_t> Ledger::failures() const {
  MutexLock lock(mu_);
  return failures_;
}

std::string LedgerVerdict::ToString() const {
  return absl::StrCat(exact() ? "exact" : absl::StrCat(violation_count, " violations"), ", ", applied, " applied, of unknown fate ",
                      unknown_applied, " applied and ", unknown_not_applied, " not", exact() ? "" : "\n",
                      absl::StrJoin(violations, "\n"));
}

absl::StatusOr<LedgerVerdict> CheckLedger(const Ledger& ledger, const LedgerScope& scope, const LedgerReader& reader) {
  const std::map<Ledger::PushName, Ledger::Fate> pushes = ledger.pushes();
  LedgerVerdict verdict;
  const auto violation = [&](auto&&... words) {
    if (verdict.violation_count++ < kMaxViolations) verdict.violations.push_back(absl::StrCat(words...));
  };
  for (const auto& [name, fate] : pushes) {
    if (name.worker >= scope.workers || name.sequence >= scope.sequences) {
      violation("push ", name.sequence, " of worker ", name.worker, " is outside of what is looked at");
    }
  }
  std::vector<float> row(scope.row_width);
  for (uint32_t worker = 0; worker < scope.workers; ++worker) {
    for (uint64_t sequence = 0; sequence < scope.sequences; ++sequence) {
      const auto push = pushes.find({worker, sequence});
      const bool sent = push != pushes.end();
      const bool acknowledged = sent && push->second == Ledger::Fate::kAcknowledged;
      for (uint32_t partition = 0; partition < scope.partitions; ++partition) {
        if (const absl::Status status = reader(worker, sequence, partition, absl::MakeSpan(row)); !status.ok()) return status;
        const std::string where =
            absl::StrCat("worker ", worker, ", sequence ", sequence, ", partition ", partition, ": ");
        const float value = row[0];
        bool torn = false;
        for (const float element : row) torn |= element != value;
        if (torn) {
          violation(where, "the row is torn, it begins with ", value);
          continue;
        }
        const float times = value / scope.unit;
        if (times >= 1.0f) verdict.applied += static_cast<uint64_t>(times);
        const char* what = acknowledged ? "acknowledged" : (sent ? "of unknown fate" : "never sent");
        if (times == 1.0f && sent) {
          verdict.unknown_applied += !acknowledged;
        } else if (times == 0.0f && !acknowledged) {
          verdict.unknown_not_applied += sent;
        } else {
          violation(where, "the push is ", what, " and the row says that it was applied ", times, " times");
        }
      }
    }
  }
  return verdict;
}

}  // namespace pawl
