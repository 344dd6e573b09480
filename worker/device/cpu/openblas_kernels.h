// Chooses the kernels of OpenBLAS.
//
// OpenBLAS picks its kernels by a list of processor models when it is loaded, and uses its SSE3
// kernels on a model that is newer than the list. The environment variable OPENBLAS_CORETYPE
// overrides the list, but is read before main runs. A process that needs other kernels therefore
// sets the variable and executes itself again.
#ifndef PAWL_WORKER_DEVICE_CPU_OPENBLAS_KERNELS_H_
#define PAWL_WORKER_DEVICE_CPU_OPENBLAS_KERNELS_H_

#include <string>

namespace pawl {

// Features that the processor has and the operating system supports.
struct VectorFeatures {
  bool avx2 = false;    // and FMA
  bool avx512 = false;  // F, BW, DQ, VL and CD
};

VectorFeatures DetectVectorFeatures();

// The value of OPENBLAS_CORETYPE for a processor with `features` on which OpenBLAS has chosen the
// kernels `chosen` (a name from openblas_get_corename). Empty if the choice is good.
std::string BetterCoreType(const std::string& chosen, const VectorFeatures& features);

// Re-executes the process with better kernels if there are any and the user has not set
// OPENBLAS_CORETYPE; returns otherwise. The process keeps its id, open files and arguments.
// REQUIRES: called first in main.
void RestartWithBetterOpenBlasKernels(char** argv);

// The name of the kernels in use, for the log.
std::string OpenBlasKernels();

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CPU_OPENBLAS_KERNELS_H_
