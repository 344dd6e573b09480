// Groups of processes that find each other through the scheduler.
#ifndef PAWL_WORKER_COLLECTIVE_SCHEDULER_GROUP_FORMER_H_
#define PAWL_WORKER_COLLECTIVE_SCHEDULER_GROUP_FORMER_H_

#include <chrono>
#include <optional>
#include <vector>

#include "client_lib/client.h"
#include "worker/collective/connectable_collective.h"
#include "worker/collective/group_former.h"

namespace pawl {

// Of groups that are over before they are connected, so many are tried in one Form.
inline constexpr int kMaxFormAttempts = 8;

// Asks the scheduler for a group (JoinGroup), makes this member's end of it, hands out its introduction (ExchangeInGroup)
// and connects. As long as the group lives a WatchGroup call is under way, whose answer aborts the collective. A scheduler
// that is away ends no group: it is asked again, and if it is another one then, which knows no such group, that is the end.
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

  // `client` is a worker's, and outlives this and all of its groups.
  SchedulerGroupFormer(Client& client, CollectiveFactory factory, const Options& options)
      : client_(client), factory_(std::move(factory)), options_(options) {}
  SchedulerGroupFormer(Client& client, CollectiveFactory factory)
      : SchedulerGroupFormer(client, std::move(factory), Options()) {}

  absl::StatusOr<Group> Form(const std::vector<GroupRank>& ranks, std::optional<uint64_t> dense_steps,
                             const Interrupt& interrupt) override;

 private:
  absl::StatusOr<Group> Connect(const JoinGroupResponse& formed, const Interrupt& interrupt);

  Client& client_;
  const CollectiveFactory factory_;
  const Options options_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_SCHEDULER_GROUP_FORMER_H_
