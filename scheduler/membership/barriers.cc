#include "scheduler/membership/barriers.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client_lib/base/bounded_text.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

// How the key of a barrier of kind kOthers begins. No name has it. Saved states contain keys.
constexpr absl::string_view kOthersPrefix = "\x01";

Barriers::Kind KindOf(absl::string_view key) {
  return absl::StartsWith(key, kOthersPrefix) ? Barriers::Kind::kOthers : Barriers::Kind::kRanks;
}

absl::string_view NameOf(absl::string_view key) { return absl::StripPrefix(key, kOthersPrefix); }

}  // namespace

std::string Barriers::Key(Kind kind, const std::string& name) {
  return kind == Kind::kRanks ? name : absl::StrCat(kOthersPrefix, name);
}

absl::Status Barriers::CheckCanOpen(const std::string& name, const std::string& node, Kind kind) {
  if (BoundsOf(kind).open >= kMaxOpenBarriers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("barrier ", name, ": ", kMaxOpenBarriers, " barriers are open, the limit"));
  }
  if (kind == Kind::kRanks) return absl::OkStatus();
  size_t of_node = 0;
  for (const auto& [key, barrier] : barriers_) {
    if (KindOf(key) != kind) continue;
    for (const auto& [party, who] : barrier.arrived) {
      if (who != node) continue;
      ++of_node;
      break;
    }
  }
  if (of_node < kMaxOpenBarriersOfNode) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("barrier ", name, ": ", node, " waits at ", of_node, " barriers, the limit"));
}

absl::StatusOr<Barriers::Outcome> Barriers::Arrive(const std::string& name, uint32_t parties,
                                                   uint32_t party, const std::string& node,
                                                   Kind kind) {
  if (name.empty() || name.size() > kMaxBarrierNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "name has ", name.size(), " bytes; a barrier's has 1 to ", kMaxBarrierNameBytes));
  }
  // Failures and logs quote it.
  if (HasControlCharacters(name))
    return absl::InvalidArgumentError("the barrier's name has control characters");
  if (parties < 1 || parties > kMaxBarrierParties) {
    return absl::InvalidArgumentError(absl::StrCat("barrier ", name, ": parties is ", parties,
                                                   "; it must be 1 to ", kMaxBarrierParties));
  }
  if (party >= parties) {
    return absl::InvalidArgumentError(absl::StrCat("barrier ", name, ": party is ", party,
                                                   "; with ", parties, " parties the last is ",
                                                   parties - 1));
  }
  const std::string key = Key(kind, name);
  auto it = barriers_.find(key);
  if (it == barriers_.end()) {
    PAWL_RETURN_IF_ERROR(CheckCanOpen(name, node, kind));
    it = barriers_.try_emplace(key).first;
    it->second.parties = parties;
    ++BoundsOf(kind).open;
  }
  Barrier& barrier = it->second;
  if (barrier.parties != 0 && barrier.parties != parties) {
    return absl::InvalidArgumentError(absl::StrCat("barrier ", name, ": parties is ", parties,
                                                   ", but the others said ", barrier.parties));
  }
  if (barrier.closed) {
    if (!barrier.result.ok()) return barrier.result;
    return Outcome::kComplete;
  }
  const auto [arrived, is_new] = barrier.arrived.emplace(party, node);
  if (!is_new && arrived->second != node) {
    return absl::InvalidArgumentError(absl::StrCat("barrier ", name, ": party ", party, " is ",
                                                   arrived->second, " already, not ", node));
  }
  if (barrier.arrived.size() < parties) return Outcome::kWaiting;
  Close(key, barrier, absl::OkStatus());
  return Outcome::kComplete;
}

absl::Status Barriers::FailParty(const std::string& key, uint32_t party, const std::string& node,
                                 absl::string_view reason) {
  const auto it = barriers_.find(key);
  if (it == barriers_.end() || it->second.closed) return absl::OkStatus();
  Barrier& barrier = it->second;
  const auto arrived = barrier.arrived.find(party);
  if (arrived == barrier.arrived.end() || arrived->second != node) return absl::OkStatus();
  absl::Status failure = absl::AbortedError(
      absl::StrCat("barrier ", NameOf(key), ": party ", party, " (", arrived->second, ") ", reason,
                   "; ", barrier.arrived.size(), " of ", barrier.parties, " parties had come"));
  Close(key, barrier, failure);
  return failure;
}

void Barriers::Withdraw(const std::string& node, uint32_t party) {
  for (auto& [key, barrier] : barriers_) {
    if (KindOf(key) != Kind::kRanks) continue;
    const auto arrived = barrier.arrived.find(party);
    if (arrived != barrier.arrived.end() && arrived->second == node) barrier.arrived.erase(arrived);
  }
}

std::vector<Barriers::Failure> Barriers::FailNode(const std::string& node,
                                                  absl::string_view reason) {
  std::vector<std::pair<std::string, uint32_t>> hit;
  for (const auto& [key, barrier] : barriers_) {
    if (barrier.closed) continue;
    for (const auto& [party, who] : barrier.arrived) {
      if (who != node) continue;
      hit.emplace_back(key, party);
      break;
    }
  }
  std::vector<Failure> failures;
  for (const auto& [key, party] : hit)
    failures.push_back({key, FailParty(key, party, node, reason)});
  return failures;
}

void Barriers::Close(const std::string& key, Barrier& barrier, const absl::Status& result) {
  barrier.closed = true;
  barrier.result = result;
  barrier.arrived.clear();
  Bounds& bounds = BoundsOf(KindOf(key));
  --bounds.open;
  bounds.closed.push_back(key);
  if (bounds.closed.size() > kMaxClosedBarriers) {
    barriers_.erase(bounds.closed.front());
    bounds.closed.pop_front();
  }
}

StoredBarriers Barriers::Save() const {
  StoredBarriers stored;
  for (const Bounds& bounds : bounds_) {
    for (const std::string& key : bounds.closed) {
      stored.add_names(key);
      stored.add_failures(std::string(barriers_.at(key).result.message()));
    }
  }
  return stored;
}

void Barriers::Restore(const StoredBarriers& stored) {
  for (int i = 0; i < stored.names_size(); ++i) {
    Barrier& barrier = barriers_[stored.names(i)];
    barrier.closed = true;
    if (!stored.failures(i).empty()) barrier.result = absl::AbortedError(stored.failures(i));
    BoundsOf(KindOf(stored.names(i))).closed.push_back(stored.names(i));
  }
}

}  // namespace pawl
