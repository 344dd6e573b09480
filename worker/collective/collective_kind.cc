#include "worker/collective/collective_kind.h"

#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace pawl {
namespace {

struct Offered {
  std::string name;
  std::string exclusive;
};

std::vector<Offered> Parse(absl::string_view offer) {
  std::vector<Offered> kinds;
  for (const absl::string_view line : absl::StrSplit(offer, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> halves = absl::StrSplit(line, absl::MaxSplits('=', 1));
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

// The first that all of them offer. `sharing` grows by who stands in each other's way.
std::optional<std::string> FirstOfAll(absl::Span<const OfferingMember> members, std::string* sharing) {
  if (members.empty()) return std::nullopt;
  for (const Offered& kind : Parse(members[0].offer)) {
    // What may not be shared, and who has it.
    std::map<std::string, std::string> holders;
    bool possible = true;
    for (const OfferingMember& member : members) {
      const std::vector<Offered> kinds = Parse(member.offer);
      const Offered* const same = Find(kinds, kind.name);
      if (same == nullptr) {
        possible = false;
        break;
      }
      if (same->exclusive.empty()) continue;
      const auto [at, is_first] = holders.emplace(same->exclusive, member.node);
      if (is_first) continue;
      possible = false;
      absl::StrAppend(sharing, "; ", at->second, " and ", member.node, " have the same GPU, which ", kind.name,
                      " does not take from one machine (another device for one of them, or an NCCL_HOSTID of its own)");
      break;
    }
    if (possible) return kind.name;
  }
  return std::nullopt;
}

}  // namespace

std::string OfferOf(absl::Span<const CollectiveKind> kinds) {
  std::string offer;
  for (const CollectiveKind& kind : kinds) absl::StrAppend(&offer, kind.name, "=", kind.exclusive, "\n");
  return offer;
}

absl::StatusOr<std::string> ChooseKind(absl::Span<const OfferingMember> members, size_t place) {
  std::string sharing;
  if (std::optional<std::string> kind = FirstOfAll(members, &sharing); kind.has_value()) return *std::move(kind);

  std::vector<std::string> offers;
  std::vector<OfferingMember> with_state;
  for (const OfferingMember& member : members) {
    std::vector<std::string> names;
    for (const Offered& kind : Parse(member.offer)) names.push_back(kind.name);
    offers.push_back(absl::StrCat(member.node, " has ", names.empty() ? "none" : absl::StrJoin(names, " and ")));
    if (member.has_state) with_state.push_back(member);
  }
  const std::string why =
      absl::StrCat("the workers have no way in common of doing collective operations: ", absl::StrJoin(offers, ", "),
                   sharing, "; start them with the same --collectives");
  std::string ignored;
  if (members[place].has_state && FirstOfAll(with_state, &ignored).has_value()) return absl::UnavailableError(why);
  return absl::InvalidArgumentError(why);
}

}  // namespace pawl
