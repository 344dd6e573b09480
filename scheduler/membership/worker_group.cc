#include "scheduler/membership/worker_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pawl {
namespace {

bool IsSameRequest(const JoinGroupRequest& a, const JoinGroupRequest& b) {
  return a.incarnation() == b.incarnation() && a.has_state() == b.has_state() &&
         a.dense_steps() == b.dense_steps() &&
         std::equal(a.ranks().begin(), a.ranks().end(), b.ranks().begin(), b.ranks().end(),
                    [](const GroupRank& x, const GroupRank& y) {
                      return x.rank() == y.rank() && x.incarnation() == y.incarnation();
                    });
}

std::string RanksText(const JoinGroupRequest& request) {
  return absl::StrJoin(request.ranks(), ", ", [](std::string* out, const GroupRank& rank) {
    absl::StrAppend(out, rank.rank());
  });
}

}  // namespace

// Whether the ranks belong to the worker and include all that it is to continue with.
bool WorkerGroup::Holds(const JoinGroupRequest& request, const Hosts& hosts) {
  for (const GroupRank& rank : request.ranks()) {
    if (rank.rank() >= hosts.size()) return false;
    const HostedRank& hosted = hosts[rank.rank()];
    if (hosted.node != request.node() || hosted.incarnation != rank.incarnation()) return false;
  }
  const auto continues = [](const HostedRank& hosted) {
    return !hosted.leaving && !hosted.finished;
  };
  size_t assigned = 0;
  size_t brought = 0;
  for (const HostedRank& hosted : hosts)
    assigned += hosted.node == request.node() && continues(hosted);
  for (const GroupRank& rank : request.ranks()) brought += continues(hosts[rank.rank()]);
  return brought == assigned;
}

absl::Status WorkerGroup::Join(const JoinGroupRequest& request, const Hosts& hosts) {
  if (request.ranks_size() == 0)
    return absl::InvalidArgumentError("a worker without ranks cannot join a group");
  for (int i = 1; i < request.ranks_size(); ++i) {
    if (request.ranks(i - 1).rank() >= request.ranks(i).rank()) {
      return absl::InvalidArgumentError("ranks are not in ascending order, each once");
    }
  }
  const Member* const member = Find(request.node());
  if (member != nullptr && !member->has_heard && IsSameRequest(member->request, request))
    return absl::OkStatus();
  if (member != nullptr) End(absl::StrCat(request.node(), " joins again"));
  waiting_.erase(request.node());
  if (!Holds(request, hosts)) {
    return absl::FailedPreconditionError(absl::StrCat(request.node(), " brings ranks ",
                                                      RanksText(request),
                                                      ", which are not the ranks assigned to it"));
  }
  waiting_.emplace(request.node(), request);
  return absl::OkStatus();
}

void WorkerGroup::Withdraw(const std::string& node) { waiting_.erase(node); }

void WorkerGroup::OnNodeGone(const std::string& node, const std::string& how) {
  waiting_.erase(node);
  if (Find(node) != nullptr) End(absl::StrCat(node, " ", how));
}

std::vector<std::string> WorkerGroup::OnRanksAssigned(const Hosts& hosts) {
  for (const Member& member : members_) {
    for (const GroupRank& rank : member.request.ranks()) {
      const HostedRank& hosted = hosts[rank.rank()];
      if (hosted.node == member.request.node() && hosted.incarnation == rank.incarnation())
        continue;
      End(absl::StrCat("rank ", rank.rank(), " no longer belongs to ", member.request.node()));
      break;
    }
    // End() has invalidated the iterators.
    if (members_.empty()) break;
  }
  std::vector<std::string> refused;
  for (const auto& [node, request] : waiting_) {
    if (!Holds(request, hosts)) refused.push_back(node);
  }
  for (const std::string& node : refused) waiting_.erase(node);
  return refused;
}

bool WorkerGroup::Form(const Hosts& hosts, const std::function<uint64_t()>& next_generation) {
  if (generation_ != 0 || waiting_.empty()) return false;
  // Each waiting worker brings only its own ranks, so no rank occurs twice.
  size_t brought = 0;
  for (const auto& [node, request] : waiting_) {
    if (!Holds(request, hosts)) return false;
    brought += static_cast<size_t>(request.ranks_size());
  }
  if (brought != hosts.size()) return false;
  generation_ = next_generation();
  for (auto& [node, request] : waiting_) members_.push_back({std::move(request)});
  waiting_.clear();
  std::sort(members_.begin(), members_.end(), [](const Member& a, const Member& b) {
    return a.request.ranks(0).rank() < b.request.ranks(0).rank();
  });
  return true;
}

