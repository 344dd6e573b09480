// The vector instructions that the kernels use. Results do not depend on them.
#ifndef PAWL_SERVER_OPTIMIZER_MATH_ISA_H_
#define PAWL_SERVER_OPTIMIZER_MATH_ISA_H_

#include <vector>

#include "client_lib/base/compiler.h"

// States that the iterations of the loop are independent, whatever the pointers look like.
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

// The instruction sets of this machine, the widest last.
std::vector<Isa> SupportedIsas();

// The widest one; determined once.
Isa BestIsa();

const char* IsaName(Isa isa);

}  // namespace pawl

#endif  // PAWL_SERVER_OPTIMIZER_MATH_ISA_H_
