// Groups of processes that find each other through the scheduler.
#ifndef PAWL_WORKER_COLLECTIVE_SCHEDULER_GROUP_FORMER_H_
#define PAWL_WORKER_COLLECTIVE_SCHEDULER_GROUP_FORMER_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client_lib/client.h"
#include "worker/collective/collective_kind.h"
#include "worker/collective/group_former.h"

namespace pawl {

// Of groups that are over before they are connected, so many are tried in one Form.
inline constexpr int kMaxFormAttempts = 8;

// Asks the scheduler for a group (JoinGroup), agrees with the members on a kind of collective that all of them have (by
// ExchangeInGroup, and ChooseKind), makes this member's end of it, hands out its introduction (ExchangeInGroup) and
// connects. As long as the group lives a WatchGroup call is under way, whose answer aborts the collective. A scheduler that
// is away ends no group: it is asked again, and if it is another one then, which knows no such group, that is the end.
class SchedulerGroupFormer final : public GroupFormer {
 public:
  struct Options {
    // Form gives up with DEADLINE_EXCEEDED when no group was formed for so long: ranks may be without a host.
    MonotonicDuration join_timeout = std::chrono::seconds(60);
    // From the group's formation until all are connected. Then another one is asked for.
    MonotonicDuration connect_timeout = std::chrono::seconds(15);
    // Of one WatchGroup call; it is made again.
    MonotonicDuration watch_timeout = std::chrono::seconds(60);
  };

  // `kinds`: what this member offers, in the order of preference. `client` is a worker's, and outlives this and all of its
  // groups.
  SchedulerGroupFormer(Client& client, std::vector<CollectiveKind> kinds, const Options& options)
      : client_(client), kinds_(std::move(kinds)), options_(options) {}
  SchedulerGroupFormer(Client& client, std::vector<CollectiveKind> kinds)
      : SchedulerGroupFormer(client, std::move(kinds), Options()) {}

  absl::StatusOr<Group> Form(const std::vector<GroupRank>& ranks, std::optional<uint64_t> dense_steps,
                             const Interrupt& interrupt) override;

 private:
  absl::StatusOr<Group> Connect(const JoinGroupResponse& formed, const Interrupt& interrupt);
  // Of the members' offers, the one to be made use of.
  absl::StatusOr<const CollectiveKind*> Agree(const JoinGroupResponse& formed, const Interrupt& interrupt);
  // What each of the members hands out by this name, by place.
  absl::StatusOr<std::vector<std::string>> Exchange(uint64_t generation, const std::string& name, std::string value,
                                                    const Interrupt& interrupt);

  Client& client_;
  const std::vector<CollectiveKind> kinds_;
  const Options options_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_SCHEDULER_GROUP_FORMER_H_
