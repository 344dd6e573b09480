#include "scheduler/placement/placement_measures.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace pawl {
namespace {

// Exchanges of partitions between two servers in one target: more would not be few moves.
constexpr int kMaxExchanges = 256;
// Partitions of each of the two that are looked at for an exchange.
constexpr size_t kMaxCandidates = 64;
// An exchange that makes the servers equal by less is not worth it, in squares of shares of the
// mean.
constexpr double kLeastGain = 1e-3;

class MeasureBalancer {
 public:
  explicit MeasureBalancer(PlacementDraft& draft) : draft_(draft) {}

  void Run() {
    for (int copies = 0; copies <= 2; ++copies) Balance(copies);
  }

 private:
  void Balance(int copies) {
    for (int exchange = 0; exchange < kMaxExchanges; ++exchange) {
      bool exchanged = false;
      for (int m = 0; m < kMeasures && !exchanged; ++m) {
        if (!draft_.is_weighed(m)) continue;
        std::vector<uint32_t> order(servers_.size());
        std::iota(order.begin(), order.end(), 0u);
        // Servers with fewer replicas because of their zone have less, and are to.
        const auto excess = [&](uint32_t s) {
          return servers_[s].has[m] - servers_[s].quota * average_quota_inverse();
        };
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return excess(a) > excess(b); });
        if (excess(order.front()) > kTolerance) {
          for (size_t i = order.size(); i-- > 1 && !exchanged;)
            exchanged = Exchange(order.front(), order[i], copies);
        }
        if (!exchanged && excess(order.back()) < -kTolerance) {
          for (size_t i = 0; i + 1 < order.size() && !exchanged; ++i)
            exchanged = Exchange(order[i], order.back(), copies);
        }
      }
      if (!exchanged) return;
    }
  }
  double average_quota_inverse() const {
    return static_cast<double>(servers_.size()) /
           (static_cast<double>(draft_.placed()) * draft_.replicas());
  }

  // How many replicas more are copied for it.
  int Copies(uint32_t p, uint32_t from, uint32_t to) const {
    return static_cast<int>(Contains(partitions_[p].former, from)) -
           static_cast<int>(Contains(partitions_[p].former, to));
  }

  bool Exchange(uint32_t a, uint32_t b, int copies) {
    const auto candidates = [&](uint32_t from, uint32_t to) {
      std::vector<uint32_t> all;
      for (const uint32_t p : servers_[from].partitions) {
        if (!partitions_[p].hot && draft_.CanMove(p, from, to)) all.push_back(p);
      }
      // The heaviest and the lightest ones.
      const auto weight = [&](uint32_t p) {
        return partitions_[p].weight[kBytes] + partitions_[p].weight[kKeys];
      };
      std::stable_sort(all.begin(), all.end(),
                       [&](uint32_t p, uint32_t q) { return weight(p) > weight(q); });
      if (all.size() > kMaxCandidates) {
        all.erase(all.begin() + kMaxCandidates / 2,
                  all.end() - static_cast<std::ptrdiff_t>(kMaxCandidates / 2));
      }
      return all;
    };
    double best_gain = kLeastGain;
    uint32_t best_p = kNobody;
    uint32_t best_q = kNobody;
    const std::vector<uint32_t> others = candidates(b, a);
    for (const uint32_t p : candidates(a, b)) {
      for (const uint32_t q : others) {
        const double gain = draft_.Gain(p, q, a, b);
        if (gain <= best_gain || Copies(p, a, b) + Copies(q, b, a) > copies) continue;
        best_gain = gain;
        best_p = p;
        best_q = q;
      }
    }
    if (best_p == kNobody) return false;
    draft_.Move(best_p, a, b);
    draft_.Move(best_q, b, a);
    return true;
  }

  PlacementDraft& draft_;
  const std::vector<DraftServer>& servers_ = draft_.servers();
  const std::vector<DraftPartition>& partitions_ = draft_.partitions();
};

}  // namespace

void BalanceMeasures(PlacementDraft& draft) { MeasureBalancer(draft).Run(); }

}  // namespace pawl
