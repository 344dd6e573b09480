#include "server/disk_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace pawl {

void DiskWatch::Note(const absl::Status& room, bool waits, uint64_t durable, MonotonicTime now) {
  if (!waits || durable != durable_) {
    waiting_since_.reset();
  }
  durable_ = durable;
  if (waits && !waiting_since_.has_value()) waiting_since_ = now;
  const bool hangs = waiting_since_.has_value() && now - *waiting_since_ >= kDiskHangs;
  if (!room.ok() || hangs) {
    const MonotonicTime since = hangs ? *waiting_since_ : now;
    if (!failing_since_.has_value() || since < *failing_since_) failing_since_ = since;
    reason_ = !room.ok()
                  ? std::string(room.message())
                  : absl::StrCat("the disk has not answered for ", Seconds(kDiskHangs), " s");
    told_ = told_ || now - *failing_since_ >= kDiskFailureTold;
    good_since_.reset();
    return;
  }
  if (!failing_since_.has_value()) return;
  if (!good_since_.has_value()) good_since_ = now;
  if (told_ && now - *good_since_ < kDiskIsGoodAgain) return;
  failing_since_.reset();
  good_since_.reset();
  told_ = false;
}

std::optional<DiskFailure> DiskWatch::Failure(MonotonicTime now) const {
  if (!told_) return std::nullopt;
  DiskFailure failure;
  failure.set_lasts_ms(static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now - *failing_since_).count()));
  failure.set_reason(reason_);
  return failure;
}

}  // namespace pawl
