#include "scheduler/placement/placement_spread.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace pawl {
namespace {

class Spreader {
 public:
  explicit Spreader(PlacementDraft& draft) : draft_(draft) {}

  void Run() {
    for (uint32_t p = 0; p < partitions_.size(); ++p) {
      if (!partitions_[p].placed) continue;
      Trim(p);
      Fill(p);
      Spread(p);
    }
  }

 private:
  // The one with the least to do among those that are not members and that `fits` lets pass; of
  // equals another one for each partition, so that the backups of one server are spread over all
  // others.
  template <typename Fits>
  uint32_t LeastLoaded(const DraftPartition& part, const Fits& fits) const {
    uint32_t best = kNobody;
    const size_t count = servers_.size();
    const size_t p = static_cast<size_t>(&part - partitions_.data());
    for (size_t i = 0; i < count; ++i) {
      const auto server = static_cast<uint32_t>((p + p / count + i) % count);
      if (Contains(part.members, server) || !fits(server)) continue;
      if (best == kNobody || servers_[server].surplus() < servers_[best].surplus() - kRounding)
        best = server;
    }
    return best;
  }

  void Trim(uint32_t p) {
    const DraftPartition& part = partitions_[p];
    while (part.members.size() > draft_.replicas()) {
      const auto key = [&](uint32_t member) {
        const DraftServer& server = servers_[member];
        const uint32_t here = draft_.InZone(part, server.zone);
        const uint32_t crowd = here > zones_[server.zone].most ? here : 0;
        return std::tuple(crowd, !Contains(part.in_sync, member), server.surplus(),
                          part.primary != member, member);
      };
      draft_.RemoveMember(
          p, *std::max_element(part.members.begin(), part.members.end(),
                               [&](uint32_t a, uint32_t b) { return key(a) < key(b); }));
    }
  }

  void Fill(uint32_t p) {
    const DraftPartition& part = partitions_[p];
    while (part.members.size() < draft_.replicas()) {
      uint32_t fewest = UINT32_MAX;
      for (uint32_t zone = 0; zone < zones_.size(); ++zone) {
        const uint32_t here = draft_.InZone(part, zone);
        if (here < zones_[zone].most)
          fewest = std::min(fewest, here >= zones_[zone].least ? here + 1 : here);
      }
      draft_.AddMember(p, LeastLoaded(part, [&](uint32_t server) {
                         const ZoneBounds& bounds = zones_[servers_[server].zone];
                         const uint32_t here = draft_.InZone(part, servers_[server].zone);
                         return here < bounds.most &&
                                (here >= bounds.least ? here + 1 : here) <= fewest;
                       }));
    }
  }

  // Moves replicas from crowded zones to others.
  void Spread(uint32_t p) {
    const DraftPartition& part = partitions_[p];
    while (true) {
      bool crowded = false;
      bool lonely = false;
      for (uint32_t zone = 0; zone < zones_.size(); ++zone) {
        const uint32_t here = draft_.InZone(part, zone);
        crowded = crowded || here > zones_[zone].most;
        lonely = lonely || here < zones_[zone].least;
      }
      if (!crowded && !lonely) return;
      uint32_t from = kNobody;
      for (const uint32_t member : part.members) {
        const ZoneBounds& bounds = zones_[servers_[member].zone];
        const uint32_t here = draft_.InZone(part, servers_[member].zone);
        if (here <= (crowded ? bounds.most : bounds.least)) continue;
        if (from == kNobody || servers_[member].surplus() > servers_[from].surplus()) from = member;
      }
      const uint32_t to = LeastLoaded(part, [&](uint32_t server) {
        const ZoneBounds& bounds = zones_[servers_[server].zone];
        return draft_.InZone(part, servers_[server].zone) < (lonely ? bounds.least : bounds.most);
      });
      if (from == kNobody || to == kNobody) return;
      draft_.Move(p, from, to);
    }
  }

  PlacementDraft& draft_;
  const std::vector<DraftServer>& servers_ = draft_.servers();
  const std::vector<DraftPartition>& partitions_ = draft_.partitions();
  const std::vector<ZoneBounds>& zones_ = draft_.zones();
};

}  // namespace

void SpreadReplicas(PlacementDraft& draft) { Spreader(draft).Run(); }

}  // namespace pawl
