#include "client_lib/c/call.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

namespace pawl::c {
namespace {

// Makes an eventfd readable. The counter is at 0, so the write neither blocks nor fails.
void Signal(int descriptor) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(descriptor, &one, sizeof(one));
}

}  // namespace

CallState::~CallState() {
  if (descriptor_ >= 0) close(descriptor_);
}

void CallState::End(absl::StatusOr<std::string> result) {
  const absl::MutexLock lock(&mutex_);
  status_ = result.status();
  if (result.ok()) result_ = *std::move(result);
  if (descriptor_ >= 0) Signal(descriptor_);
}

std::optional<absl::Status> CallState::Wait(absl::Duration timeout) {
  const absl::MutexLock lock(&mutex_);
  const auto has_ended = [this]()
                             ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return status_.has_value(); };
  mutex_.AwaitWithTimeout(absl::Condition(&has_ended), timeout);
  return status_;
}

int CallState::Descriptor() {
  const absl::MutexLock lock(&mutex_);
  if (descriptor_ < 0) {
    descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (descriptor_ >= 0 && status_.has_value()) Signal(descriptor_);
  }
  return descriptor_;
}

const std::string& CallState::result() const {
  const absl::MutexLock lock(&mutex_);
  return result_;
}

}  // namespace pawl::c
