// A collective whose members still have to connect.
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

// The interface of every back end for a group former: each member creates one, all members exchange
// their introductions by other means, and connect. Connect is the first call. Operations called
// before it has ended wait for it as for any other operation.
class ConnectableCollective : public Collective {
 public:
  // The data that the other members need from this one, such as addresses or an id. May be empty.
  // Constant.
  virtual const std::string& introduction() const = 0;

  // Connects with the other members, as the first operation. REQUIRES: called once;
  // introductions[p] is that of member p.
  virtual void Connect(std::vector<std::string> introductions, MonotonicDuration timeout,
                       Done done) = 0;
};

// Creates one member's end of a group. Thread-safe.
using CollectiveFactory = std::function<absl::StatusOr<std::unique_ptr<ConnectableCollective>>(
    size_t size, size_t place)>;

}  // namespace pawl

#endif  // PAWL_WORKER_COLLECTIVE_CONNECTABLE_COLLECTIVE_H_