std::optional<JoinGroupResponse> WorkerGroup::GroupOf(const std::string& node) const {
  if (PlaceOf(node) == members_.size()) return std::nullopt;
  JoinGroupResponse response;
  response.set_generation(generation_);
  response.set_place(static_cast<uint32_t>(PlaceOf(node)));
  for (const Member& member : members_) {
    GroupMember& to = *response.add_members();
    to.set_node(member.request.node());
    to.set_incarnation(member.request.incarnation());
    for (const GroupRank& rank : member.request.ranks()) to.add_ranks(rank.rank());
    to.set_has_state(member.request.has_state());
    if (member.request.has_state()) to.set_dense_steps(member.request.dense_steps());
  }
  return response;
}

absl::Status WorkerGroup::Exchange(const ExchangeInGroupRequest& request) {
  if (const auto why = EndReason(request.generation()); why.has_value())
    return absl::AbortedError(*why);
  Member* const member = Find(request.node());
  if (member == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(request.node(), " is not in the group"));
  member->has_heard = true;
  if (request.name().empty() || request.name().size() > kMaxExchangeNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("name has ", request.name().size(),
                                                   " bytes; 1 to ", kMaxExchangeNameBytes,
                                                   " are possible"));
  }
  if (request.value().size() > kMaxExchangeBytes) {
    return absl::InvalidArgumentError(absl::StrCat("value has ", request.value().size(),
                                                   " bytes; at most ", kMaxExchangeBytes,
                                                   " are possible"));
  }
  const auto known = exchanges_.find(request.name());
  if (known == exchanges_.end() && exchanges_.size() == kMaxExchangeNames) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the group has used ", kMaxExchangeNames, " names, the limit"));
  }
  const size_t place = PlaceOf(request.node());
  if (known != exchanges_.end() && known->second[place].has_value()) {
    if (*known->second[place] == request.value()) return absl::OkStatus();
    return absl::AlreadyExistsError(
        absl::StrCat(request.node(), " has stored another value as ", request.name()));
  }
  if (exchange_bytes_ + request.value().size() > kMaxGroupExchangeBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the group has exchanged ", exchange_bytes_,
                                                     " bytes; ", kMaxGroupExchangeBytes,
                                                     " are the limit"));
  }
  exchange_bytes_ += request.value().size();
  auto& values = exchanges_[request.name()];
  values.resize(members_.size());
  values[place] = request.value();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ExchangeInGroupResponse>> WorkerGroup::Values(
    uint64_t generation, const std::string& name) const {
  if (const auto why = EndReason(generation); why.has_value()) return absl::AbortedError(*why);
  const auto known = exchanges_.find(name);
  ExchangeInGroupResponse response;
  for (size_t place = 0; place < members_.size(); ++place) {
    if (known == exchanges_.end() || !known->second[place].has_value()) return std::nullopt;
    response.add_values(*known->second[place]);
  }
  return response;
}

absl::StatusOr<std::optional<std::string>> WorkerGroup::CheckEnded(const std::string& node,
                                                                   uint64_t generation) {
  if (auto why = EndReason(generation); why.has_value()) return why;
  Member* const member = Find(node);
  if (member == nullptr)
    return absl::InvalidArgumentError(absl::StrCat(node, " is not in the group"));
  member->has_heard = true;
  return std::nullopt;
}

std::optional<std::string> WorkerGroup::EndReason(uint64_t generation) const {
  if (generation != 0 && generation == generation_) return std::nullopt;
  if (generation != 0 && generation == former_generation_) return end_reason_;
  return "the scheduler no longer knows this group";
}

void WorkerGroup::End(const std::string& why) {
  former_generation_ = std::exchange(generation_, 0);
  end_reason_ = why;
  members_.clear();
  exchanges_.clear();
  exchange_bytes_ = 0;
}

WorkerGroup::Member* WorkerGroup::Find(const std::string& node) {
  const size_t place = PlaceOf(node);
  return place == members_.size() ? nullptr : &members_[place];
}

size_t WorkerGroup::PlaceOf(const std::string& node) const {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const Member& member) {
    return member.request.node() == node;
  });
  return static_cast<size_t>(found - members_.begin());
}

}  // namespace pawl
