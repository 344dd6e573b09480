// What the compiler is told besides the code: targets of vector instructions, and prefetches.
#ifndef PAWL_CLIENT_LIB_BASE_COMPILER_H_
#define PAWL_CLIENT_LIB_BASE_COMPILER_H_

// The macros compile one body of vectorisable code into functions for different machines. The
// caller chooses among them; see server/optimizer/math/isa.h.
#define PAWL_ALWAYS_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__)
#define PAWL_TARGET_AVX2 __attribute__((target("avx2")))
// Without this option GCC uses 256-bit vectors only; clang 14 uses the full width by default.
#if defined(__clang__)
#define PAWL_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define PAWL_TARGET_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#else
#define PAWL_TARGET_AVX2
#define PAWL_TARGET_AVX512
#endif

namespace pawl {

// GCC treats a function that only prefetches as free of side effects and removes its calls. The
// empty asm statement is a side effect. Always inlined, so that sources for different processors
// can use it.

// `address` may be invalid.
PAWL_ALWAYS_INLINE void Prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("" : : "r"(address));
}

// For memory that will be written.
PAWL_ALWAYS_INLINE void PrefetchForWriting(const void* address) {
  __builtin_prefetch(address, 1);
  asm volatile("" : : "r"(address));
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_BASE_COMPILER_H_
