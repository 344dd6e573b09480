#include "tests/chaos/storm/storm.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <system_error>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/status_macros.h"
#include "client_lib/base/testing/eventually.h"
#include "client_lib/client.h"
#include "grpcpp/grpcpp.h"
#include "tests/chaos/storm/bulk_table.h"
#include "tests/chaos/storm/storm_check.h"
#include "tests/harness/ledger/ledger.h"
#include "tests/harness/ledger/ledger_sender.h"
#include "tests/harness/ledger/write_pauses.h"
#include "tests/harness/plain_client.h"
#include "tests/harness/process_cluster.h"

namespace pawl {
namespace {

using Direction = ByteProxy::Direction;

constexpr std::chrono::milliseconds kWatchInterval{20};
constexpr std::chrono::milliseconds kEpochInterval{200};
// The deadline for senders to finish calls in flight: their own deadline and a margin.
constexpr uint32_t kCallTimeoutSeconds = 120;
constexpr std::chrono::seconds kSendersEnd{kCallTimeoutSeconds + 30};
constexpr std::chrono::seconds kStartLimit{30};
// A server that does not pass the failpoint within this time is killed instead.
constexpr std::chrono::seconds kFailpointLimit{20};
constexpr std::chrono::seconds kCrashInPushLimit{60};
// All ranks continue this many steps beyond the last sequence of any rank.
constexpr uint64_t kStepsToEnd = 30;
constexpr uint32_t kInFlight = 8;
// Disks are sparse files, so only written blocks take space.
constexpr uint64_t kDiskBytes = uint64_t{1} << 30;
// A log, a snapshot and its successor, and as much again for files that are being deleted.
constexpr uint64_t kDiskBytesPerByte = 6;
constexpr size_t kMaxReportedViolations = 50;
// The part of a sender's notes that LastAcknowledgement reads.
constexpr std::streamoff kNotesTailBytes = 8192;

// Reads the time of the last acknowledgement from a file of notes (tests/harness/ledger/ledger.h)
// that may be growing. Returns the minimum time if there is none near the end.
MonotonicTime LastAcknowledgement(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  const std::streamoff from = std::max<std::streamoff>(0, size - kNotesTailBytes);
  file.seekg(from);
  std::string text(static_cast<size_t>(size - from), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  // The text after the last line end is empty or truncated.
  if (!lines.empty()) lines.pop_back();
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const std::vector<absl::string_view> words = absl::StrSplit(*line, ' ');
    int64_t microseconds = 0;
    if (words.size() == 5 && words[0] == "a" && absl::SimpleAtoi(words[4], &microseconds)) {
      return MonotonicTime(std::chrono::microseconds(microseconds));
    }
  }
  return {};
}

MonotonicTime Now() { return Clock::Real().Now(); }

class Storm {
 public:
  explicit Storm(const StormOptions& options) : options_(options) { report_.seed = options.seed; }

