// An operation of the C interface, between the thread that waits for it and the callback that ends
// it.
#ifndef PAWL_CLIENT_LIB_C_CALL_H_
#define PAWL_CLIENT_LIB_C_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace pawl::c {

// Thread-safe. The callback and pawl_call share it, so that each may end first.
class CallState {
 public:
  ~CallState();

  // REQUIRES: called once. `result` is what pawl_result returns.
  void End(absl::StatusOr<std::string> result);

  // nullopt: the operation has not ended within the time.
  std::optional<absl::Status> Wait(absl::Duration timeout);

  // The eventfd, created by the first call; -1 if the process has no descriptors left.
  int Descriptor();

  // REQUIRES: the operation has ended.
  const std::string& result() const;

 private:
  mutable absl::Mutex mutex_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
  std::string result_ ABSL_GUARDED_BY(mutex_);
  int descriptor_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace pawl::c

#endif  // PAWL_CLIENT_LIB_C_CALL_H_
