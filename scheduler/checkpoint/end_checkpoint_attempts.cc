#include "scheduler/checkpoint/end_checkpoint_attempts.h"

#include "absl/strings/str_cat.h"

namespace pawl {

bool EndCheckpointAttempts::IsRetryable(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return false;
    default:
      return true;
  }
}

bool EndCheckpointAttempts::IsTransient(const absl::Status& error) {
  return absl::IsAborted(error) || absl::IsUnavailable(error);
}

bool EndCheckpointAttempts::OnFailed(const absl::Status& error, MonotonicTime now) {
  const bool is_another = error != last_error_;
  last_error_ = error;
  again_at_ = now + (IsTransient(error) ? kEndCheckpointPause : kEndCheckpointErrorPause);
  return is_another;
}

absl::Status EndCheckpointAttempts::CheckTime(MonotonicTime now) const {
  if (now <= until_) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("it was not complete after ", Seconds(timeout_), " s; it may still complete",
                   last_error_.ok() ? "" : "; the last attempt: ", last_error_.message()));
}

bool EndCheckpointAttempts::StartNext(MonotonicTime now) {
  if (!again_at_.has_value() || now < *again_at_) return false;
  again_at_.reset();
  return true;
}

}  // namespace pawl
