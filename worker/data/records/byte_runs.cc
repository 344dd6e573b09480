#include "worker/data/records/byte_runs.h"

#include <algorithm>
#include <cstring>

#include "client_lib/base/status_macros.h"

namespace pawl {

absl::StatusOr<absl::string_view> ByteRuns::Read(size_t size) {
  while (end_ - begin_ < size) {
    if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
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
