#include "tests/chaos/storm/storm_plan.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace pawl {
namespace {

struct Name {
  FaultKind kind;
  const char* name;
};

constexpr Name kNames[] = {
    {FaultKind::kServerKill, "server-kill"},
    {FaultKind::kServerCrashAtFailpoint, "server-crash-at-failpoint"},
    {FaultKind::kDiskGone, "disk-gone"},
    {FaultKind::kDiskRot, "disk-rot"},
    {FaultKind::kDiskFull, "disk-full"},
    {FaultKind::kDiskHang, "disk-hang"},
    {FaultKind::kTwoServersKill, "two-servers-kill"},
    {FaultKind::kAllServersKill, "all-servers-kill"},
    {FaultKind::kServerPause, "server-pause"},
    {FaultKind::kSchedulerKill, "scheduler-kill"},
    {FaultKind::kSchedulerDiskGone, "scheduler-disk-gone"},
    {FaultKind::kSenderKill, "sender-kill"},
    {FaultKind::kSenderCrashInPush, "sender-crash-in-push"},
    {FaultKind::kLinkDelay, "link-delay"},
    {FaultKind::kLinkReset, "link-reset"},
    {FaultKind::kLinkSilence, "link-silence"},
    {FaultKind::kLinkPartition, "link-partition"},
    {FaultKind::kLinkBlackHole, "link-black-hole"},
};

constexpr uint64_t kMebibyte = 1 << 20;

uint64_t ToMilliseconds(MonotonicDuration duration) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

}  // namespace

const std::vector<FaultKind>& AllFaultKinds() {
  static const auto* const kinds = [] {
    auto* all = new std::vector<FaultKind>;
    for (const Name& name : kNames) all->push_back(name.kind);
    return all;
  }();
  return *kinds;
}

std::string FaultName(FaultKind kind) {
  for (const Name& name : kNames) {
    if (name.kind == kind) return name.name;
  }
  return "";
}

absl::StatusOr<std::vector<FaultKind>> ParseFaultKinds(absl::string_view list) {
  std::vector<FaultKind> kinds;
  for (const absl::string_view word : absl::StrSplit(list, ',', absl::SkipEmpty())) {
    const auto found = std::find_if(std::begin(kNames), std::end(kNames),
                                    [&](const Name& name) { return word == name.name; });
    if (found == std::end(kNames)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", word, "' is not a fault; the faults are ",
                       absl::StrJoin(kNames, ", ", [](std::string* out, const Name& name) {
                         absl::StrAppend(out, name.name);
                       })));
    }
    if (std::find(kinds.begin(), kinds.end(), found->kind) == kinds.end())
      kinds.push_back(found->kind);
  }
  return kinds;
}

std::string Fault::ToString() const {
  std::string text =
      absl::StrCat(FaultName(kind), victim.empty() ? "" : absl::StrCat(" of ", victim));
  switch (kind) {
    case FaultKind::kLinkDelay:
    case FaultKind::kLinkReset:
    case FaultKind::kLinkSilence:
    case FaultKind::kLinkPartition:
    case FaultKind::kLinkBlackHole:
      absl::StrAppend(&text, answers ? ", its messages to " : ", messages to it from ",
                      peer.empty() ? "all" : peer);
      break;
    case FaultKind::kTwoServersKill:
      absl::StrAppend(&text, ", restarted after ", ToMilliseconds(delay), " ms, and of ", peer,
                      ", which loses its disk");
      break;
    case FaultKind::kServerCrashAtFailpoint:
      absl::StrAppend(&text, " at ", failpoint, ", hit ", hit);
      break;
    case FaultKind::kSenderCrashInPush:
      absl::StrAppend(&text, " ", push, ", of ", ballast_bytes / kMebibyte, " MiB, after ",
                      ToMilliseconds(after), " ms");
      break;
    default:
      break;
  }
  if (kind == FaultKind::kLinkReset) absl::StrAppend(&text, ", after ", bytes, " bytes");
  if (kind == FaultKind::kLinkDelay) absl::StrAppend(&text, ", by ", ToMilliseconds(delay), " ms");
  if (lasts > MonotonicDuration::zero())
    absl::StrAppend(&text, ", for ", ToMilliseconds(lasts), " ms");
  return text;
}

absl::StatusOr<StormPlan> StormPlan::Create(StormPlanOptions options) {
  const auto has = [&](FaultKind kind) {
    return std::find(options.kinds.begin(), options.kinds.end(), kind) != options.kinds.end();
  };
  if (options.failpoints.empty() && has(FaultKind::kServerCrashAtFailpoint))
    return absl::InvalidArgumentError("server-crash-at-failpoint needs failpoints");
  if (options.servers < 2 && has(FaultKind::kTwoServersKill))
    return absl::InvalidArgumentError("two-servers-kill needs two servers");
  if (options.kinds.empty()) return absl::InvalidArgumentError("a storm needs a kind of fault");
  if (options.servers == 0 || options.senders == 0)
    return absl::InvalidArgumentError("a storm needs servers and senders");
  return StormPlan(std::move(options));
}

StormPlan::StormPlan(StormPlanOptions options)
    : options_(std::move(options)), random_(options_.seed) {}

