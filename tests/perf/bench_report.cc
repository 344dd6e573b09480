#include "tests/perf/bench_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace pawl {

double BenchRow::share() const {
  if (limit_name.empty() || limit <= 0 || value <= 0) return 0;
  return smaller_is_better ? limit / value : value / limit;
}

std::string BenchTable(const std::vector<BenchRow>& rows) {
  std::string text = absl::StrFormat("%-34s %10s %-9s %10s %-28s %6s %6s %7s %7s\n", "", "value",
                                     "", "limit", "", "share", "goal", "srv cpu", "cli cpu");
  for (const BenchRow& row : rows) {
    absl::StrAppendFormat(&text, "%-34s %10.3f %-9s ", row.name, row.value, row.unit);
    if (row.limit_name.empty()) {
      absl::StrAppendFormat(&text, "%10s %-28s %6s ", "", "", "");
    } else {
      absl::StrAppendFormat(&text, "%10.3f %-28s %6.2f ", row.limit, row.limit_name, row.share());
    }
    absl::StrAppend(
        &text, row.goal > 0 ? absl::StrFormat("%6.2f ", row.goal) : absl::StrFormat("%6s ", ""));
    absl::StrAppend(&text, row.server_cpu >= 0 ? absl::StrFormat("%7.2f ", row.server_cpu)
                                               : absl::StrFormat("%7s ", ""));
    absl::StrAppend(&text, row.client_cpu >= 0 ? absl::StrFormat("%7.2f", row.client_cpu)
                                               : absl::StrFormat("%7s", ""));
    absl::StrAppend(&text, row.note.empty() ? "" : "  ", row.note, "\n");
  }
  return text;
}

std::string BenchJson(const std::vector<BenchRow>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const BenchRow& row : rows) {
    nlohmann::json entry = {{"name", row.name}, {"value", row.value}, {"unit", row.unit}};
    if (!row.limit_name.empty()) {
      entry["limit_name"] = row.limit_name;
      entry["limit"] = row.limit;
      entry["share"] = row.share();
    }
    if (row.goal > 0) entry["goal"] = row.goal;
    if (row.server_cpu >= 0) entry["server_cpu"] = row.server_cpu;
    if (row.client_cpu >= 0) entry["client_cpu"] = row.client_cpu;
    if (!row.note.empty()) entry["note"] = row.note;
    list.push_back(std::move(entry));
  }
  return nlohmann::json({{"rows", std::move(list)}}).dump(2) + "\n";
}

}  // namespace pawl
