#include "tests/chaos/storm/storm_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/harness/ledger/write_pauses.h"

namespace pawl {
namespace {

// Pauses and recoveries are those of faults that happened.
struct OfKind {
  uint64_t count = 0;
  uint64_t happened = 0;
  std::vector<MonotonicDuration> pauses;
  std::vector<MonotonicDuration> recoveries;
};

// In the order of the enumeration.
std::map<FaultKind, OfKind> ByKind(const std::vector<FaultRecord>& faults) {
  std::map<FaultKind, OfKind> kinds;
  for (const FaultRecord& fault : faults) {
    OfKind& of_kind = kinds[fault.kind];
    ++of_kind.count;
    if (!fault.happened) continue;
    ++of_kind.happened;
    of_kind.pauses.insert(of_kind.pauses.end(), fault.pauses.begin(), fault.pauses.end());
    if (fault.recovered_s >= 0) {
      of_kind.recoveries.push_back(std::chrono::duration_cast<MonotonicDuration>(
          std::chrono::duration<double>(fault.recovered_s)));
    }
  }
  return kinds;
}

nlohmann::json ToJson(const PauseSummary& summary) {
  return {{"count", summary.count},
          {"p50_s", summary.p50_s},
          {"p99_s", summary.p99_s},
          {"max_s", summary.max_s}};
}

}  // namespace

std::vector<std::string> KindsThatNeverHappened(const std::vector<FaultRecord>& faults) {
  std::vector<std::string> kinds;
  for (const auto& [kind, of_kind] : ByKind(faults)) {
    if (of_kind.happened > 0 || of_kind.count < kInjectionsToHappen) continue;
    kinds.push_back(absl::StrCat(FaultName(kind), " was injected ", of_kind.count,
                                 " times and never happened"));
  }
  return kinds;
}

nlohmann::json StormReport::ToJson() const {
  nlohmann::json report;
  report["seed"] = seed;
  report["duration_s"] = duration_s;
  report["cluster"] = cluster;
  report["ok"] = ok();
  report["violations"] = violations;
  report["pushes"] = {{"sent", pushes_sent},
                      {"acknowledged", pushes_acknowledged},
                      {"failed", pushes_failed},
                      {"deduplicated", pushes_deduplicated}};
  report["rows"] = {{"applied", rows_applied},
                    {"lost", rows_lost},
                    {"doubled", rows_doubled},
                    {"unknown_applied", unknown_applied},
                    {"unknown_not_applied", unknown_not_applied}};
  report["compared"] = {{"digests", digests_compared}, {"replicas", replicas_compared}};
  report["epochs"] = {{"first", first_epoch}, {"last", last_epoch}};
  report["quiet_pause"] = pawl::ToJson(SummarizePauses(quiet_pauses));
  report["faults"] = nlohmann::json::object();
  for (const auto& [kind, of_kind] : ByKind(faults)) {
    report["faults"][FaultName(kind)] = {
        {"count", of_kind.count},
        {"happened", of_kind.happened},
        {"pause", pawl::ToJson(SummarizePauses(of_kind.pauses))},
        {"recovery", pawl::ToJson(SummarizePauses(of_kind.recoveries))}};
  }
  report["log"] = nlohmann::json::array();
  for (const FaultRecord& fault : faults) {
    report["log"].push_back({{"at_s", fault.at_s},
                             {"fault", fault.text},
                             {"happened", fault.happened},
                             {"recovered_s", fault.recovered_s},
                             {"pause_max_s", SummarizePauses(fault.pauses).max_s}});
  }
  return report;
}

std::string StormReport::ToText() const {
  std::string text =
      absl::StrFormat("storm of seed %d, %.0f s, against %s\n\n", seed, duration_s, cluster);
  absl::StrAppendFormat(&text, "%-26s %9s   %29s   %17s\n", "fault", "happened",
                        "write pause p50  p99  max (s)", "recovery p50  max");
  for (const auto& [kind, of_kind] : ByKind(faults)) {
    const PauseSummary pause = SummarizePauses(of_kind.pauses);
    const PauseSummary recovery = SummarizePauses(of_kind.recoveries);
    absl::StrAppendFormat(&text, "%-26s %9s   %15.2f %6.2f %6.2f   %10.2f %6.2f\n", FaultName(kind),
                          absl::StrCat(of_kind.happened, " of ", of_kind.count), pause.p50_s,
                          pause.p99_s, pause.max_s, recovery.p50_s, recovery.max_s);
  }
  const PauseSummary quiet = SummarizePauses(quiet_pauses);
  absl::StrAppendFormat(&text, "%-26s %9s   %15.2f %6.2f %6.2f\n", "(none)", "", quiet.p50_s,
                        quiet.p99_s, quiet.max_s);
  absl::StrAppendFormat(&text, "\npushes: %d sent, %d acknowledged", pushes_sent,
                        pushes_acknowledged);
  for (const auto& [code, count] : pushes_failed)
    absl::StrAppendFormat(&text, ", %d failed with %s", count, code);
  absl::StrAppendFormat(
      &text,
      "\nrows: %d applied, %d lost, %d doubled; of the unknown %d applied and %d not; the servers "
      "recognised %d repeated segments\n",
      rows_applied, rows_lost, rows_doubled, unknown_applied, unknown_not_applied,
      pushes_deduplicated);
  absl::StrAppendFormat(
      &text, "%d partition digests equal the rows read, %d replicas equal their primaries\n",
      digests_compared, replicas_compared);
  absl::StrAppendFormat(&text, "routing epoch %d to %d\n", first_epoch, last_epoch);
  for (const std::string& violation : violations)
    absl::StrAppend(&text, "VIOLATION: ", violation, "\n");
  absl::StrAppend(&text,
                  ok() ? "all promises kept\n" : absl::StrCat(violations.size(), " violations\n"));
  return text;
}

}  // namespace pawl
