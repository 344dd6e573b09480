#include "scheduler/placement/placement_numbers.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace pawl {
namespace {

class NumberBalancer {
 public:
  explicit NumberBalancer(PlacementDraft& draft) : draft_(draft), all_(draft.servers().size()) {
    std::iota(all_.begin(), all_.end(), 0);
  }

  void Run() {
    SpreadHot();
    draft_.SetQuotas();
    Balance();
    TakeBackMoves();
  }

 private:
  // No server has hot partitions that another one could have with less.
  void SpreadHot() {
    std::vector<uint32_t> hot;
    for (uint32_t p = 0; p < partitions_.size(); ++p) {
      if (partitions_[p].hot && !partitions_[p].in_motion) hot.push_back(p);
    }
    const auto weight = [&](uint32_t p) {
      return *std::max_element(partitions_[p].weight.begin(), partitions_[p].weight.end());
    };
    std::stable_sort(hot.begin(), hot.end(),
                     [&](uint32_t a, uint32_t b) { return weight(a) > weight(b); });
    std::vector<double> heat(servers_.size());
    for (size_t p = 0; p < partitions_.size(); ++p) {
      if (!partitions_[p].hot) continue;
      for (const uint32_t member : partitions_[p].members)
        heat[member] += weight(static_cast<uint32_t>(p));
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (const uint32_t p : hot) {
        const std::vector<uint32_t> members = partitions_[p].members;
        for (const uint32_t from : members) {
          uint32_t coolest = kNobody;
          for (uint32_t to = 0; to < servers_.size(); ++to) {
            if (!draft_.CanMove(p, from, to)) continue;
            if (coolest == kNobody || heat[to] < heat[coolest]) coolest = to;
          }
          if (coolest == kNobody || heat[coolest] + weight(p) > heat[from] - kTolerance) continue;
          heat[coolest] += weight(p);
          heat[from] -= weight(p);
          draft_.Move(p, from, coolest);
          changed = true;
        }
      }
    }
  }

  // From those with too many to those with too few, until all have their quotas, rounded up or
  // down.
  void Balance() {
    EvenOut(
        servers_.size(),
        [&](uint32_t s) {
          return Share{servers_[s].replicas(), servers_[s].quota};
        },
        [&](uint32_t most) { return Relieve(most); },
        [&](uint32_t least) { return Supply(least); });
  }

  // Where a partition has gone from a server to which another one has come, both may as well stay,
  // with the numbers as they are.
  void TakeBackMoves() {
    for (uint32_t p = 0; p < partitions_.size(); ++p) {
      const std::vector<uint32_t> members = partitions_[p].members;
      for (const uint32_t to : members) {
        if (Contains(partitions_[p].former, to)) continue;
        for (const uint32_t from : partitions_[p].former) {
          if (TakeBackMove(p, from, to)) break;
        }
      }
    }
  }

  bool TakeBackMove(uint32_t p, uint32_t from, uint32_t to) {
    if (partitions_[p].hot || !draft_.CanMove(p, to, from)) return false;
    for (const uint32_t other : servers_[from].partitions) {
      if (partitions_[other].hot || Contains(partitions_[other].former, from) ||
          !draft_.CanMove(other, from, to))
        continue;
      draft_.Move(p, to, from);
      draft_.Move(other, from, to);
      return true;
    }
    return false;
  }

  // Those that can take one more, the neediest first; and that can give one, the fullest first.
  std::vector<uint32_t> Takers() const {
    std::vector<uint32_t> all;
    for (uint32_t s = 0; s < servers_.size(); ++s) {
      if (servers_[s].replicas() + 1 <= High(servers_[s].quota)) all.push_back(s);
    }
    std::stable_sort(all.begin(), all.end(), [&](uint32_t a, uint32_t b) {
      return servers_[a].surplus() < servers_[b].surplus();
    });
    return all;
  }
  std::vector<uint32_t> Givers() const {
    std::vector<uint32_t> all;
    for (uint32_t s = 0; s < servers_.size(); ++s) {
      if (servers_[s].replicas() - 1 >= Low(servers_[s].quota)) all.push_back(s);
    }
    std::stable_sort(all.begin(), all.end(), [&](uint32_t a, uint32_t b) {
      return servers_[a].surplus() > servers_[b].surplus();
    });
    return all;
  }

  bool Relieve(uint32_t from) {
    const std::vector<uint32_t> takers = Takers();
    for (const uint32_t to : takers) {
      if (MoveOne(from, to)) return true;
    }
    return MoveAlongAPath({from}, takers);
  }

  bool Supply(uint32_t to) {
    const std::vector<uint32_t> givers = Givers();
    for (const uint32_t from : givers) {
      if (from != to && MoveOne(from, to)) return true;
    }
    return MoveAlongAPath(givers, {to});
  }

  // The partition that leaves primaries, bytes and keys the most equal.
  bool MoveOne(uint32_t from, uint32_t to) {
    const bool wants_primary =
        servers_[from].primary_surplus() - servers_[to].primary_surplus() > 1;
    std::pair<bool, double> best_key;
    uint32_t best = kNobody;
    for (const uint32_t p : servers_[from].partitions) {
      if (partitions_[p].hot || !draft_.CanMove(p, from, to)) continue;
      const std::pair<bool, double> key((partitions_[p].primary == from) != wants_primary,
                                        draft_.Gain(p, kNobody, from, to) * -1);
      if (best != kNobody && key >= best_key) continue;
      best = p;
      best_key = key;
    }
    if (best == kNobody) return false;
    draft_.Move(best, from, to);
    return true;
  }

  // Where no single move will do: a replica of one partition from the first to the second, of
  // another from the second to the third, and so on; the shortest way.
  bool MoveAlongAPath(const std::vector<uint32_t>& from, const std::vector<uint32_t>& to) {
    const auto takers = [&](uint32_t p, uint32_t) {
      return partitions_[p].hot || partitions_[p].in_motion ? absl::Span<const uint32_t>()
                                                            : absl::MakeConstSpan(all_);
    };
    const std::vector<Hop> way = ShortestWay(
        draft_, from, to, takers,
        [&](uint32_t p, uint32_t here, uint32_t next) { return draft_.CanMove(p, here, next); });
    std::vector<uint32_t> moved;
    for (const Hop& hop : way) {
      if (Contains(moved, hop.partition)) return false;
      moved.push_back(hop.partition);
    }
    for (const Hop& hop : way) draft_.Move(hop.partition, hop.from, hop.to);
    return !way.empty();
  }

  PlacementDraft& draft_;
  const std::vector<DraftServer>& servers_ = draft_.servers();
  const std::vector<DraftPartition>& partitions_ = draft_.partitions();
  // The servers' indices.
  std::vector<uint32_t> all_;
};

}  // namespace

void BalanceNumbers(PlacementDraft& draft) { NumberBalancer(draft).Run(); }

}  // namespace pawl