uint64_t StormPlan::Between(uint64_t low, uint64_t high) {
  // The bias of the modulus is negligible here.
  return low + random_() % (std::max(low, high) - low + 1);
}

MonotonicDuration StormPlan::Milliseconds(uint64_t low, uint64_t high) {
  return std::chrono::milliseconds(Between(low, high));
}

std::string StormPlan::RandomServer() {
  return absl::StrCat("server-", Between(0, options_.servers - 1));
}

std::string StormPlan::RandomSender() {
  return absl::StrCat("sender-", Between(0, options_.senders - 1));
}

void StormPlan::DrawLink(Fault& fault) {
  // Selects the link into a process: into a server from the scheduler, another server, a sender or
  // all; into the scheduler from a server, a sender or all.
  const bool into_scheduler = Between(0, 3) == 0;
  fault.victim = into_scheduler ? "scheduler" : RandomServer();
  switch (Between(0, 3)) {
    case 0:
      fault.peer = "";
      break;
    case 1:
      fault.peer = RandomSender();
      break;
    case 2:
      fault.peer = into_scheduler ? RandomServer() : "scheduler";
      break;
    default:
      fault.peer = RandomServer();
      break;
  }
  // A server has no connection to itself.
  if (fault.peer == fault.victim) fault.peer = "";
  fault.answers = Between(0, 1) == 1;
}

Fault StormPlan::Next() {
  if (bag_.empty()) bag_ = options_.kinds;
  const size_t drawn = Between(0, bag_.size() - 1);
  Fault fault;
  fault.kind = bag_[drawn];
  bag_.erase(bag_.begin() + static_cast<ptrdiff_t>(drawn));
  fault.calm = Milliseconds(500, 2000);
  const uint64_t silence_ms = std::max<uint64_t>(1, ToMilliseconds(options_.max_silence));
  switch (fault.kind) {
    case FaultKind::kServerKill:
      fault.victim = RandomServer();
      fault.lasts = Milliseconds(0, 3000);
      break;
    case FaultKind::kServerCrashAtFailpoint:
      fault.victim = RandomServer();
      fault.failpoint = options_.failpoints[Between(0, options_.failpoints.size() - 1)];
      // Servers pass those of pushes and of the log often, and others, as of snapshots, a few
      // times.
      fault.hit = Between(
          1, absl::StartsWith(fault.failpoint, "push.") || absl::StartsWith(fault.failpoint, "log.")
                 ? 200
                 : 3);
      fault.lasts = Milliseconds(0, 2000);
      break;
    case FaultKind::kDiskGone:
    case FaultKind::kDiskRot:
      fault.victim = RandomServer();
      fault.lasts = Milliseconds(0, 3000);
      break;
    case FaultKind::kDiskFull:
    case FaultKind::kDiskHang:
      fault.victim = RandomServer();
      fault.lasts =
          Milliseconds(500, std::max<uint64_t>(500, ToMilliseconds(options_.max_disk_trouble)));
      break;
    case FaultKind::kTwoServersKill:
      fault.victim = RandomServer();
      do {
        fault.peer = RandomServer();
      } while (fault.peer == fault.victim);
      fault.delay = Milliseconds(0, 200);
      fault.lasts = Milliseconds(0, 4000);
      break;
    case FaultKind::kAllServersKill:
      fault.lasts = Milliseconds(0, 2000);
      break;
    case FaultKind::kServerPause:
      fault.victim = RandomServer();
      fault.lasts = std::chrono::milliseconds(3000);
      break;
    case FaultKind::kSchedulerKill: {
      fault.victim = "scheduler";
      // Short absences are as likely as long ones.
      const uint64_t limit = std::max<uint64_t>(1000, ToMilliseconds(options_.max_scheduler_away));
      fault.lasts = Milliseconds(1000, std::min<uint64_t>(limit, uint64_t{1000} << Between(1, 6)));
      break;
    }
    case FaultKind::kSchedulerDiskGone:
      fault.victim = "scheduler";
      fault.lasts = Milliseconds(0, 3000);
      break;
    case FaultKind::kSenderKill:
      fault.victim = RandomSender();
      fault.lasts = Milliseconds(0, 2000);
      break;
    case FaultKind::kSenderCrashInPush:
      fault.ballast_bytes = Between(8, 64) * kMebibyte;
      fault.push = Between(1, 3);
      fault.after = Milliseconds(0, 60);
      break;
    case FaultKind::kLinkDelay:
      DrawLink(fault);
      fault.delay = Milliseconds(5, 100);
      fault.lasts = Milliseconds(1000, 4000);
      break;
    case FaultKind::kLinkReset:
      DrawLink(fault);
      // So few that most links carry them in that time. Answers and control messages are small.
      fault.bytes = Between(
          0,
          fault.answers || fault.victim == "scheduler" || fault.peer == "scheduler" ? 1000 : 20000);
      fault.lasts = Milliseconds(500, 2000);
      break;
    case FaultKind::kLinkSilence:
    case FaultKind::kLinkPartition:
    case FaultKind::kLinkBlackHole:
      DrawLink(fault);
      fault.lasts = Milliseconds(std::min<uint64_t>(silence_ms, 100), silence_ms);
      break;
  }
  return fault;
}

}  // namespace pawl