  absl::Status Start() {
    ProcessClusterOptions cluster;
    cluster.job = absl::StrCat("name: 'storm' seed: 3 partitions: ", options_.partitions,
                               " logical_workers: ", options_.senders,
                               " consistency { mode: ", ConsistencyMode_Name(options_.mode),
                               options_.mode == BOUNDED ? " staleness: 3" : "", " }");
    if (options_.clips) absl::StrAppend(&cluster.job, " clip_global_norm: 1e30");
    if (options_.durability != DURABILITY_UNSPECIFIED) {
      absl::StrAppend(&cluster.job, " durability: ", Durability_Name(options_.durability));
    }
    if (options_.replicas > 0) cluster.replicas = options_.replicas;
    cluster.servers = options_.servers;
    cluster.expected_workers = ranks() ? options_.senders : 0;
    cluster.lease = std::chrono::milliseconds(options_.lease_ms);
    cluster.flags["scheduler"] = {
        absl::StrCat("--heartbeat_interval_ms=", options_.heartbeat_interval_ms)};
    cluster.proxies = true;
    cluster.tls = options_.tls;
    if (options_.disks) cluster.server_disk_bytes = kDiskBytes + kDiskBytesPerByte * bulk_bytes();
    if (!options_.failpoints.empty())
      cluster.server_program = "tests/chaos/pawl-server-with-failpoints";
    PAWL_ASSIGN_OR_RETURN(cluster_, ProcessCluster::Start(cluster));
    alive_.insert("scheduler");
    for (uint32_t i = 0; i < options_.servers; ++i) {
      servers_.push_back(absl::StrCat("server-", i));
      alive_.insert(servers_.back());
    }
    if (options_.bulk_rows > 0) {
      PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect());
      PAWL_RETURN_IF_ERROR(WriteBulkTable(*client, options_.bulk_rows, options_.row_width));
    }
    for (uint32_t i = 0; i < options_.senders; ++i) {
      senders_.push_back(absl::StrCat("sender-", i));
      std::vector<std::string> arguments = SenderArguments(senders_.back(), i);
      arguments.push_back(absl::StrCat("--pushes_per_second=", options_.pushes_per_second));
      arguments.push_back(absl::StrCat("--in_flight=", kInFlight));
      arguments.push_back(absl::StrCat("--end_file=", folder(), "/end"));
      if (ranks()) arguments.push_back(absl::StrCat("--rank=", i));
      PAWL_RETURN_IF_ERROR(
          cluster_->AddProcess(senders_.back(), "tests/chaos/sender/ledger-sender", arguments));
      alive_.insert(senders_.back());
    }
    report_.cluster = absl::StrCat(
        options_.servers, " servers, ", options_.replicas, " replicas, durability ",
        Durability_Name(options_.durability), ", ", ConsistencyMode_Name(options_.mode),
        options_.clips ? " with clip_global_norm, " : ", ", options_.senders, " senders of ",
        options_.pushes_per_second, " pushes/s", options_.tls ? ", TLS" : "");
    if (options_.bulk_rows > 0) {
      absl::StrAppend(&report_.cluster, ", ", options_.bulk_rows, " rows of ", options_.row_width,
                      " floats beside them");
    }
    const MonotonicTime beginning = Now();
    std::string missing;
    const auto nothing_is_missing = [&] {
      missing = Missing(beginning);
      return missing.empty();
    };
    if (!Eventually(nothing_is_missing, kStartLimit)) {
      return absl::DeadlineExceededError(
          absl::StrCat("before any fault: ", missing, "\n", cluster_->Describe()));
    }
    begin_ = Now();
    return absl::OkStatus();
  }

  void InjectFaults(StormPlan& plan) {
    const MonotonicTime end = begin_ + options_.duration;
    while (!is_aborted_ && Now() < end) {
      const Fault fault = plan.Next();
      Watch(fault.calm);
      if (is_aborted_ || Now() >= end) break;
      FaultRecord record;
      record.kind = fault.kind;
      record.text = fault.ToString();
      record.at_s = Seconds(Now() - begin_);
      options_.progress(absl::StrFormat("%7.1f s  %s", record.at_s, record.text));
      TimeSpan span = {Now(), {}};
      if (const absl::Status status = Inject(fault, span.from, record.happened); !status.ok()) {
        Violation(absl::StrCat(record.text, ": ", status.message()));
      }
      if (!record.happened) options_.progress("           it did not happen");
      const bool recovered = Recover(record.text);
      span.until = Now();
      if (recovered) record.recovered_s = Seconds(span.until - span.from);
      spans_.push_back(span);
      victims_.push_back(fault.victim);
      report_.faults.push_back(record);
      is_aborted_ = is_aborted_ || !recovered;
    }
    report_.duration_s = Seconds(Now() - begin_);
  }

