// The distinct keys of a batch, in the order in which pushes send them.
#ifndef PAWL_CLIENT_LIB_C_DISTINCT_KEYS_H_
#define PAWL_CLIENT_LIB_C_DISTINCT_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace pawl::c {

// Finds the same keys in the same order as KeyGroups: by partition, within a partition in the order
// of their first occurrence. It is faster where keys repeat often, because it computes the
// partitions of distinct keys only. Reusable, to save allocations; not thread-safe.
class DistinctKeys {
 public:
  // The memory that is kept for the next batch.
  static constexpr size_t kMaxKeptBytes = size_t{256} << 20;

  DistinctKeys();

  // Writes the distinct keys to `distinct`, and for each key `first` plus its position there to
  // `places`; both have room for all keys. Returns the number of distinct keys.
  // REQUIRES: partitions > 0, keys.size() < 2^31.
  size_t Find(uint32_t table, absl::Span<const uint64_t> keys, uint32_t partitions, int64_t first,
              uint64_t* distinct, int64_t* places);

  size_t kept_bytes() const;

 private:
  // Makes all slots empty, at least two for each key.
  void Clear(size_t keys);

  // Random, so that keys cannot be chosen to have one slot.
  const uint64_t salt_;
  // The numbers of distinct keys, counted from 1; 0: the slot is empty.
  std::vector<uint32_t> slots_;
  size_t slot_mask_ = 0;
  // By number, from 0.
  std::vector<uint64_t> keys_;
  std::vector<uint32_t> partition_of_;
  std::vector<uint32_t> position_of_;
  // By partition.
  std::vector<uint32_t> end_of_;
};

}  // namespace pawl::c

#endif  // PAWL_CLIENT_LIB_C_DISTINCT_KEYS_H_
