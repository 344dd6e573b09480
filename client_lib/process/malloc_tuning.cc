#include "client_lib/process/malloc_tuning.h"

#include <malloc.h>

namespace pawl {
namespace {

constexpr int kMaxKeptBytes = 128 << 20;
// Larger blocks come from the kernel one by one; this is the most that glibc takes.
constexpr int kMmapThresholdBytes = 32 << 20;

}  // namespace

void KeepFreedMemory() {
#if defined(__GLIBC__)
  mallopt(M_TRIM_THRESHOLD, kMaxKeptBytes);
  mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
#endif
}

}  // namespace pawl
