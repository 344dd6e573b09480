// Keys with the distribution of a recommender's batches: a few are frequent, most are rare.
#ifndef PAWL_TESTS_PERF_ZIPF_KEYS_H_
#define PAWL_TESTS_PERF_ZIPF_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace pawl {

// Draws ranks 0 to size - 1 with probability proportional to 1 / (rank + 1) by inverting the
// continuous distribution, and maps each to a key spread over 64 bits.
class ZipfKeys {
 public:
  ZipfKeys(uint64_t size, uint64_t seed) : size_(size), random_(seed) {}

  // The key of a rank; distinct for distinct ranks.
  static uint64_t KeyOf(uint64_t rank);
  // Returns this many distinct keys in the order of their first draw. REQUIRES: count is well below
  // size.
  std::vector<uint64_t> Distinct(size_t count);

 private:
  const uint64_t size_;
  std::mt19937_64 random_;
};

}  // namespace pawl

#endif  // PAWL_TESTS_PERF_ZIPF_KEYS_H_
