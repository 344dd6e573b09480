#include "client_lib/call.h"

namespace pawl {

void Call::MessageDone(const absl::Status& status) {
  if (!status.ok()) {
    MutexLock lock(mu_);
    if (error_.ok()) error_ = status;
  }
  if (messages_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  absl::Status error;
  {
    MutexLock lock(mu_);
    error = error_;
  }
  Finish(error);
}

}  // namespace pawl
