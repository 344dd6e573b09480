// Attacks a live cluster with TLS while a client pushes to it, and reports what that cost.
//
//   bazel run //tests/hostile:attack -- --minutes=60
//
// Prints one JSON line per attack: the client's acknowledged pushes per second before and during
// the attack, the processor time and the memory of the daemons, and how often the attack did its
// harm. The attackers are a process of their own, whose processor time is reported too: the
// attackers of a real cluster have other machines. Exit codes: 0: no daemon has ended, every push
// counts exactly once, and the scheduler always answered; 1: otherwise; 2: wrong usage.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client_lib/base/clock.h"
#include "client_lib/client.h"
#include "client_lib/process/child_process.h"
#include "nlohmann/json.hpp"
#include "tests/harness/ledger/ledger.h"
#include "tests/harness/ledger/ledger_driver.h"
#include "tests/harness/ledger/ledger_sender.h"
#include "tests/harness/process_cluster.h"
#include "tests/hostile/attacks.h"
#include "tests/perf/process_usage.h"

ABSL_FLAG(double, seconds, 10, "how long each attack lasts");
ABSL_FLAG(double, minutes, 0, "how long all attacks take together; default: as --seconds says");
ABSL_FLAG(double, calm_seconds, 5, "how long the client's rate is measured before each attack");
ABSL_FLAG(std::vector<std::string>, attacks, {}, "their names, separated by commas; default: all");
ABSL_FLAG(uint64_t, seed, 1, "seed of the attacks' random bytes");
ABSL_FLAG(uint32_t, attackers, 2, "threads of each attack");
// How the program starts its attackers.
ABSL_FLAG(std::string, attack_as, "", "only attack, in this way, until SIGTERM");
ABSL_FLAG(std::vector<std::string>, addresses, {}, "addresses of the daemons, for --attack_as");
ABSL_FLAG(std::string, tls_dir, "", "certificates of the attackers, for --attack_as");

namespace pawl {
namespace {

constexpr uint32_t kPartitions = 16;
constexpr uint32_t kServers = 2;
constexpr uint32_t kRowWidth = 16;
constexpr std::chrono::seconds kAnswerTime{20};
constexpr std::chrono::seconds kAttackersEnd{60};
constexpr std::chrono::seconds kWorkerReturnTimeout{86400};

// Resident memory of a process, in MiB.
double MemoryOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  uint64_t total = 0;
  uint64_t resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident) * 4096 / (1 << 20);
}

// Measures a client that pushes all the time.
class Victim {
 public:
  explicit Victim(ProcessCluster& cluster) {
    options_.scheduler = cluster.scheduler_address();
    options_.security.tls_dir = cluster.tls_dir("client");
    options_.row_width = kRowWidth;
    options_.pushes_per_second = 0;
    thread_ = std::thread([this] {
      summary_ = RunLedgerSender(options_, ledger_,
                                 [this] { return stop_ ? NextSequence(ledger_, 0) : UINT64_MAX; });
    });
  }
  ~Victim() { Stop(); }

  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Acknowledged pushes per second while `during` runs.
  template <typename Function>
  double RateDuring(Function during) {
    const uint64_t before = ledger_.acknowledged();
    const MonotonicTime started = Clock::Real().Now();
    during();
    return static_cast<double>(ledger_.acknowledged() - before) /
           Seconds(Clock::Real().Now() - started);
  }
  Ledger& ledger() { return ledger_; }
  const absl::StatusOr<LedgerSenderSummary>& summary() const { return summary_; }

 private:
  LedgerSenderOptions options_;
  Ledger ledger_;
  std::atomic<bool> stop_{false};
  absl::StatusOr<LedgerSenderSummary> summary_ = absl::UnknownError("not ended");
  std::thread thread_;
};

class Siege {
 public:
  Siege(ProcessCluster& cluster, Target target, double seconds)
      : cluster_(cluster), target_(std::move(target)), seconds_(seconds), victim_(cluster) {}

