#include "worker/dense/group_operations.h"

namespace pawl {

absl::Status GroupOperations::Await(End end) {
  while (end.wait_for(kInterruptInterval) != std::future_status::ready) {
    if (const absl::Status reason = CheckMembership(); !reason.ok()) collective_.Abort(reason);
  }
  return end.get();
}

}  // namespace pawl
