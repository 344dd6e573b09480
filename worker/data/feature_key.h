// Maps a category to the key of its rows.
#ifndef PAWL_WORKER_DATA_FEATURE_KEY_H_
#define PAWL_WORKER_DATA_FEATURE_KEY_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace pawl {

// A key is a hash of the feature's name and the category alone, so keys agree between files,
// processes, runs and languages without a shared dictionary. Parameters are stored under them, so
// the functions never change. Some two of n categories share a key with a probability of n^2 /
// 2^65.
//
//   key(feature, category)     = XXH64(category, seed = XXH64(feature, seed = 0))
//   key(feature, bucket)       = key(feature, the bucket's number in decimal)
//   key(feature, hashed to n)  = key(feature, bucket key(feature, category) mod n)
//   key(feature, crossed)      = key(feature, the crossed features' keys, little-endian,
//                                concatenated)
class FeatureKey {
 public:
  explicit FeatureKey(absl::string_view feature);

  uint64_t OfCategory(absl::string_view category) const;
  uint64_t OfBucket(int64_t bucket) const;
  // REQUIRES: buckets > 0.
  uint64_t OfHashed(uint64_t key, uint64_t buckets) const;
  uint64_t OfCross(absl::Span<const uint64_t> keys) const;

 private:
  uint64_t seed_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_FEATURE_KEY_H_
