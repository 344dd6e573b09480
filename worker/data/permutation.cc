#include "worker/data/permutation.h"

#include <cmath>

#include "client_lib/base/partitioner.h"
#include "client_lib/base/random.h"

namespace pawl {
namespace {

// Independent computations that the processor overlaps.
constexpr size_t kTogether = 8;

// A pseudo-random number in [0, bound).
inline uint64_t Round(uint64_t half, uint64_t round_key, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(Mix64(half + round_key)) * bound) >>
                               64);
}

inline uint64_t AddModulo(uint64_t x, uint64_t y, uint64_t modulus) {
  const uint64_t sum = x + y;
  return sum >= modulus ? sum - modulus : sum;
}

// The smallest integer whose square is at least x.
uint64_t CeilSqrt(uint64_t x) {
  uint64_t root = static_cast<uint64_t>(std::sqrt(static_cast<double>(x)));
  while (root * root >= x && root > 0) --root;
  while (root * root < x) ++root;
  return root;
}

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t stream)
    : size_(size), a_(CeilSqrt(size)), b_((size + a_ - 1) / a_) {
  for (uint64_t round = 0; round < kRounds; round += 2) {
    const PhiloxCounter random = Philox4x32(stream, round, seed);
    round_keys_[round] = random[0] | uint64_t{random[1]} << 32;
    round_keys_[round + 1] = random[2] | uint64_t{random[3]} << 32;
  }
}

uint64_t Permutation::Pass(uint64_t x) const {
  uint64_t left = x % a_;
  uint64_t right = x / a_;
  for (int round = 0; round < kRounds; round += 2) {
    left = AddModulo(left, Round(right, round_keys_[round], a_), a_);
    right = AddModulo(right, Round(left, round_keys_[round + 1], b_), b_);
  }
  return right * a_ + left;
}

uint64_t Permutation::operator[](uint64_t position) const {
  uint64_t x = position;
  do {
    x = Pass(x);
  } while (x >= size_);
  return x;
}

void Permutation::Fill(uint64_t first, size_t count, uint64_t* to) const {
  size_t i = 0;
  for (; i + kTogether <= count; i += kTogether) {
    std::array<uint64_t, kTogether> left, right;
    for (size_t j = 0; j < kTogether; ++j) {
      left[j] = (first + i + j) % a_;
      right[j] = (first + i + j) / a_;
    }
    for (int round = 0; round < kRounds; round += 2) {
      for (size_t j = 0; j < kTogether; ++j)
        left[j] = AddModulo(left[j], Round(right[j], round_keys_[round], a_), a_);
      for (size_t j = 0; j < kTogether; ++j)
        right[j] = AddModulo(right[j], Round(left[j], round_keys_[round + 1], b_), b_);
    }
    for (size_t j = 0; j < kTogether; ++j) {
      uint64_t x = right[j] * a_ + left[j];
      while (x >= size_) x = Pass(x);
      to[i + j] = x;
    }
  }
  for (; i < count; ++i) to[i] = (*this)[first + i];
}

}  // namespace pawl
