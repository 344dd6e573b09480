#include "client_lib/process/malloc_tuning.h"

#include <malloc.h>

namespace pawl {
namespace {

constexpr int kMaxKeptBytes = 128 << 20;
// Larger blocks are mapped individually; this is the largest value that glibc accepts.
constexpr int kMmapThresholdBytes = 32 << 20;

}  // namespace

void KeepFreedMemory() {
#if defined(__GLIBC__)
  mallopt(M_TRIM_THRESHOLD, kMaxKeptBytes);
  mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
#endif
}

}  // namespace pawl
