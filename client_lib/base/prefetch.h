// Hints that bring memory into the cache before it is used.
#ifndef PAWL_CLIENT_LIB_BASE_PREFETCH_H_
#define PAWL_CLIENT_LIB_BASE_PREFETCH_H_

namespace pawl {

// GCC treats a function that only prefetches as free of side effects and removes its calls. The
// empty asm statement is a side effect.

// `address` may be invalid.
inline void Prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("" : : "r"(address));
}

// For memory that will be written.
inline void PrefetchForWriting(const void* address) {
  __builtin_prefetch(address, 1);
  asm volatile("" : : "r"(address));
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_PREFETCH_H_
