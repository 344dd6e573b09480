// The mapping of keys to partitions. It is part of the wire protocol: all clients must compute it
// alike, so it never changes.
#ifndef PAWL_CLIENT_LIB_BASE_PARTITIONER_H_
#define PAWL_CLIENT_LIB_BASE_PARTITIONER_H_

#include <cstdint>

namespace pawl {

// Elements per block of a dense tensor; the last block may have fewer.
inline constexpr uint64_t kBlockElements = 65536;
// The number of blocks of a tensor with `elements` elements, and the number of elements of one
// block. REQUIRES: block < BlockCount(elements).
inline constexpr uint64_t BlockCount(uint64_t elements) {
  return (elements + kBlockElements - 1) / kBlockElements;
}
inline constexpr uint64_t BlockElements(uint64_t elements, uint64_t block) {
  const uint64_t left = elements - block * kBlockElements;
  return left < kBlockElements ? left : kBlockElements;
}

// A bijection of 64-bit integers that separates neighbours: the finalizer of SplitMix64 (Steele,
// Lea and Flood 2014, "Fast splittable pseudorandom number generators", figure 17).
inline constexpr uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The partition of `key` in the table with id `table`. REQUIRES: partitions > 0.
inline constexpr uint32_t PartitionOf(uint32_t table, uint64_t key, uint32_t partitions) {
  const uint64_t mixed = Mix64(key + table * 0x9e3779b97f4a7c15u);
  // Most jobs have a power of two, which needs no division.
  if ((partitions & (partitions - 1)) == 0) return static_cast<uint32_t>(mixed & (partitions - 1));
  return static_cast<uint32_t>(mixed % partitions);
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_PARTITIONER_H_
