#include <cub/device/device_radix_sort.cuh>

#include "worker/device/cuda/kernels/launch.h"

namespace pawl::cuda {
namespace {

// The number of bits that distinguish keys below `keys`.
int Bits(size_t keys) {
  int bits = 1;
  while ((size_t{1} << bits) < keys) ++bits;
  return bits;
}

}  // namespace

size_t SortByKeyScratch(size_t entries, size_t keys) {
  size_t bytes = 0;
  const uint32_t* const in = nullptr;
  uint32_t* const out = nullptr;
  // Without memory the call only returns the required size.
  if (cub::DeviceRadixSort::SortPairs(nullptr, bytes, in, out, in, out, static_cast<int>(entries),
                                      0, Bits(keys)) != cudaSuccess) {
    return 0;
  }
  return bytes;
}

// CUB's radix sort is stable, so its result is unique.
int SortByKey(const Queue& queue, size_t entries, size_t keys, const uint32_t* key,
              const uint32_t* entry, void* scratch, size_t scratch_bytes, uint32_t* ordered_key,
              uint32_t* ordered_entry) {
  return cub::DeviceRadixSort::SortPairs(scratch, scratch_bytes, key, ordered_key, entry,
                                         ordered_entry, static_cast<int>(entries), 0, Bits(keys),
                                         queue.stream);
}

}  // namespace pawl::cuda
