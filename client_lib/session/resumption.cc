#include "client_lib/session/resumption.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client_lib/job/consistency.h"

namespace pawl {

absl::StatusOr<Resumption> ResumptionAt(absl::Span<const uint64_t> clocks, ConsistencyMode mode) {
  const auto [lowest, highest] = std::minmax_element(clocks.begin(), clocks.end());
  if (!IsSync(mode)) return Resumption{.step = *lowest, .behind = {}};
  if (*highest - *lowest > 1) {
    return absl::DataLossError(absl::StrCat("its clock is ", *lowest, " in partition ",
                                            lowest - clocks.begin(), " and ", *highest,
                                            " in partition ", highest - clocks.begin(),
                                            "; no worker leaves more than one step between them"));
  }
  Resumption resumption{.step = *highest, .behind = {}};
  for (size_t p = 0; p < clocks.size(); ++p) {
    if (clocks[p] < *highest) resumption.behind.push_back(static_cast<uint32_t>(p));
  }
  return resumption;
}

}  // namespace pawl