  // Returns whether the cluster withstood the attack.
  bool Withstands(const Attack& attack) {
    const auto pause = [](MonotonicDuration time) { std::this_thread::sleep_for(time); };
    const auto seconds = [](double count) {
      return std::chrono::duration_cast<MonotonicDuration>(std::chrono::duration<double>(count));
    };
    const double before =
        victim_.RateDuring([&] { pause(seconds(absl::GetFlag(FLAGS_calm_seconds))); });
    const double memory_before = Memory();
    double memory_peak = memory_before;
    const std::string log = absl::StrCat(cluster_.folder(), "/attackers-", attack.name, ".log");
    const auto attackers = ChildProcess::Start(
        {.name = "attackers",
         .program = "/proc/self/exe",
         .arguments = {absl::StrCat("--attack_as=", attack.name),
                       absl::StrCat("--addresses=", absl::StrJoin(target_.addresses, ",")),
                       absl::StrCat("--tls_dir=", target_.tls_dir),
                       absl::StrCat("--seed=", target_.seed),
                       absl::StrCat("--attackers=", absl::GetFlag(FLAGS_attackers))},
         .log = log});
    if (!attackers.ok()) {
      std::printf("%s\n", attackers.status().ToString().c_str());
      return false;
    }
    const pid_t pid = (*attackers)->pid();
    const double cpu_before = CpuSecondsOfDaemons();
    const double attackers_before = CpuSeconds(pid);
    const MonotonicTime started = Clock::Real().Now();
    MonotonicDuration slowest_answer{};
    bool answered = true;
    const double during = victim_.RateDuring([&] {
      const MonotonicTime end = started + seconds(seconds_);
      while (Clock::Real().Now() < end) {
        const MonotonicTime asked = Clock::Real().Now();
        answered = answered && Answers();
        slowest_answer = std::max(slowest_answer, Clock::Real().Now() - asked);
        memory_peak = std::max(memory_peak, Memory());
        pause(std::chrono::milliseconds(200));
      }
    });
    const double wall = Seconds(Clock::Real().Now() - started);
    const double cores = (CpuSecondsOfDaemons() - cpu_before) / wall;
    const double attackers_cores = (CpuSeconds(pid) - attackers_before) / wall;
    bool attacked = !(*attackers)->HasEnded();
    (*attackers)->Signal(SIGTERM);
    if (!(*attackers)->WaitUntil(Clock::Real().Now() + kAttackersEnd))
      (*attackers)->Signal(SIGKILL);
    uint64_t harm = 0;
    // The lines before are gRPC's.
    const std::vector<std::string> last = (*attackers)->LogTail(1);
    attacked = absl::SimpleAtoi(last.empty() ? "" : last[0], &harm) && attacked;
    const bool lives = AllLive();
    const double all_cores = std::thread::hardware_concurrency();
    const nlohmann::ordered_json line = {
        {"attack", attack.name},
        {"with_certificate", attack.has_certificate},
        {"attackers_attacked", attacked},
        {"harm_per_s", static_cast<double>(harm) / wall},
        {"pushes_per_s_before", before},
        {"pushes_per_s_during", during},
        {"ratio", before > 0 ? during / before : 0},
        {"attackers_cores", attackers_cores},
        {"daemons_cores", cores},
        // The ratio if the processor time that the attackers take is left out.
        {"ratio_of_rest", before > 0 && attackers_cores < all_cores
                              ? during / before / (1 - attackers_cores / all_cores)
                              : 0},
        {"slowest_status_s", Seconds(slowest_answer)},
        {"memory_mib_before", memory_before},
        {"memory_mib_peak", memory_peak},
        {"all_live", lives},
        {"always_answered", answered},
    };
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
    return lives && answered && attacked;
  }

  // Returns whether every acknowledged push counts exactly once.
  bool IsExact() {
    victim_.Stop();
    if (!victim_.summary().ok()) {
      std::printf("the client failed: %s\n", victim_.summary().status().ToString().c_str());
      return false;
    }
    ClientOptions options;
    options.scheduler = cluster_.scheduler_address();
    options.security.tls_dir = cluster_.tls_dir("reader");
    const auto reader = Client::Connect(options);
    if (!reader.ok()) return false;
    const auto table = (*reader)->OpenTable("ledger").get();
    if (!table.ok()) return false;
    const auto verdict =
        CheckLedger(victim_.ledger(), ScopeOf(victim_.ledger(), kPartitions, kRowWidth),
                    ReadThrough((*reader)->free_running(), *table, kPartitions));
    std::printf("%s\n",
                verdict.ok() ? verdict->ToString().c_str() : verdict.status().ToString().c_str());
    return verdict.ok() && verdict->exact();
  }

