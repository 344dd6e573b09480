// Which vector instructions the kernels use. Results do not depend on it.
#ifndef PAWL_SERVER_OPTIMIZER_ISA_H_
#define PAWL_SERVER_OPTIMIZER_ISA_H_

#include <vector>

// Put a body of kernel code into functions of different targets.
#define PAWL_ALWAYS_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__)
#define PAWL_TARGET_AVX2 __attribute__((target("avx2")))
// GCC would stay at 256 bits without being told; clang 14 takes the full width by itself.
#if defined(__clang__)
#define PAWL_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define PAWL_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#else
#define PAWL_TARGET_AVX2
#define PAWL_TARGET_AVX512
#endif
// The loop's iterations do not depend on each other, whatever the pointers look like.
#if defined(__clang__)
#define PAWL_INDEPENDENT_ITERATIONS
#else
#define PAWL_INDEPENDENT_ITERATIONS _Pragma("GCC ivdep")
#endif

namespace pawl {

enum class Isa {
  kPortable,  // what the compiler may use everywhere
  kAvx2,
  kAvx512,
};

// Those that this machine has, the widest last.
std::vector<Isa> SupportedIsas();

// The widest; found once.
Isa BestIsa();

const char* IsaName(Isa isa);

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_ISA_H_
