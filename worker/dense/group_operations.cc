#include "worker/dense/group_operations.h"

#include "worker/interrupt.h"

namespace pawl {

Collective::Done GroupOperations::Fulfil(End& end) {
  std::promise<absl::Status> promise;
  end = promise.get_future();
  return [promise = std::move(promise)](absl::Status status) mutable { promise.set_value(std::move(status)); };
}

absl::Status GroupOperations::Await(End end) {
  while (end.wait_for(kInterruptInterval) != std::future_status::ready) {
    if (const absl::Status reason = StillIn(); !reason.ok()) collective_.Abort(reason);
  }
  return end.get();
}

}  // namespace pawl