 private:
  bool Answers() {
    GetStatusResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kAnswerTime);
    return cluster_.scheduler().GetStatus(&context, GetStatusRequest(), &response).ok();
  }
  bool AllLive() {
    for (const std::string& name : cluster_.names()) {
      if (!cluster_.node(name).HasEnded()) continue;
      std::printf("%s has ended:\n%s\n", name.c_str(), cluster_.Describe().c_str());
      return false;
    }
    return true;
  }
  double CpuSecondsOfDaemons() {
    double sum = 0;
    for (const std::string& name : cluster_.names()) sum += CpuSeconds(cluster_.node(name).pid());
    return sum;
  }
  double Memory() {
    double sum = 0;
    for (const std::string& name : cluster_.names()) sum += MemoryOf(cluster_.node(name).pid());
    return sum;
  }

  ProcessCluster& cluster_;
  const Target target_;
  const double seconds_;
  Victim victim_;
};

// Attacks until SIGTERM, and prints how often it did its harm.
int AttackAs(const std::string& name) {
  sigset_t end;
  sigemptyset(&end);
  sigaddset(&end, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &end, nullptr);
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  // A peer may close a TLS connection before this process has written.
  std::signal(SIGPIPE, SIG_IGN);
  for (const Attack& attack : AllAttacks()) {
    if (attack.name != name) continue;
    Target target = {absl::GetFlag(FLAGS_addresses), absl::GetFlag(FLAGS_tls_dir),
                     absl::GetFlag(FLAGS_seed)};
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> harm{0};
    std::vector<std::thread> attackers;
    for (uint32_t i = 0; i < absl::GetFlag(FLAGS_attackers); ++i) {
      ++target.seed;
      attackers.emplace_back([&, target] { harm += attack.run(target, stop); });
    }
    int signal = 0;
    sigwait(&end, &signal);
    stop = true;
    for (std::thread& attacker : attackers) attacker.join();
    std::printf("%llu\n", static_cast<unsigned long long>(harm));
    return 0;
  }
  return 2;
}

int Main() {
  if (const std::string name = absl::GetFlag(FLAGS_attack_as); !name.empty()) return AttackAs(name);
  std::vector<Attack> attacks;
  const std::vector<std::string> wanted = absl::GetFlag(FLAGS_attacks);
  for (Attack& attack : AllAttacks()) {
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), attack.name) != wanted.end())
      attacks.push_back(std::move(attack));
  }
  if (!wanted.empty() && attacks.size() != wanted.size()) {
    std::fprintf(stderr, "--attacks: there are\n");
    for (const Attack& attack : AllAttacks()) std::fprintf(stderr, "  %s\n", attack.name.c_str());
    return 2;
  }
  ProcessClusterOptions options;
  options.job =
      absl::StrCat("name: 'siege' seed: 5 consistency { mode: ASYNC } partitions: ", kPartitions);
  options.servers = kServers;
  options.replicas = 2;
  options.tls = true;
  // An attacker with a worker's certificate can take the job's rank and leave it without a host.
  // The job must not fail for that during the attacks.
  options.flags["scheduler"] = {
      absl::StrCat("--worker_return_timeout_s=", kWorkerReturnTimeout.count())};
  const auto cluster = ProcessCluster::Start(options);
  if (!cluster.ok()) {
    std::fprintf(stderr, "%s\n", cluster.status().ToString().c_str());
    return 1;
  }
  Target target;
  target.addresses = {(*cluster)->scheduler_address()};
  for (uint32_t i = 0; i < kServers; ++i)
    target.addresses.push_back(*(*cluster)->AddressOf(absl::StrCat("server-", i)));
  target.tls_dir = (*cluster)->tls_dir("worker");
  target.seed = absl::GetFlag(FLAGS_seed);
  const double minutes = absl::GetFlag(FLAGS_minutes);
  const double seconds = minutes > 0
                             ? std::max(1.0, minutes * 60 / static_cast<double>(attacks.size()) -
                                                 absl::GetFlag(FLAGS_calm_seconds))
                             : absl::GetFlag(FLAGS_seconds);
  Siege siege(**cluster, target, seconds);
  bool good = true;
  for (const Attack& attack : attacks) good = siege.Withstands(attack) && good;
  return siege.IsExact() && good ? 0 : 1;
}

}  // namespace
}  // namespace pawl

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return pawl::Main();
}
