#include "tests/harness/ledger/ledger_sender.h"

#include <signal.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "client_lib/base/mutex.h"
#include "client_lib/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// Between two calls of `end`.
constexpr std::chrono::milliseconds kEndInterval{5};
// Between two attempts to connect.
constexpr std::chrono::milliseconds kReconnectInterval{100};
constexpr uint32_t kBallastRowWidth = 4096;

MonotonicTime Now() { return Clock::Real().Now(); }

// State that one sender shares with the callbacks of its pushes.
class PushesInFlight {
 public:
  PushesInFlight(Ledger& ledger, uint32_t worker) : ledger_(ledger), worker_(worker) {}

  void Begin(uint64_t sequence) {
    ledger_.Sent(worker_, sequence);
    MutexLock lock(mu_);
    ++calls_;
    ++sent_;
  }
  void EndPush(uint64_t sequence, const absl::Status& status) {
    if (status.ok()) {
      ledger_.Acknowledged(worker_, sequence);
    } else {
      ledger_.Failed(worker_, sequence, status.code());
    }
    MutexLock lock(mu_);
    ++(status.ok() ? acknowledged_ : failed_);
    End(status);
  }
  void BeginStepEnd() {
    MutexLock lock(mu_);
    ++calls_;
  }
  void EndStepEnd(const absl::Status& status) {
    MutexLock lock(mu_);
    End(status);
  }

  // Returns true once at most `calls` are in flight.
  bool WaitForAtMost(uint64_t calls, MonotonicTime deadline) {
    MutexLock lock(mu_);
    while (calls_ > calls) {
      if (!changed_.WaitUntil(mu_, deadline) && calls_ > calls) return false;
    }
    return true;
  }
  // Returns the first failure since the previous call.
  absl::Status TakeFailure() {
    MutexLock lock(mu_);
    return std::exchange(failure_, absl::OkStatus());
  }
  bool failing() {
    MutexLock lock(mu_);
    return !failure_.ok();
  }
  void AddTo(LedgerSenderSummary& summary) {
    MutexLock lock(mu_);
    summary.sent = sent_;
    summary.acknowledged = acknowledged_;
    summary.failed = failed_;
  }

 private:
  void End(const absl::Status& status) PAWL_REQUIRES(mu_) {
    --calls_;
    if (failure_.ok()) failure_ = status;
    changed_.NotifyAll();
  }

  Ledger& ledger_;
  const uint32_t worker_;
  Mutex mu_;
  CondVar changed_;
  uint64_t calls_ PAWL_GUARDED_BY(mu_) = 0;
  uint64_t sent_ PAWL_GUARDED_BY(mu_) = 0;
  uint64_t acknowledged_ PAWL_GUARDED_BY(mu_) = 0;
  uint64_t failed_ PAWL_GUARDED_BY(mu_) = 0;
  absl::Status failure_ PAWL_GUARDED_BY(mu_);
};

// Lent to a push until it ends.
struct Memory {
  std::vector<uint64_t> keys;
  std::vector<float> gradients;
  std::vector<uint64_t> ballast_keys;
  std::vector<float> ballast;
};

// One client and the session that it pushes through.
struct Connection {
  std::unique_ptr<Client> client;
  Table table;
  Table ballast;
  uint32_t partitions = 0;
  // Null for a free-running client.
  LogicalWorker* rank = nullptr;
};

absl::StatusOr<Connection> Connect(const LedgerSenderOptions& options) {
  ClientOptions client_options;
  client_options.scheduler = options.scheduler;
  client_options.security = options.security;
  client_options.call_timeout = options.call_timeout;
  client_options.connect_timeout = options.connect_timeout;
  client_options.tune_process = false;
  if (options.rank.has_value()) {
    client_options.role = WORKER_ROLE;
    client_options.logical_workers = {*options.rank};
  }
  Connection connection;
  PAWL_ASSIGN_OR_RETURN(connection.client, Client::Connect(client_options));
  Client& client = *connection.client;
  connection.partitions = client.job().partitions();
  const CallOptions call = {.timeout = options.connect_timeout};
  PAWL_ASSIGN_OR_RETURN(
      connection.table,
      client.CreateTable(LedgerTable(options.table, options.row_width), call).get());
  if (options.ballast_bytes > 0) {
    PAWL_ASSIGN_OR_RETURN(connection.ballast, client.CreateTable(BallastTable(), call).get());
  }
  if (options.rank.has_value()) {
    PAWL_RETURN_IF_ERROR(client.Assignment(call).get().status());
    // Continues at the step that the rank's previous incarnation reached, in this process or
    // another.
    PAWL_ASSIGN_OR_RETURN(connection.rank, client.TakeOver(*options.rank, call).get());
  }
  return connection;
}

void Add(const ClientCounters& from, ClientCounters& to) {
  to.segments_accepted += from.segments_accepted;
  to.segments_deduplicated += from.segments_deduplicated;
  to.segments_late += from.segments_late;
  to.messages += from.messages;
  to.retries += from.retries;
  to.routing_changes += from.routing_changes;
}