  // Stops the senders and checks everything.
  void Verify() {
    for (const std::string& name : names_with_proxy()) cluster_->proxy(name).Heal();
    EndSenders();
    Ledger ledger;
    for (const std::string& notes : notes_) {
      // The process died before it sent anything.
      if (!std::filesystem::exists(notes)) continue;
      if (const absl::Status status = ledger.ReadFrom(notes); !status.ok())
        Violation(std::string(status.message()));
    }
    report_.pushes_sent = ledger.pushes().size();
    report_.pushes_acknowledged = ledger.acknowledged();
    for (const auto& [code, count] : ledger.failures()) {
      report_.pushes_failed[absl::StatusCodeToString(code)] = count;
      // A rank that was declared dead may do nothing more; its next incarnation repeats the calls
      // in flight.
      if (ranks() && code == absl::StatusCode::kAborted) continue;
      Violation(absl::StrCat(count, " pushes failed with ", absl::StatusCodeToString(code)));
    }
    MeasurePauses(ledger);
    for (const std::string& kind : KindsThatNeverHappened(report_.faults)) Violation(kind);
    StormCheck check(options_, *cluster_, servers_, BallastRows(ballast_bytes_), report_,
                     [this](const std::string& what) { Violation(what); });
    if (const absl::Status status = CheckRows(check, ledger); !status.ok()) {
      Violation(absl::StrCat("the ledger cannot be checked: ", status.ToString()));
    }
    if (const absl::Status status = check.CheckReplicas(); !status.ok()) {
      Violation(absl::StrCat("the replicas cannot be compared: ", status.ToString()));
    }
    if (const auto status = cluster_->GetStatus(); status.ok())
      report_.last_epoch = status->routing_epoch();
    if (!report_.ok()) options_.progress(cluster_->Describe());
  }

  const std::string& folder() const { return cluster_->folder(); }
  const StormReport& report() const { return report_; }

 private:
  bool ranks() const { return options_.mode != ASYNC; }
  uint64_t bulk_bytes() const { return options_.bulk_rows * options_.row_width * sizeof(float); }

  absl::StatusOr<std::unique_ptr<Client>> Connect() {
    ClientOptions options;
    options.scheduler = cluster_->scheduler_address();
    options.connect_timeout = kStartLimit;
    if (options_.tls) options.security.tls_dir = cluster_->tls_dir("client");
    return Client::Connect(options);
  }

  std::vector<std::string> names_with_proxy() const {
    std::vector<std::string> names = servers_;
    names.emplace_back("scheduler");
    return names;
  }

  void Violation(const std::string& what) {
    options_.progress(absl::StrCat("VIOLATION: ", what));
    if (report_.violations.size() < kMaxReportedViolations) report_.violations.push_back(what);
  }

  std::vector<std::string> SenderArguments(const std::string& name, uint32_t worker) {
    notes_.push_back(absl::StrCat(folder(), "/", name, ".notes"));
    std::vector<std::string> arguments = {
        absl::StrCat("--scheduler=", cluster_->scheduler_address()),
        absl::StrCat("--worker=", worker), absl::StrCat("--notes=", notes_.back()),
        absl::StrCat("--row_width=", options_.row_width),
        absl::StrCat("--call_timeout_s=", kCallTimeoutSeconds)};
    if (options_.tls) {
      arguments.push_back(
          absl::StrCat("--tls_dir=", cluster_->tls_dir(ranks() ? "worker" : "client")));
    }
    return arguments;
  }

  // Waits while checking for unexpected exits and the routing epoch.
  void Watch(MonotonicDuration duration) {
    const MonotonicTime until = Now() + duration;
    do {
      Look();
      std::this_thread::sleep_for(std::min<MonotonicDuration>(
          kWatchInterval, std::max(until - Now(), MonotonicDuration::zero())));
    } while (!is_aborted_ && Now() < until);
  }

  void Look() {
    for (auto name = alive_.begin(); name != alive_.end();) {
      ChildProcess& child = cluster_->node(*name);
      if (!child.HasEnded()) {
        ++name;
        continue;
      }
      Violation(absl::StrCat(*name, " exited unexpectedly: ", child.HowItEnded(), ": ",
                             absl::StrJoin(child.LogTail(3), " | ")));
      is_aborted_ = true;
      name = alive_.erase(name);
    }
    if (alive_.count("scheduler") == 0 || Now() < next_epoch_look_) return;
    next_epoch_look_ = Now() + kEpochInterval;
    const auto status = cluster_->GetStatus();
    // A scheduler that rebuilds its state from the servers knows no routing yet.
    if (!status.ok() || status->routing_epoch() == 0) return;
    if (report_.first_epoch == 0) report_.first_epoch = status->routing_epoch();
    if (status->routing_epoch() < report_.last_epoch) {
      Violation(absl::StrCat("the routing epoch decreased from ", report_.last_epoch, " to ",
                             status->routing_epoch()));
    }
    report_.last_epoch = status->routing_epoch();
    if (status->state() == FAILED || status->state() == STOPPED) {
      Violation(
          absl::StrCat("the job is ", JobState_Name(status->state()), ": ", status->failure()));
      is_aborted_ = true;
    }
  }

