#include "scheduler/placement/placement_primaries.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <vector>

#include "absl/types/span.h"

namespace pawl {
namespace {

class PrimaryBalancer {
 public:
  explicit PrimaryBalancer(PlacementDraft& draft) : draft_(draft) {}

  void Run() {
    SetPrimaryQuotas();
    for (uint32_t p = 0; p < partitions_.size(); ++p) {
      const DraftPartition& part = partitions_[p];
      if (!part.placed || part.primary != kNobody) continue;
      const auto key = [&](uint32_t member) {
        return std::tuple(servers_[member].primary_surplus(), !Contains(part.in_sync, member),
                          member);
      };
      draft_.SetPrimary(p,
                        *std::min_element(part.members.begin(), part.members.end(),
                                          [&](uint32_t a, uint32_t b) { return key(a) < key(b); }));
    }
    SpreadHotPrimaries();
    SetPrimaryQuotas();
    const bool balanced =
        std::all_of(servers_.begin(), servers_.end(), [&](const DraftServer& server) {
          const double slack = std::floor(kTolerance * server.primary_quota);
          return server.primaries >= Low(server.primary_quota) - slack &&
                 server.primaries <= High(server.primary_quota) + slack;
        });
    if (balanced) return;
    const auto takers = [&] {
      return ServersWhere([](const DraftServer& server) {
        return server.primaries + 1 <= High(server.primary_quota);
      });
    };
    const auto givers = [&] {
      return ServersWhere([](const DraftServer& server) {
        return server.primaries - 1.0 >= Low(server.primary_quota);
      });
    };
    EvenOut(
        servers_.size(),
        [&](uint32_t s) {
          return Share{static_cast<double>(servers_[s].primaries), servers_[s].primary_quota};
        },
        [&](uint32_t most) { return PassPrimaries({most}, takers()); },
        [&](uint32_t least) { return PassPrimaries(givers(), {least}); });
  }

 private:
  template <typename Holds>
  std::vector<uint32_t> ServersWhere(Holds holds) const {
    std::vector<uint32_t> found;
    for (uint32_t s = 0; s < servers_.size(); ++s) {
      if (holds(servers_[s])) found.push_back(s);
    }
    return found;
  }

  void SetPrimaryQuotas() {
    double ordinary = 0;
    size_t ordinary_count = 0;
    for (const DraftPartition& part : partitions_) {
      if (!part.placed || part.hot_primary) continue;
      ordinary += part.primary_weight;
      ++ordinary_count;
    }
    const double each = ordinary_count == 0 ? 0 : ordinary / static_cast<double>(ordinary_count);
    std::vector<double> heat(servers_.size());
    std::vector<double> hot(servers_.size());
    for (const DraftPartition& part : partitions_) {
      if (!part.hot_primary || part.primary == kNobody) continue;
      heat[part.primary] += part.primary_weight;
      ++hot[part.primary];
    }
    std::vector<QuotaServer> quota_servers;
    const double even = static_cast<double>(draft_.placed()) / static_cast<double>(servers_.size());
    for (size_t s = 0; s < servers_.size(); ++s) {
      double most = std::max(servers_[s].replicas(), 1.0);
      const double rest = (even - hot[s]) * each;
      if (hot[s] > 0 && rest >= kTolerance && heat[s] + rest >= 1 + kTolerance) {
        most = std::min(most, hot[s] + std::floor(std::max(0.0, 1 - heat[s]) / each));
      }
      quota_servers.push_back({0, most});
    }
    const std::vector<double> quotas = ShareOut(static_cast<double>(draft_.placed()), quota_servers,
                                                {{0, static_cast<uint32_t>(servers_.size())}},
                                                static_cast<double>(draft_.placed()));
    for (size_t s = 0; s < servers_.size(); ++s)
      draft_.SetPrimaryQuota(static_cast<uint32_t>(s), quotas[s]);
  }

  void SpreadHotPrimaries() {
    std::vector<double> heat(servers_.size());
    for (const DraftPartition& part : partitions_) {
      if (part.hot_primary && part.primary != kNobody) heat[part.primary] += part.primary_weight;
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (uint32_t p = 0; p < partitions_.size(); ++p) {
        const DraftPartition& part = partitions_[p];
        if (!part.hot_primary || part.in_motion) continue;
        for (const uint32_t member : part.members) {
          if (heat[member] + part.primary_weight > heat[part.primary] - kTolerance) continue;
          heat[part.primary] -= part.primary_weight;
          heat[member] += part.primary_weight;
          draft_.SetPrimary(p, member);
          changed = true;
        }
      }
    }
  }

  // The role of primary goes from one to the next along the shortest way.
  bool PassPrimaries(const std::vector<uint32_t>& from, const std::vector<uint32_t>& to) {
    const auto takers = [&](uint32_t p, uint32_t here) {
      const DraftPartition& part = partitions_[p];
      const bool stays = part.primary != here || part.in_motion || part.hot_primary;
      return stays ? absl::Span<const uint32_t>() : absl::MakeConstSpan(part.members);
    };
    const std::vector<Hop> way =
        ShortestWay(draft_, from, to, takers, [](uint32_t, uint32_t, uint32_t) { return true; });
    for (const Hop& hop : way) draft_.SetPrimary(hop.partition, hop.to);
    return !way.empty();
  }

  PlacementDraft& draft_;
  const std::vector<DraftServer>& servers_ = draft_.servers();
  const std::vector<DraftPartition>& partitions_ = draft_.partitions();
};

}  // namespace

void ChoosePrimaries(PlacementDraft& draft) { PrimaryBalancer(draft).Run(); }

}  // namespace pawl
