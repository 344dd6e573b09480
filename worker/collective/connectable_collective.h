// A collective whose members have yet to find each other.
#ifndef PAWL_WORKER_COLLECTIVE_CONNECTABLE_COLLECTIVE_H_
#define PAWL_WORKER_COLLECTIVE_CONNECTABLE_COLLECTIVE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/collective/collective.h"

namespace pawl {

// What every back end offers to whoever forms groups: each member makes one, all hand each other
// their introductions by some other way, and connect. Nothing else may be called before Connect has
// been; what is called before that has ended waits for it like for any other operation.
class ConnectableCollective : public Collective {
 public:
  // What the others need of this member: addresses, an id. May be empty. Constant.
  virtual const std::string& introduction() const = 0;

  // Connects with the others, as the first operation. REQUIRES: called once; introductions[p] is
  // that of member p.
  virtual void Connect(std::vector<std::string> introductions, MonotonicDuration timeout,
                       Done done) = 0;
};

// Makes one member's end of a group. Thread-safe.
using CollectiveFactory = std::function<absl::StatusOr<std::unique_ptr<ConnectableCollective>>(
    size_t size, size_t place)>;

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_CONNECTABLE_COLLECTIVE_H_
