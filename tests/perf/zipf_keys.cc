#include "tests/perf/zipf_keys.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "client_lib/base/partitioner.h"

namespace pawl {

uint64_t ZipfKeys::KeyOf(uint64_t rank) { return Mix64(rank + 1); }

std::vector<uint64_t> ZipfKeys::Distinct(size_t count) {
  absl::flat_hash_set<uint64_t> seen;
  std::vector<uint64_t> keys;
  keys.reserve(count);
  const double log_size = std::log(static_cast<double>(size_) + 1.0);
  while (keys.size() < count) {
    const double u = static_cast<double>(random_() >> 11) * 0x1p-53;
    const auto rank = std::min(static_cast<uint64_t>(std::exp(u * log_size) - 1.0), size_ - 1);
    if (seen.insert(rank).second) keys.push_back(KeyOf(rank));
  }
  return keys;
}

}  // namespace pawl
