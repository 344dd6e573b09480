#include "tests/harness/ledger/ledger_driver.h"

#include <algorithm>
#include <deque>
#include <future>
#include <utility>

namespace pawl {
namespace {

// Longer than the client's own deadline.
constexpr std::chrono::seconds kCallTimeout{60};
constexpr std::chrono::seconds kGrace{30};
// The size of one pull of the reader, including the pushes that it covers.
constexpr uint64_t kReadBytes = 2 << 20;
constexpr uint64_t kMaxAhead = 256;

std::vector<uint64_t> KeysOf(const Table& table, uint32_t worker, uint64_t sequence,
                             uint32_t partitions) {
  std::vector<uint64_t> keys;
  for (uint32_t partition = 0; partition < partitions; ++partition) {
    keys.push_back(LedgerKey(table.id(), worker, sequence, partition, partitions));
  }
  return keys;
}

// A push in flight and the memory that it uses.
struct PushInFlight {
  uint64_t sequence = 0;
  std::unique_ptr<std::vector<uint64_t>> keys;
  std::future<absl::Status> pushed;
  std::future<absl::Status> ended;
};

absl::Status Get(std::future<absl::Status>& future) {
  if (future.wait_for(kCallTimeout + kGrace) != std::future_status::ready) {
    return absl::InternalError("a call has not ended by its deadline");
  }
  return future.get();
}

// Calls `push` (which may also end the step) with at most in_flight calls at a time.
template <typename Push>
absl::Status Drive(const Table& table, const LedgerDriverOptions& options, Ledger& ledger,
                   Push push) {
  const std::vector<float> gradients(options.partitions * table.row_width(), -1.0f);
  std::deque<PushInFlight> in_progress;
  absl::Status first_failure;
  const auto finish_oldest = [&] {
    PushInFlight oldest = std::move(in_progress.front());
    in_progress.pop_front();
    absl::Status status = Get(oldest.pushed);
    if (status.ok()) {
      ledger.Acknowledged(options.worker, oldest.sequence);
    } else {
      ledger.Failed(options.worker, oldest.sequence, status.code());
    }
    if (oldest.ended.valid()) {
      const absl::Status ended = Get(oldest.ended);
      if (status.ok()) status = ended;
    }
    if (first_failure.ok()) first_failure = std::move(status);
  };
  for (uint64_t sequence = 0; sequence < options.sequences && first_failure.ok(); ++sequence) {
    if (in_progress.size() >= options.in_flight) finish_oldest();
    PushInFlight& next = in_progress.emplace_back();
    next.sequence = sequence;
    next.keys = std::make_unique<std::vector<uint64_t>>(
        KeysOf(table, options.worker, sequence, options.partitions));
    ledger.Sent(options.worker, sequence);
    push(PushItem{.table = table, .keys = *next.keys, .gradients = gradients}, next);
  }
  while (!in_progress.empty()) finish_oldest();
  return first_failure;
}

}  // namespace

absl::Status DriveFreeRunning(Session& session, const Table& table,
                              const LedgerDriverOptions& options, Ledger& ledger) {
  return Drive(table, options, ledger, [&](const PushItem& item, PushInFlight& call) {
    call.pushed = session.Push({item}, {.timeout = kCallTimeout});
  });
}

absl::Status DriveSteps(LogicalWorker& worker, const Table& table,
                        const LedgerDriverOptions& options, Ledger& ledger) {
  Session& session = worker;
  return Drive(table, options, ledger, [&](const PushItem& item, PushInFlight& call) {
    call.pushed = session.Push({item}, {.timeout = kCallTimeout});
    call.ended = worker.EndStep({.timeout = kCallTimeout});
  });
}

LedgerReader ReadThrough(Session& session, const Table& table, uint32_t partitions) {
  struct Cached {
    uint32_t worker = UINT32_MAX;
    uint64_t first = 0;
    uint64_t count = 0;
    std::vector<float> rows;
  };
  // Reads ahead. Rows beyond the scope cost little: they are absent.
  const uint64_t sequence_bytes = partitions * table.row_width() * sizeof(float);
  const uint64_t ahead = std::clamp<uint64_t>(kReadBytes / sequence_bytes, 1, kMaxAhead);
  return [&session, table, partitions, ahead, cached = std::make_shared<Cached>()](
             uint32_t worker, uint64_t sequence, uint32_t partition,
             absl::Span<float> row) -> absl::Status {
    if (cached->worker != worker || sequence < cached->first ||
        sequence >= cached->first + cached->count) {
      std::vector<uint64_t> keys;
      for (uint64_t next = sequence; next < sequence + ahead; ++next) {
        for (const uint64_t key : KeysOf(table, worker, next, partitions)) keys.push_back(key);
      }
      cached->rows.resize(keys.size() * table.row_width());
      cached->count = 0;
      auto pulled =
          session.Pull({{.table = table, .keys = keys, .values = absl::MakeSpan(cached->rows)}});
      if (absl::Status status = Get(pulled); !status.ok()) return status;
      cached->worker = worker;
      cached->first = sequence;
      cached->count = ahead;
    }
    const size_t index = (sequence - cached->first) * partitions + partition;
    std::copy_n(&cached->rows[index * row.size()], row.size(), row.begin());
    return absl::OkStatus();
  };
}

}  // namespace pawl
