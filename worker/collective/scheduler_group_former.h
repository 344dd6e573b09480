// Forms groups of processes that find each other through the scheduler.
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

// How many groups one Form tries if they end before they are connected.
inline constexpr int kMaxFormAttempts = 8;
// A kind is withdrawn after this many consecutive failures to connect.
inline constexpr int kMaxKindFailures = 2;
// The pause after a failure to connect, doubled after each further one in a row.
inline constexpr std::chrono::milliseconds kFirstFormPause{50};
inline constexpr std::chrono::milliseconds kLongestFormPause{5000};

// Asks the scheduler for a group (JoinGroup), agrees with the members on a common kind of
// collective (ExchangeInGroup and ChooseKind), creates this member's end of it, exchanges
// introductions (ExchangeInGroup) and connects. While the group lives, a WatchGroup call is
// pending, whose answer aborts the collective. An unreachable scheduler does not end a group: the
// call is repeated, and ends the group if a restarted scheduler does not know it.
//
// A kind may be available but not work: its needs of the machines and their network show only when
// members connect, and so do not identify the member at fault. A member that has failed
// kMaxKindFailures times in a row with a kind therefore withdraws it for the rest of its life, so
// that its groups take the next one. Groups that another member ended meanwhile do not count. The
// last kind stays: a member with state, or one that waits for others in vain, retries; a member
// without state fails with INVALID_ARGUMENT, because no group accepts it.
class SchedulerGroupFormer final : public GroupFormer {
 public:
  struct Options {
    // Form fails with DEADLINE_EXCEEDED if no group forms for this long; some ranks may have no
    // host.
    MonotonicDuration join_timeout = std::chrono::seconds(60);
    // How long a member waits for all offers before it asks for another group.
    MonotonicDuration offer_timeout = std::chrono::seconds(15);
    // The deadline of one WatchGroup call, which is then repeated.
    MonotonicDuration watch_timeout = std::chrono::seconds(60);
  };

  // `kinds`: what this member offers, in order of preference. `client` is a worker's client and
  // outlives this and all of its groups.
  SchedulerGroupFormer(Client& client, std::vector<CollectiveKind> kinds, const Options& options)
      : client_(client), options_(options), kinds_(std::move(kinds)) {}
  SchedulerGroupFormer(Client& client, std::vector<CollectiveKind> kinds)
      : SchedulerGroupFormer(client, std::move(kinds), Options()) {}

  absl::StatusOr<Group> Form(const std::vector<GroupRank>& ranks,
                             std::optional<uint64_t> dense_steps,
                             const Interrupt& interrupt) override;

 private:
  // Chooses a kind from the members' offers. INVALID_ARGUMENT: see Form.
  absl::StatusOr<CollectiveKind> Agree(const JoinGroupResponse& formed, const Interrupt& interrupt);
  absl::StatusOr<Group> Connect(const JoinGroupResponse& formed, const CollectiveKind& kind,
                                const Interrupt& interrupt);
  // The values that the members publish under this name, by place.
  absl::StatusOr<std::vector<std::string>> Exchange(uint64_t generation, const std::string& name,
                                                    std::string value, MonotonicDuration timeout,
                                                    const Interrupt& interrupt);
  // Handles a failure to connect by a kind: returns its meaning for the group and adjusts what this
  // member offers.
  absl::Status HandleFailure(const CollectiveKind& kind, const absl::Status& why, bool has_state);

  Client& client_;
  const Options options_;
  // The kinds that this member offers.
  std::vector<CollectiveKind> kinds_;
  // Consecutive failures of each kind.
  std::map<std::string, int> failures_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_SCHEDULER_GROUP_FORMER_H_
