#include "server/disk_watch.h"

#include "absl/strings/str_cat.h"

namespace pawl {

void DiskWatch::Note(const absl::Status& written, bool waits, uint64_t durable, MonotonicTime now) {
  if (!waits || durable != durable_) {
    waiting_since_.reset();
  }
  durable_ = durable;
  if (waits && !waiting_since_.has_value()) waiting_since_ = now;
  const bool hangs = waiting_since_.has_value() && now - *waiting_since_ >= kDiskHangTimeout;
  if (!written.ok() || hangs) {
    const MonotonicTime since = hangs ? *waiting_since_ : now;
    if (!failing_since_.has_value() || since < *failing_since_) failing_since_ = since;
    reason_ = !written.ok()
                  ? std::string(written.message())
                  : absl::StrCat("the disk has not answered for ", Seconds(kDiskHangTimeout), " s");
    reported_ = reported_ || now - *failing_since_ >= kDiskFailureReportDelay;
    working_since_.reset();
    return;
  }
  if (!failing_since_.has_value()) return;
  if (!working_since_.has_value()) working_since_ = now;
  if (reported_ && now - *working_since_ < kDiskRecoveryTime) return;
  failing_since_.reset();
  working_since_.reset();
  reported_ = false;
}

std::optional<DiskFailure> DiskWatch::Failure(MonotonicTime now) const {
  if (!reported_) return std::nullopt;
  DiskFailure failure;
  failure.set_lasts_ms(static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now - *failing_since_).count()));
  failure.set_reason(reason_);
  return failure;
}

}  // namespace pawl