  absl::Status Kill(const std::string& name) {
    alive_.erase(name);
    return cluster_->Kill(name);
  }

  absl::Status Restart(const std::string& name, const std::vector<std::string>& environment = {},
                       const std::vector<std::string>& flags = {}) {
    PAWL_RETURN_IF_ERROR(cluster_->Restart(name, environment, flags));
    alive_.insert(name);
    return absl::OkStatus();
  }

  // Injects the fault and ends it. Sets `from` to its start, and `happened` to false if it met
  // nothing.
  absl::Status Inject(const Fault& fault, MonotonicTime& from, bool& happened) {
    switch (fault.kind) {
      case FaultKind::kServerKill:
      case FaultKind::kSchedulerKill:
      case FaultKind::kSenderKill:
        PAWL_RETURN_IF_ERROR(Kill(fault.victim));
        Watch(fault.lasts);
        return Restart(fault.victim);
      case FaultKind::kServerCrashAtFailpoint:
        return CrashAtFailpoint(fault, from, happened);
      case FaultKind::kDiskGone:
        PAWL_RETURN_IF_ERROR(Kill(fault.victim));
        PAWL_RETURN_IF_ERROR(cluster_->ReplaceDisk(fault.victim));
        Watch(fault.lasts);
        return Restart(fault.victim);
      case FaultKind::kDiskRot:
        PAWL_RETURN_IF_ERROR(Kill(fault.victim));
        PAWL_RETURN_IF_ERROR(cluster_->DamageLog(fault.victim));
        Watch(fault.lasts);
        return Restart(fault.victim);
      case FaultKind::kSchedulerDiskGone:
        PAWL_RETURN_IF_ERROR(Kill(fault.victim));
        PAWL_RETURN_IF_ERROR(cluster_->ReplaceDisk(fault.victim));
        Watch(fault.lasts);
        return Restart(fault.victim, {}, {"--rebuild"});
      case FaultKind::kDiskFull:
        PAWL_RETURN_IF_ERROR(cluster_->disk(fault.victim).Fill());
        Watch(fault.lasts);
        return cluster_->disk(fault.victim).Empty();
      case FaultKind::kDiskHang:
        PAWL_RETURN_IF_ERROR(cluster_->disk(fault.victim).FreezeFor(fault.lasts));
        Watch(fault.lasts);
        return absl::OkStatus();
      case FaultKind::kTwoServersKill:
        for (const std::string& server : {fault.victim, fault.peer})
          cluster_->node(server).Signal(SIGKILL);
        for (const std::string& server : {fault.victim, fault.peer})
          PAWL_RETURN_IF_ERROR(Kill(server));
        PAWL_RETURN_IF_ERROR(cluster_->ReplaceDisk(fault.peer));
        Watch(fault.delay);
        PAWL_RETURN_IF_ERROR(Restart(fault.victim));
        Watch(fault.lasts);
        return Restart(fault.peer);
      case FaultKind::kAllServersKill:
        for (const std::string& server : servers_) cluster_->node(server).Signal(SIGKILL);
        for (const std::string& server : servers_) PAWL_RETURN_IF_ERROR(Kill(server));
        Watch(fault.lasts);
        for (const std::string& server : servers_) PAWL_RETURN_IF_ERROR(Restart(server));
        return absl::OkStatus();
      case FaultKind::kServerPause:
        cluster_->Pause(fault.victim);
        Watch(fault.lasts);
        cluster_->Continue(fault.victim);
        return absl::OkStatus();
      case FaultKind::kSenderCrashInPush:
        return CrashInPush(fault);
      case FaultKind::kLinkDelay:
        happened = Disturb(fault, {.delay = fault.delay}, /*both=*/false);
        return absl::OkStatus();
      case FaultKind::kLinkReset:
        happened = Disturb(fault, {.reset_after = fault.bytes}, /*both=*/false);
        return absl::OkStatus();
      case FaultKind::kLinkSilence:
        happened = Disturb(fault, {.hold = true}, /*both=*/false);
        return absl::OkStatus();
      case FaultKind::kLinkPartition:
        happened = Disturb(fault, {.hold = true}, /*both=*/true);
        return absl::OkStatus();
      case FaultKind::kLinkBlackHole:
        happened = Disturb(fault, {.swallow = true}, /*both=*/false);
        return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  // Returns whether the faults met messages or connections.
  bool Disturb(const Fault& fault, const LinkFaults& faults, bool both) {
    ByteProxy& proxy = cluster_->proxy(fault.victim);
    const uint64_t before = proxy.counters().disturbed;
    if (both || !fault.answers) proxy.SetFaults(Direction::kToTarget, faults, fault.peer);
    if (both || fault.answers) proxy.SetFaults(Direction::kToClient, faults, fault.peer);
    Watch(fault.lasts);
    proxy.Heal();
    return proxy.counters().disturbed > before;
  }

  absl::Status CrashAtFailpoint(const Fault& fault, MonotonicTime& from, bool& happened) {
    PAWL_RETURN_IF_ERROR(Kill(fault.victim));
    PAWL_RETURN_IF_ERROR(cluster_->Restart(
        fault.victim, {absl::StrCat("PAWL_FAILPOINTS=", fault.failpoint, "=crash@", fault.hit)}));
    ChildProcess& child = cluster_->node(fault.victim);
    const MonotonicTime limit = Now() + kFailpointLimit;
    while (!child.HasEnded() && Now() < limit && !is_aborted_) Watch(kWatchInterval);
    happened = child.HasEnded();
    PAWL_RETURN_IF_ERROR(Kill(fault.victim));
    if (!child.KilledBy(SIGKILL))
      return absl::InternalError(absl::StrCat(fault.victim, " ", child.HowItEnded()));
    from = Now();
    Watch(fault.lasts);
    return Restart(fault.victim);
  }

  absl::Status CrashInPush(const Fault& fault) {
    const std::string name = absl::StrCat("short-lived-sender-", short_lived_++);
    ballast_bytes_ = std::max(ballast_bytes_, fault.ballast_bytes);
    std::vector<std::string> arguments = SenderArguments(name, options_.senders + short_lived_ - 1);
    arguments.emplace_back("--pushes_per_second=0");
    arguments.emplace_back("--in_flight=2");
    arguments.push_back(absl::StrCat("--ballast_bytes=", fault.ballast_bytes));
    arguments.push_back(absl::StrCat("--die_in_push=", fault.push));
    arguments.push_back(
        absl::StrCat("--die_after_us=",
                     std::chrono::duration_cast<std::chrono::microseconds>(fault.after).count()));
    PAWL_RETURN_IF_ERROR(cluster_->AddProcess(name, "tests/chaos/sender/ledger-sender", arguments));
    ChildProcess& child = cluster_->node(name);
    const MonotonicTime limit = Now() + kCrashInPushLimit;
    while (!child.HasEnded() && Now() < limit && !is_aborted_) Watch(kWatchInterval);
    if (!child.HasEnded()) {
      PAWL_RETURN_IF_ERROR(cluster_->Kill(name));
      return absl::DeadlineExceededError(absl::StrCat(name, " does not reach push ", fault.push));
    }
    if (!child.KilledBy(SIGKILL)) {
      return absl::InternalError(absl::StrCat(name, " ", child.HowItEnded(), ": ",
                                              absl::StrJoin(child.LogTail(3), " | ")));
    }
    return absl::OkStatus();
  }

  // Describes what has not recovered; "" if everything has. Each server must be a member, each
  // partition have all replicas, and each sender have an acknowledgement after `since`.
  std::string Missing(MonotonicTime since) {
    const auto status = cluster_->GetStatus();
    if (!status.ok())
      return absl::StrCat("the scheduler does not answer: ", status.status().message());
    for (const std::string& server : servers_) {
      const std::string suffix = absl::StrCat(":", cluster_->node(server).pid());
      if (std::none_of(status->nodes().begin(), status->nodes().end(), [&](const NodeStatus& node) {
            return !node.gone() && node.role() == SERVER_ROLE &&
                   absl::EndsWith(node.description(), suffix);
          })) {
        return absl::StrCat(server, " is not a member");
      }
    }
    const auto routing = Routing();
    if (!routing.ok()) return absl::StrCat("no routing: ", routing.status().message());
    for (int partition = 0; partition < routing->primary_size(); ++partition) {
      if (routing->primary(partition) == kNoPrimary)
        return absl::StrCat("partition ", partition, " has no primary");
      if (options_.replicas < 2) continue;
      const int backups =
          partition < routing->replicas_size() ? routing->replicas(partition).backups_size() : 0;
      if (backups + 1 < static_cast<int>(options_.replicas)) {
        return absl::StrCat("partition ", partition, " has ", backups, " backups");
      }
    }
    for (size_t i = 0; i < senders_.size(); ++i) {
      if (LastAcknowledgement(notes_[i]) <= since)
        return absl::StrCat(senders_[i], " has no acknowledgement");
    }
    return "";
  }

  absl::StatusOr<RoutingTable> Routing() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
    RoutingTable routing;
    const grpc::Status status =
        cluster_->scheduler().GetRouting(&context, GetRoutingRequest(), &routing);
    if (!status.ok()) return ToAbslStatus(status);
    return routing;
  }

  bool Recover(const std::string& fault) {
    const MonotonicTime since = Now();
    std::string missing;
    while (!is_aborted_ && !(missing = Missing(since)).empty()) {
      if (Now() > since + options_.max_recovery) {
        Violation(absl::StrFormat("%s: not recovered %.0f s after its end: %s", fault,
                                  Seconds(options_.max_recovery), missing));
        return false;
      }
      Watch(kWatchInterval);
    }
    return !is_aborted_;
  }

  void EndSenders() {
    uint64_t end = 0;
    if (ranks()) {
      Ledger ledger;
      for (const std::string& notes : notes_) {
        if (const absl::Status status = ledger.ReadFrom(notes); !status.ok())
          Violation(std::string(status.message()));
      }
      for (uint32_t worker = 0; worker < options_.senders; ++worker) {
        end = std::max(end, NextSequence(ledger, worker) + kStepsToEnd);
      }
    }
    // Renamed, so that the file appears complete.
    const std::string path = absl::StrCat(folder(), "/end");
    std::ofstream(path + ".new") << end << "\n";
    std::error_code error;
    std::filesystem::rename(path + ".new", path, error);
    end_of_sending_ = Now();
    const MonotonicTime deadline = Now() + (is_aborted_ ? std::chrono::seconds(2) : kSendersEnd);
    for (const std::string& sender : senders_) {
      alive_.erase(sender);
      ChildProcess& child = cluster_->node(sender);
      if (!child.WaitUntil(deadline)) {
        Violation(absl::StrCat(sender, " does not end"));
        (void)cluster_->Kill(sender);
      } else if (!child.Succeeded() && !is_aborted_) {
        Violation(absl::StrCat(sender, " ", child.HowItEnded(), ": ",
                               absl::StrJoin(child.LogTail(3), " | ")));
      }
    }
  }

  void MeasurePauses(const Ledger& ledger) {
    AcknowledgementTimes times = ledger.AcknowledgementTimes();
    // Senders that live for one fault only do not count.
    std::erase_if(times,
                  [&](const auto& of_worker) { return of_worker.first >= options_.senders; });
    const MonotonicTime first_fault = spans_.empty() ? end_of_sending_ : spans_.front().from;
    AcknowledgementTimes quiet = times;
    for (auto& [worker, of_worker] : quiet) {
      std::erase_if(of_worker, [&](MonotonicTime when) { return when > first_fault; });
    }
    for (const auto& [worker, pause] : LongestPauses(quiet, {begin_, first_fault}, first_fault)) {
      report_.quiet_pauses.push_back(pause);
    }
    for (size_t i = 0; i < spans_.size(); ++i) {
      for (const auto& [worker, pause] : LongestPauses(times, spans_[i], end_of_sending_)) {
        // A dead sender gets no acknowledgement, which says nothing about the servers.
        if (victims_[i] != absl::StrCat("sender-", worker))
          report_.faults[i].pauses.push_back(pause);
      }
    }
  }

  absl::Status CheckRows(StormCheck& check, const Ledger& ledger) {
    PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect());
    return check.CheckRows(*client, ledger);
  }

