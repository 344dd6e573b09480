// A pseudo-random order of 0 .. n-1 that needs no memory.
#ifndef PAWL_WORKER_DATA_PERMUTATION_H_
#define PAWL_WORKER_DATA_PERMUTATION_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace pawl {

// A bijection of [0, size), determined by (seed, stream). Runs are repeatable only if the function
// never changes.
//
// A Feistel network over [0, a) x [0, b) with a * b >= size (Black and Rogaway 2002, "Ciphers with
// arbitrary finite domains", section 5). Results outside [0, size) are fed through it again until
// they fall inside. a and b are close to the square root of size, so that this is rare.
//
// Immutable, hence thread-safe.
class Permutation {
 public:
  // REQUIRES: 1 <= size <= 2^62.
  Permutation(uint64_t size, uint64_t seed, uint64_t stream);

  uint64_t size() const { return size_; }

  // REQUIRES: position < size().
  uint64_t operator[](uint64_t position) const;
  // to[i] = the result for position first + i, in less time for each. REQUIRES: first + count <=
  // size().
  void Fill(uint64_t first, size_t count, uint64_t* to) const;

 private:
  // Fewer rounds leave small sizes visibly uneven (measured by permutation_test.cc).
  static constexpr int kRounds = 8;

  // One pass through the network.
  uint64_t Pass(uint64_t x) const;

  uint64_t size_;
  uint64_t a_;
  uint64_t b_;
  std::array<uint64_t, kRounds> round_keys_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_PERMUTATION_H_
