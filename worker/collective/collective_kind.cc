#include "worker/collective/collective_kind.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace pawl {
namespace {

struct Offered {
  std::string name;
  std::string exclusive;
};

std::vector<Offered> Parse(absl::string_view offer) {
  std::vector<Offered> kinds;
  for (const absl::string_view line : absl::StrSplit(offer, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    kinds.push_back({std::string(halves.first), std::string(halves.second)});
  }
  return kinds;
}

const Offered* Find(const std::vector<Offered>& kinds, const std::string& name) {
  for (const Offered& kind : kinds) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

// The members that a kind does not suit.
struct Obstacles {
  // Members that do not offer it.
  std::vector<std::string> without;
  // Two members that share an exclusive resource. Empty: none do.
  std::string sharing;

  bool none() const { return without.empty() && sharing.empty(); }
};

Obstacles FindObstacles(const std::string& name, absl::Span<const OfferingMember> members) {
  Obstacles obstacles;
  // The exclusive resources and their users.
  std::map<std::string, std::string> holders;
  for (const OfferingMember& member : members) {
    const std::vector<Offered> kinds = Parse(member.offer);
    const Offered* const same = Find(kinds, name);
    if (same == nullptr) {
      obstacles.without.push_back(member.node);
      continue;
    }
    if (same->exclusive.empty() || !obstacles.sharing.empty()) continue;
    const auto [at, is_first] = holders.emplace(same->exclusive, member.node);
    if (is_first) continue;
    obstacles.sharing = absl::StrCat(at->second, " and ", member.node, " both have ", at->first,
                                     ", which ", name, " needs exclusively");
  }
  return obstacles;
}

// The first kind that suits all members.
std::optional<std::string> FirstCommonKind(absl::Span<const OfferingMember> members) {
  if (members.empty()) return std::nullopt;
  for (const Offered& kind : Parse(members[0].offer)) {
    if (FindObstacles(kind.name, members).none()) return kind.name;
  }
  return std::nullopt;
}

// Which member offers what, and what prevents an agreement.
std::string ExplainNoKind(absl::Span<const OfferingMember> members) {
  std::vector<std::string> offers;
  for (const OfferingMember& member : members) {
    std::vector<std::string> names;
    for (const Offered& kind : Parse(member.offer)) names.push_back(kind.name);
    offers.push_back(
        absl::StrCat(member.node, " has ", names.empty() ? "none" : absl::StrJoin(names, " and ")));
  }
  std::string sharing;
  for (const Offered& kind : Parse(members[0].offer)) {
    const Obstacles obstacles = FindObstacles(kind.name, members);
    if (!obstacles.sharing.empty()) absl::StrAppend(&sharing, "; ", obstacles.sharing);
  }
  return absl::StrCat(
      "the workers have no common kind of collective operations: ", absl::StrJoin(offers, ", "),
      sharing, "; start them with the same --collectives");
}

}  // namespace

std::string EncodeOffer(absl::Span<const CollectiveKind> kinds) {
  std::string offer;
  // Escaped, because the environment may contain any character; one line each.
  for (const CollectiveKind& kind : kinds) {
    absl::StrAppend(&offer, absl::CEscape(kind.name), "=", absl::CEscape(kind.exclusive), "\n");
  }
  return offer;
}

absl::StatusOr<std::string> ChooseKind(absl::Span<const OfferingMember> members, size_t place) {
  if (members.size() == 1) {
    if (const std::vector<Offered> kinds = Parse(members[0].offer); !kinds.empty())
      return kinds.back().name;
  }
  if (std::optional<std::string> kind = FirstCommonKind(members); kind.has_value())
    return *std::move(kind);

  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_partition(order.begin(), order.end(), [&](size_t p) { return members[p].has_state; });
  std::vector<OfferingMember> staying;
  for (const size_t p : order) {
    staying.push_back(members[p]);
    const bool stays = FirstCommonKind(staying).has_value();
    if (!stays) staying.pop_back();
    if (p == place && stays) return absl::UnavailableError(ExplainNoKind(members));
  }
  return absl::InvalidArgumentError(ExplainNoKind(members));
}

std::string ExplainFallback(absl::Span<const OfferingMember> members, size_t place,
                            absl::string_view chosen) {
  const std::vector<Offered> kinds = Parse(members[place].offer);
  if (kinds.empty() || kinds[0].name == chosen) return "";
  const Obstacles obstacles = FindObstacles(kinds[0].name, members);
  if (obstacles.without.empty()) return obstacles.sharing;
  return absl::StrCat(absl::StrJoin(obstacles.without, ", "),
                      obstacles.without.size() == 1 ? " does" : " do", " not offer ",
                      kinds[0].name);
}

}  // namespace pawl