std::shared_ptr<Memory> MakeMemory(const LedgerSenderOptions& options, const Connection& connection,
                                   uint64_t sequence) {
  auto memory = std::make_shared<Memory>();
  for (uint32_t partition = 0; partition < connection.partitions; ++partition) {
    memory->keys.push_back(LedgerKey(connection.table.id(), options.worker, sequence, partition,
                                     connection.partitions));
  }
  memory->gradients.assign(memory->keys.size() * options.row_width, -1.0f);
  for (uint64_t key = 0; key < BallastRows(options.ballast_bytes); ++key)
    memory->ballast_keys.push_back(key);
  memory->ballast.assign(memory->ballast_keys.size() * kBallastRowWidth, -1.0f);
  return memory;
}

void Push(const LedgerSenderOptions& options, Connection& connection, uint64_t sequence,
          const std::shared_ptr<PushesInFlight>& in_progress) {
  const std::shared_ptr<Memory> memory = MakeMemory(options, connection, sequence);
  std::vector<PushItem> items;
  items.push_back(
      {.table = connection.table, .keys = memory->keys, .gradients = memory->gradients});
  if (!memory->ballast_keys.empty()) {
    items.push_back({.table = connection.ballast,
                     .keys = memory->ballast_keys,
                     .gradients = memory->ballast,
                     .keys_are_distinct = true});
  }
  Session& session =
      connection.rank != nullptr ? *connection.rank : connection.client->free_running();
  in_progress->Begin(sequence);
  session.Push(items, {.timeout = options.call_timeout},
               [in_progress, memory, sequence](const absl::Status& status) {
                 in_progress->EndPush(sequence, status);
               });
  if (connection.rank == nullptr) return;
  in_progress->BeginStepEnd();
  connection.rank->EndStep(
      {.timeout = options.call_timeout},
      [in_progress](const absl::Status& status) { in_progress->EndStepEnd(status); });
}

// Jobs with clip_global_norm close a step in the background, and the rank's next pull waits for
// that.
absl::Status AwaitClose(const LedgerSenderOptions& options, Connection& connection,
                        uint64_t sequence) {
  const std::shared_ptr<Memory> memory = MakeMemory(options, connection, sequence);
  const PullItem rows = {
      .table = connection.table, .keys = memory->keys, .values = absl::MakeSpan(memory->gradients)};
  return connection.rank->Pull({rows}, {.timeout = options.call_timeout}).get();
}

}  // namespace

TableSpec BallastTable() { return LedgerTable("ballast", kBallastRowWidth); }

uint64_t BallastRows(size_t ballast_bytes) {
  return ballast_bytes / (kBallastRowWidth * sizeof(float));
}

uint64_t NextSequence(const Ledger& ledger, uint32_t worker) {
  uint64_t next = 0;
  for (const auto& [name, _] : ledger.pushes()) {
    if (name.worker == worker) next = std::max(next, name.sequence + 1);
  }
  return next;
}

absl::StatusOr<LedgerSenderSummary> RunLedgerSender(const LedgerSenderOptions& options,
                                                    Ledger& ledger,
                                                    const std::function<uint64_t()>& end) {
  const auto in_progress = std::make_shared<PushesInFlight>(ledger, options.worker);
  const auto interval = options.pushes_per_second <= 0
                            ? MonotonicDuration::zero()
                            : std::chrono::duration_cast<MonotonicDuration>(
                                  std::chrono::duration<double>(1 / options.pushes_per_second));
  // A step makes two calls.
  const uint64_t max_calls = uint64_t{options.in_flight} * (options.rank.has_value() ? 2 : 1);
  LedgerSenderSummary summary;
  uint64_t sequence = options.first_sequence;
  uint64_t pushes = 0;
  bool stopped = false;
  for (bool first = true; !stopped; first = false) {
    if (!first) ++summary.reconnects;
    const MonotonicTime give_up = Now() + options.connect_timeout;
    absl::StatusOr<Connection> connection = Connect(options);
    while (!connection.ok() && Now() < give_up && !(stopped = sequence >= end())) {
      std::this_thread::sleep_for(kReconnectInterval);
      connection = Connect(options);
    }
    if (!connection.ok()) {
      if (stopped) break;
      return connection.status();
    }
    if (connection->rank != nullptr) sequence = connection->rank->step();
    MonotonicTime due = Now();
    while (!in_progress->failing()) {
      if ((stopped = sequence >= end())) break;
      if (Now() < due) {
        std::this_thread::sleep_until(std::min<MonotonicTime>(due, Now() + kEndInterval));
        continue;
      }
      if (!in_progress->WaitForAtMost(max_calls - 1, Now() + kEndInterval)) continue;
      Push(options, *connection, sequence++, in_progress);
      if (++pushes == options.die_in_push) {
        std::this_thread::sleep_for(options.die_after);
        raise(SIGKILL);
      }
      // Pushes missed while nothing could be sent are not caught up.
      due = std::max(due + interval, Now() - interval);
    }
    // Returns without a check, because every call has a deadline.
    in_progress->WaitForAtMost(0, Now() + options.call_timeout);
    if (connection->client->job().clip_global_norm() > 0 && !in_progress->failing()) {
      const absl::Status closed = AwaitClose(options, *connection, sequence);
      if (!closed.ok()) return closed;
    }
    Add(connection->client->counters(), summary.client);
    connection->client.reset();
    if (const absl::Status failure = in_progress->TakeFailure(); !failure.ok()) {
      spdlog::warn("worker {}: a push or the end of a step has failed, a new client continues: {}",
                   options.worker, failure.ToString());
    }
  }
  in_progress->AddTo(summary);
  return summary;
}

}  // namespace pawl
