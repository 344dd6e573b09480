// Macros that compile one body of vectorisable code into functions for different machines. The
// caller chooses among them; see server/optimizer/math/isa.h.
#ifndef PAWL_CLIENT_LIB_BASE_VECTOR_TARGETS_H_
#define PAWL_CLIENT_LIB_BASE_VECTOR_TARGETS_H_

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

#endif  // PAWL_CLIENT_LIB_BASE_VECTOR_TARGETS_H_
