// Groups of processes that find each other through the scheduler.
#ifndef PAWL_WORKER_COLLECTIVE_SCHEDULER_GROUP_FORMER_H_
#define PAWL_WORKER_COLLECTIVE_SCHEDULER_GROUP_FORMER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client_lib/client.h"
#include "worker/collective/collective_kind.h"
#include "worker/collective/group_former.h"

namespace pawl {

// Of groups that are over before they are connected, so many are tried in one Form.
inline constexpr int kMaxFormAttempts = 8;
// After so many failures in a row to connect by a kind it is not offered any more.
inline constexpr int kMaxKindFailures = 2;

// Asks the scheduler for a group (JoinGroup), agrees with the members on a kind of collective that
// all of them have (by ExchangeInGroup, and ChooseKind), makes this member's end of it, hands out
// its introduction (ExchangeInGroup) and connects. As long as the group lives a WatchGroup call is
// under way, whose answer aborts the collective. A scheduler that is away ends no group: it is
// asked again, and if it is another one then, which knows no such group, that is the end.
//
// A kind may be there and not work: what it needs of the machines and the network between them
// shows when members connect. Which member is at fault does not; so whoever has failed
// kMaxKindFailures times in a row with a kind withdraws it for as long as it lives, and by that its
// groups take the next one. Groups that somebody else has ended meanwhile do not count. The last
// kind stays: a member with state, or that waits in vain for others, tries on; a member without
// state with which the fault lies is as one that nobody takes (INVALID_ARGUMENT).
class SchedulerGroupFormer final : public GroupFormer {
 public:
  struct Options {
    // Form gives up with DEADLINE_EXCEEDED when no group was formed for so long: ranks may be
    // without a host.
    MonotonicDuration join_timeout = std::chrono::seconds(60);
    // How long a member waits until all have said what they offer. Then another group is asked for.
    MonotonicDuration offer_timeout = std::chrono::seconds(15);
    // Of one WatchGroup call; it is made again.
    MonotonicDuration watch_timeout = std::chrono::seconds(60);
  };

  // `kinds`: what this member offers, in the order of preference. `client` is a worker's, and
  // outlives this and all of its groups.
  SchedulerGroupFormer(Client& client, std::vector<CollectiveKind> kinds, const Options& options)
      : client_(client), options_(options), kinds_(std::move(kinds)) {}
  SchedulerGroupFormer(Client& client, std::vector<CollectiveKind> kinds)
      : SchedulerGroupFormer(client, std::move(kinds), Options()) {}

  absl::StatusOr<Group> Form(const std::vector<GroupRank>& ranks,
                             std::optional<uint64_t> dense_steps,
                             const Interrupt& interrupt) override;

 private:
  // Of the members' offers, the one to be made use of. INVALID_ARGUMENT: see Form.
  absl::StatusOr<CollectiveKind> Agree(const JoinGroupResponse& formed, const Interrupt& interrupt);
  absl::StatusOr<Group> Connect(const JoinGroupResponse& formed, const CollectiveKind& kind,
                                const Interrupt& interrupt);
  // What each of the members hands out by this name, by place.
  absl::StatusOr<std::vector<std::string>> Exchange(uint64_t generation, const std::string& name,
                                                    std::string value, MonotonicDuration timeout,
                                                    const Interrupt& interrupt);
  // What a failure to connect by a kind comes to for the group, and for what this member offers
  // from now on.
  absl::Status HandleFailure(const CollectiveKind& kind, const absl::Status& why, bool has_state);

  Client& client_;
  const Options options_;
  // What is offered.
  std::vector<CollectiveKind> kinds_;
  // Since a group was connected by that kind.
  std::map<std::string, int> failures_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_SCHEDULER_GROUP_FORMER_H_
