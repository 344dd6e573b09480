#include "worker/data/feature_key.h"

// Hashes of short strings are faster inline.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <charconv>

namespace pawl {

// Crossed keys are hashed in their memory representation.
static_assert(std::endian::native == std::endian::little);

FeatureKey::FeatureKey(absl::string_view feature)
    : seed_(XXH64(feature.data(), feature.size(), 0)) {}

uint64_t FeatureKey::OfCategory(absl::string_view category) const {
  return XXH64(category.data(), category.size(), seed_);
}

uint64_t FeatureKey::OfBucket(int64_t bucket) const {
  char text[20];  // the longest number: -9223372036854775808
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), bucket);
  return XXH64(text, static_cast<size_t>(end.ptr - text), seed_);
}

uint64_t FeatureKey::OfHashed(uint64_t key, uint64_t buckets) const {
  char text[20];  // the longest number: 18446744073709551615
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), key % buckets);
  return XXH64(text, static_cast<size_t>(end.ptr - text), seed_);
}

uint64_t FeatureKey::OfCross(absl::Span<const uint64_t> keys) const {
  return XXH64(keys.data(), keys.size() * sizeof(uint64_t), seed_);
}

}  // namespace pawl
