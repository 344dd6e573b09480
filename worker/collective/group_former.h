// How the processes of a job find each other for collective operations.
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

// A group whose members together host every rank of the job once. Every member sees the same list.
struct Group {
  uint64_t generation = 0;
  std::vector<GroupMember> members;
  // This process's place in `members` and in the collective.
  size_t place = 0;
  // Aborted as soon as the scheduler says that the group has ended: a member has died, left or
  // rejoined, or ranks have moved.
  std::unique_ptr<Collective> collective;
};

// Implemented by the scheduler's rendezvous and, for tests, within a process. Used by one thread.
class GroupFormer {
 public:
  virtual ~GroupFormer() = default;

  // Waits until a group is formed and connected in which this process hosts these ranks. Ends its
  // previous group. `dense_steps`: the version of its dense parameters, if it has any.
  // FAILED_PRECONDITION: the ranks are not this process's; retry with those of the current
  // assignment. UNAVAILABLE, DEADLINE_EXCEEDED: retry. INVALID_ARGUMENT, used for nothing else: no
  // group accepts this process as it is, though others may continue without it; the message says
  // why. Returns the interrupt's reason once it is set.
  virtual absl::StatusOr<Group> Form(const std::vector<GroupRank>& ranks,
                                     std::optional<uint64_t> dense_steps,
                                     const Interrupt& interrupt) = 0;
};

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_GROUP_FORMER_H_