  const StormOptions options_;
  StormReport report_;
  std::unique_ptr<ProcessCluster> cluster_;
  std::vector<std::string> servers_;
  std::vector<std::string> senders_;
  // Those of senders_ in their order, then those of short-lived senders.
  std::vector<std::string> notes_;
  // Processes that must not exit by themselves now.
  std::set<std::string> alive_;
  // The time spans of the faults in the report.
  std::vector<TimeSpan> spans_;
  std::vector<std::string> victims_;
  uint32_t short_lived_ = 0;
  // The most in a push.
  uint64_t ballast_bytes_ = 0;
  MonotonicTime begin_ = {};
  MonotonicTime end_of_sending_ = {};
  MonotonicTime next_epoch_look_ = {};
  // The job has ended early, or a process has died without a fault.
  bool is_aborted_ = false;
};

}  // namespace

std::vector<FaultKind> SurvivableFaults(const StormOptions& options) {
  std::vector<FaultKind> kinds = {FaultKind::kLinkDelay, FaultKind::kLinkReset};
  const bool recovers = options.replicas > 0;
  if (options.mode == ASYNC) kinds.push_back(FaultKind::kSenderCrashInPush);
  if (options.mode == ASYNC || recovers) kinds.push_back(FaultKind::kSenderKill);
  if (recovers || options.max_silence * 2 <= std::chrono::milliseconds(options.lease_ms)) {
    kinds.insert(kinds.end(),
                 {FaultKind::kLinkSilence, FaultKind::kLinkPartition, FaultKind::kLinkBlackHole});
  }
  const bool logged = options.durability == LOG || options.durability == FSYNC;
  if (recovers)
    kinds.insert(kinds.end(), {FaultKind::kSchedulerKill, FaultKind::kSchedulerDiskGone,
                               FaultKind::kServerPause});
  if (recovers && (logged || options.replicas > 1)) {
    kinds.push_back(FaultKind::kServerKill);
    if (!options.failpoints.empty()) kinds.push_back(FaultKind::kServerCrashAtFailpoint);
  }
  if (recovers && logged) kinds.push_back(FaultKind::kAllServersKill);
  if (options.replicas > 1) kinds.push_back(FaultKind::kDiskGone);
  if (options.servers > 1 && (options.replicas > 2 || (options.replicas > 1 && logged)))
    kinds.push_back(FaultKind::kTwoServersKill);
  if (options.replicas > 1 && logged) kinds.push_back(FaultKind::kDiskRot);
  if (options.disks && logged)
    kinds.insert(kinds.end(), {FaultKind::kDiskFull, FaultKind::kDiskHang});
  return kinds;
}

absl::StatusOr<StormReport> RunStorm(const StormOptions& options, std::string* folder) {
  for (const FaultKind kind : {FaultKind::kDiskFull, FaultKind::kDiskHang}) {
    if (!options.disks && std::count(options.kinds.begin(), options.kinds.end(), kind) > 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          FaultName(kind), " needs disks, which this machine does not permit to mount"));
    }
  }
  StormPlanOptions plan_options;
  plan_options.seed = options.seed;
  plan_options.servers = options.servers;
  plan_options.senders = options.senders;
  plan_options.kinds = options.kinds.empty() ? SurvivableFaults(options) : options.kinds;
  plan_options.max_scheduler_away = options.max_scheduler_away;
  plan_options.max_silence = options.max_silence;
  plan_options.max_disk_trouble = options.max_disk_trouble;
  plan_options.failpoints = options.failpoints;
  PAWL_ASSIGN_OR_RETURN(StormPlan plan, StormPlan::Create(plan_options));
  Storm storm(options);
  PAWL_RETURN_IF_ERROR(storm.Start());
  if (folder != nullptr) *folder = storm.folder();
  storm.InjectFaults(plan);
  storm.Verify();
  return storm.report();
}

}  // namespace pawl
