// How the processes of a job that do collective operations find each other.
#ifndef PAWL_WORKER_COLLECTIVE_GROUP_FORMER_H_
#define PAWL_WORKER_COLLECTIVE_GROUP_FORMER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "worker/collective/collective.h"
#include "worker/process/interrupt.h"

namespace pawl {

// A group whose members host all ranks of the job, each once. Every member sees the same list.
struct Group {
  uint64_t generation = 0;
  std::vector<GroupMember> members;
  // This process's place in `members` and in the collective.
  size_t place = 0;
  // Aborted as soon as the scheduler says that the group is over: a member has died or left, joins
  // anew, or ranks move.
  std::unique_ptr<Collective> collective;
};

// Used by one thread. Implementations: the scheduler's rendezvous, and one within a process for
// tests.
class GroupFormer {
 public:
  virtual ~GroupFormer() = default;

  // Waits until a group is formed and connected, of which this process is a member with these
  // ranks; whatever group it was in before is over. `dense_steps`: the steps of the dense
  // parameters it holds, if any. FAILED_PRECONDITION: ranks that are not this process's; whoever
  // follows the assignment is to try again with those that it says. UNAVAILABLE, DEADLINE_EXCEEDED:
  // try again. INVALID_ARGUMENT, which nothing else has: no group takes this process as it is, and
  // others may go on without it; it says why. The interrupt's reason once that is set.
  virtual absl::StatusOr<Group> Form(const std::vector<GroupRank>& ranks,
                                     std::optional<uint64_t> dense_steps,
                                     const Interrupt& interrupt) = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_GROUP_FORMER_H_
