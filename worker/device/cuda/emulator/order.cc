// order.cu for the emulator: uses the standard library's sort instead of CUB's.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "worker/device/cuda/emulator/emulator.h"
#include "worker/device/cuda/kernels/kernels.h"

namespace pawl::cuda {
namespace {

constexpr size_t kScratchBytes = 1000;

}  // namespace

size_t SortByKeyScratch(size_t, size_t) { return kScratchBytes; }

int SortByKey(const Queue& queue, size_t entries, size_t, const uint32_t* key,
              const uint32_t* entry, void* scratch, size_t scratch_bytes, uint32_t* ordered_key,
              uint32_t* ordered_entry) {
  emulator::Enqueue(queue.stream, dim3(1, 1, 1), dim3(1, 1, 1), 0, [=] {
    std::fill_n(static_cast<char*>(scratch), scratch_bytes, 1);
    std::vector<size_t> order(entries);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [key](size_t a, size_t b) { return key[a] < key[b]; });
    for (size_t i = 0; i < entries; ++i) {
      ordered_key[i] = key[order[i]];
      ordered_entry[i] = entry[order[i]];
    }
  });
  return 0;
}

}  // namespace pawl::cuda
