// ledger-sender: a worker of a ledger (tests/harness/ledger/ledger.h) as a process that can be
// killed.
//
//   ledger-sender --scheduler=127.0.0.1:7000 --worker=0 --notes=sender-0.notes --end_file=end
//
// Restarted with the same notes, it continues after their last sequence. Exit codes: 0: it has
// reached its end, 1: it failed, 2: wrong usage.
#include <chrono>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

#include "absl/flags/flag.h"
#include "client_lib/base/clock.h"
#include "client_lib/daemon/daemon.h"
#include "spdlog/spdlog.h"
#include "tests/harness/ledger/ledger.h"
#include "tests/harness/ledger/ledger_sender.h"

ABSL_FLAG(std::string, scheduler, "", "host:port of the scheduler");
ABSL_FLAG(std::string, tls_dir, "", "folder with the certificate; default: PAWL_TLS_DIR");
ABSL_FLAG(std::string, notes, "", "file for the notes of sent pushes and their outcomes");
ABSL_FLAG(
    std::string, end_file, "",
    "a file whose content, once it exists, is the sequence to stop before; SIGTERM stops at once");
ABSL_FLAG(std::string, table, "ledger", "the ledger's table");
ABSL_FLAG(uint32_t, worker, 0, "the worker's number in the ledger");
ABSL_FLAG(int32_t, rank, -1, "push as this rank of the job; -1: as a free-running client");
ABSL_FLAG(uint32_t, row_width, 64, "floats per row");
ABSL_FLAG(double, pushes_per_second, 100, "rate of pushes; 0: no limit");
ABSL_FLAG(uint32_t, in_flight, 8, "concurrent pushes");
ABSL_FLAG(uint64_t, ballast_bytes, 0, "additional bytes in every push");
ABSL_FLAG(uint32_t, call_timeout_s, 120, "time limit of a push, with retries");
ABSL_FLAG(uint32_t, connect_timeout_s, 120, "time limit of a connection, with retries");
ABSL_FLAG(uint64_t, die_in_push, 0,
          "kill the process as kill -9 does during the push with this number; 0: never");
ABSL_FLAG(uint32_t, die_after_us, 0, "delay of that kill after the start of the push");

namespace pawl {
namespace {

constexpr std::chrono::milliseconds kLookInterval{20};

int Send(EndSignal& signal) {
  LedgerSenderOptions options;
  options.scheduler = absl::GetFlag(FLAGS_scheduler);
  options.security.tls_dir = absl::GetFlag(FLAGS_tls_dir);
  options.table = absl::GetFlag(FLAGS_table);
  options.worker = absl::GetFlag(FLAGS_worker);
  if (absl::GetFlag(FLAGS_rank) >= 0)
    options.rank = static_cast<uint32_t>(absl::GetFlag(FLAGS_rank));
  options.row_width = absl::GetFlag(FLAGS_row_width);
  options.pushes_per_second = absl::GetFlag(FLAGS_pushes_per_second);
  options.in_flight = absl::GetFlag(FLAGS_in_flight);
  options.ballast_bytes = absl::GetFlag(FLAGS_ballast_bytes);
  options.call_timeout = std::chrono::seconds(absl::GetFlag(FLAGS_call_timeout_s));
  options.connect_timeout = std::chrono::seconds(absl::GetFlag(FLAGS_connect_timeout_s));
  options.die_in_push = absl::GetFlag(FLAGS_die_in_push);
  options.die_after = std::chrono::microseconds(absl::GetFlag(FLAGS_die_after_us));
  const std::string notes = absl::GetFlag(FLAGS_notes);
  if (options.scheduler.empty() || notes.empty())
    return UsageError("--scheduler and --notes are required");

  Ledger ledger;
  if (std::ifstream(notes).good()) {
    Ledger former;
    if (const absl::Status status = former.ReadFrom(notes); !status.ok())
      return UsageError(status.message());
    options.first_sequence = NextSequence(former, options.worker);
  }
  if (const absl::Status status = ledger.WriteTo(notes); !status.ok())
    return UsageError(status.message());

  const std::string end_file = absl::GetFlag(FLAGS_end_file);
  MonotonicTime next_look = {};
  uint64_t end = std::numeric_limits<uint64_t>::max();
  const auto summary = RunLedgerSender(options, ledger, [&] {
    if (Clock::Real().Now() < next_look) return end;
    next_look = Clock::Real().Now() + kLookInterval;
    if (signal.Wait(MonotonicDuration::zero())) end = 0;
    if (uint64_t number = 0; !end_file.empty() && std::ifstream(end_file) >> number) end = number;
    return end;
  });
  if (!summary.ok()) {
    spdlog::error("{}", summary.status().ToString());
    return kExitFailed;
  }
  spdlog::info(
      "{} pushes sent, {} acknowledged, {} failed; {} new clients; {} messages, {} of them "
      "repeated, "
      "{} routing changes",
      summary->sent, summary->acknowledged, summary->failed, summary->reconnects,
      summary->client.messages, summary->client.retries, summary->client.routing_changes);
  return kExitDone;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  pawl::SetUpDaemon(
      "ledger-sender",
      "a worker of a ledger, for tests.\n\n"
      "  ledger-sender --scheduler=127.0.0.1:7000 --worker=0 --notes=sender-0.notes --end_file=end",
      argc, argv);
  pawl::EndSignal signal;
  return pawl::Send(signal);
}
