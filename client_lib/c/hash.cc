// pawl_hash64. It needs no client.
#include <cstddef>
#include <cstdint>

// Hashes of short strings are faster inline.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "client_lib/c/pawl.h"

void pawl_hash64(const char* bytes, const uint64_t* ends, size_t count, uint64_t seed,
                 uint64_t* hashes) {
  uint64_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    hashes[i] = XXH64(bytes + begin, ends[i] - begin, seed);
    begin = ends[i];
  }
}
