#include "scheduler/membership/barriers.h"

#include "absl/strings/str_cat.h"

namespace pawl {

absl::StatusOr<Barriers::Outcome> Barriers::Arrive(const std::string& name, uint32_t parties,
                                                   uint32_t party, const std::string& node) {
  if (name.empty() || name.size() > kMaxBarrierNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "name has ", name.size(), " bytes; a barrier's has 1 to ", kMaxBarrierNameBytes));
  }
  if (parties < 1 || parties > kMaxBarrierParties) {
    return absl::InvalidArgumentError(absl::StrCat("barrier ", name, ": parties is ", parties,
                                                   "; it must be 1 to ", kMaxBarrierParties));
  }
  if (party >= parties) {
    return absl::InvalidArgumentError(absl::StrCat("barrier ", name, ": party is ", party,
                                                   "; with ", parties, " parties the last is ",
                                                   parties - 1));
  }
  auto it = barriers_.find(name);
  if (it == barriers_.end()) {
    if (open_ == kMaxOpenBarriers) {
      return absl::ResourceExhaustedError(
          absl::StrCat("barrier ", name, ": ", kMaxOpenBarriers, " barriers are open, the limit"));
    }
    it = barriers_.try_emplace(name).first;
    it->second.parties = parties;
    ++open_;
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
  Close(name, barrier, absl::OkStatus());
  return Outcome::kComplete;
}

absl::Status Barriers::FailParty(const std::string& name, uint32_t party, const std::string& node,
                                 absl::string_view reason) {
  const auto it = barriers_.find(name);
  if (it == barriers_.end() || it->second.closed) return absl::OkStatus();
  Barrier& barrier = it->second;
  const auto arrived = barrier.arrived.find(party);
  if (arrived == barrier.arrived.end() || arrived->second != node) return absl::OkStatus();
  absl::Status failure = absl::AbortedError(
      absl::StrCat("barrier ", name, ": party ", party, " (", arrived->second, ") ", reason, "; ",
                   barrier.arrived.size(), " of ", barrier.parties, " parties had come"));
  Close(name, barrier, failure);
  return failure;
}

void Barriers::Withdraw(const std::string& node, uint32_t party) {
  for (auto& [name, barrier] : barriers_) {
    const auto arrived = barrier.arrived.find(party);
    if (arrived != barrier.arrived.end() && arrived->second == node) barrier.arrived.erase(arrived);
  }
}

std::vector<Barriers::Failure> Barriers::FailNode(const std::string& node,
                                                  absl::string_view reason) {
  std::vector<std::pair<std::string, uint32_t>> hit;
  for (const auto& [name, barrier] : barriers_) {
    if (barrier.closed) continue;
    for (const auto& [party, who] : barrier.arrived) {
      if (who != node) continue;
      hit.emplace_back(name, party);
      break;
    }
  }
  std::vector<Failure> failures;
  for (const auto& [name, party] : hit)
    failures.push_back({name, FailParty(name, party, node, reason)});
  return failures;
}

void Barriers::Close(const std::string& name, Barrier& barrier, const absl::Status& result) {
  barrier.closed = true;
  barrier.result = result;
  barrier.arrived.clear();
  --open_;
  closed_.push_back(name);
  if (closed_.size() > kMaxClosedBarriers) {
    barriers_.erase(closed_.front());
    closed_.pop_front();
  }
}

StoredBarriers Barriers::Save() const {
  StoredBarriers stored;
  for (const std::string& name : closed_) {
    stored.add_names(name);
    stored.add_failures(std::string(barriers_.at(name).result.message()));
  }
  return stored;
}

void Barriers::Restore(const StoredBarriers& stored) {
  for (int i = 0; i < stored.names_size(); ++i) {
    Barrier& barrier = barriers_[stored.names(i)];
    barrier.closed = true;
    if (!stored.failures(i).empty()) barrier.result = absl::AbortedError(stored.failures(i));
    closed_.push_back(stored.names(i));
  }
}

}  // namespace pawl
