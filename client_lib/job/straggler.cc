#include "client_lib/job/straggler.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

// An hour. A step that takes longer than the other ranks' patience would only fail the job.
constexpr double kLargestMs = 3'600'000;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::StatusOr<double> Number(absl::string_view name, absl::string_view value, double largest) {
  double number = 0;
  if (absl::SimpleAtod(value, &number) && number > 0 && number <= largest) return number;
  return Invalid(name, "=", value, " is not a number above 0 and at most ", largest);
}

absl::StatusOr<std::vector<Straggler::Ranks>> ParseRanks(absl::string_view value) {
  std::vector<Straggler::Ranks> ranks;
  for (const absl::string_view part : absl::StrSplit(value, '+')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    const absl::string_view last = part.find('-') == part.npos ? ends.first : ends.second;
    Straggler::Ranks range;
    if (!absl::SimpleAtoi(ends.first, &range.first) || !absl::SimpleAtoi(last, &range.last) ||
        range.last < range.first) {
      return Invalid("ranks=", value, " is not a list of ranks such as 0+2+8-11");
    }
    ranks.push_back(range);
  }
  return ranks;
}

}  // namespace

absl::StatusOr<Straggler> ParseStraggler(absl::string_view text) {
  Straggler straggler;
  if (text.empty()) return straggler;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  absl::string_view time = "ms";
  if (parts.first == "constant") {
    straggler.kind = Straggler::Kind::kConstant;
  } else if (parts.first == "exponential") {
    straggler.kind = Straggler::Kind::kExponential;
    time = "mean_ms";
  } else if (parts.first == "pareto") {
    straggler.kind = Straggler::Kind::kPareto;
    time = "scale_ms";
  } else {
    return Invalid("the kind is \"", parts.first, "\"; it must be constant, exponential or pareto");
  }
  const bool is_pareto = straggler.kind == Straggler::Kind::kPareto;
  for (const absl::string_view setting : absl::StrSplit(parts.second, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(setting, absl::MaxSplits('=', 1));
    const auto& [name, value] = pair;
    if (name == time) {
      PAWL_ASSIGN_OR_RETURN(straggler.ms, Number(name, value, kLargestMs));
    } else if (name == "shape" && is_pareto) {
      // With a smaller shape nearly every delay would be max_ms.
      PAWL_ASSIGN_OR_RETURN(straggler.shape, Number(name, value, 100));
      if (straggler.shape < 0.1) return Invalid("shape=", value, " is below 0.1");
    } else if (name == "max_ms") {
      PAWL_ASSIGN_OR_RETURN(straggler.max_ms, Number(name, value, kLargestMs));
    } else if (name == "ranks") {
      PAWL_ASSIGN_OR_RETURN(straggler.ranks, ParseRanks(value));
    } else {
      return Invalid("\"", name, "\" is no setting of ", parts.first, "; it has ", time,
                     is_pareto ? ", shape" : "", ", max_ms and ranks");
    }
  }
  if (straggler.ms == 0) return Invalid(time, " is missing");
  if (is_pareto && straggler.shape == 0) return Invalid("shape is missing");
  return straggler;
}

}  // namespace pawl
