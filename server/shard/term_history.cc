#include "server/shard/term_history.h"

#include <algorithm>
#include <iterator>

namespace pawl {
namespace {

// The last entry of run `i` in a log that ends at `last`.
uint64_t LastOf(const std::vector<TermRun>& runs, size_t i, uint64_t last) {
  return i + 1 < runs.size() ? std::min(last, runs[i + 1].first_index - 1) : last;
}

}  // namespace

bool TermHistory::Begin(uint64_t first_index, uint64_t term) {
  // The runs with entries before `first_index`.
  size_t begun = runs_.size();
  if (begun > 0 && runs_[begun - 1].first_index == first_index) --begun;
  if (term == 0) return false;
  if (begun > 0 && (first_index < runs_[begun - 1].first_index || term < runs_[begun - 1].term))
    return false;
  runs_.resize(begun);
  if (term == last_term()) return true;
  if (runs_.size() == kMaxTermRuns) runs_.erase(runs_.begin());
  runs_.push_back({first_index, term});
  return true;
}

uint64_t TermHistory::TermOf(uint64_t index) const {
  const auto after = std::upper_bound(
      runs_.begin(), runs_.end(), index,
      [](uint64_t wanted, const TermRun& run) { return wanted < run.first_index; });
  return after == runs_.begin() ? 0 : std::prev(after)->term;
}

uint64_t LastSharedIndex(const TermHistory& a, uint64_t a_last, const TermHistory& b,
                         uint64_t b_last) {
  size_t i = a.runs().size();
  size_t j = b.runs().size();
  while (i > 0 && j > 0) {
    const TermRun& in_a = a.runs()[i - 1];
    const TermRun& in_b = b.runs()[j - 1];
    if (in_a.term == in_b.term) {
      const uint64_t last =
          std::min(LastOf(a.runs(), i - 1, a_last), LastOf(b.runs(), j - 1, b_last));
      if (last >= std::max(in_a.first_index, in_b.first_index)) return last;
    }
    // The other log has no entry of the later term.
    i -= in_a.term >= in_b.term;
    j -= in_b.term >= in_a.term;
  }
  return 0;
}

}  // namespace pawl
