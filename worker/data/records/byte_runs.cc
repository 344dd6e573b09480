#include "worker/data/records/byte_runs.h"

#include <algorithm>
#include <cstring>

#include "client_lib/base/status_macros.h"

namespace pawl {

absl::StatusOr<absl::string_view> ByteRuns::Read(size_t size) {
  if (begin_ == end_) {
    const absl::string_view run = source_.Take(size);
    read_ += run.size();
    if (!run.empty()) return run;
  }
  while (end_ - begin_ < size) {
    if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    buffer_.resize(std::max({buffer_.size(), size, kBufferBytes}));
    PAWL_ASSIGN_OR_RETURN(const size_t count,
                          source_.Read(buffer_.data() + end_, buffer_.size() - end_));
    if (count == 0) break;
    end_ += count;
    read_ += count;
  }
  const size_t count = std::min(size, end_ - begin_);
  const absl::string_view run(buffer_.data() + begin_, count);
  begin_ += count;
  return run;
}

}  // namespace pawl
