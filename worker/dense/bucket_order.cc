#include "worker/dense/bucket_order.h"

#include <algorithm>
#include <iterator>

namespace pawl {

std::optional<size_t> BucketOrder::Next(size_t ready_from) const {
  const auto ready =
      left_.begin() + static_cast<std::ptrdiff_t>(std::min(ready_from, left_.size()));
  if (const auto first = std::find(ready, left_.end(), true); first != left_.end())
    return first - left_.begin();
  const auto last = std::find(left_.rbegin(), left_.rend(), true);
  if (last == left_.rend()) return std::nullopt;
  return std::distance(last, left_.rend()) - 1;
}

}  // namespace pawl
