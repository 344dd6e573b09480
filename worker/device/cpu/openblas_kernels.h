// Which kernels OpenBLAS computes with.
//
// OpenBLAS picks its kernels by a list of processor models when it is loaded, and takes its SSE3
// kernels on a model that is newer than the list. The environment variable OPENBLAS_CORETYPE
// overrides the list, and is read before main runs: a process that wants other kernels sets the
// variable and executes itself again.
#ifndef PAWL_WORKER_DEVICE_CPU_OPENBLAS_KERNELS_H_
#define PAWL_WORKER_DEVICE_CPU_OPENBLAS_KERNELS_H_

#include <string>

namespace pawl {

// What a processor has, and what the operating system saves of it.
struct VectorFeatures {
  bool avx2 = false;    // and FMA
  bool avx512 = false;  // F, BW, DQ, VL and CD
};

VectorFeatures DetectVectorFeatures();

// The value of OPENBLAS_CORETYPE that suits a processor with `features` for which OpenBLAS has
// chosen the kernels `chosen` (a name from openblas_get_corename). Empty if they suit it already.
std::string BetterCoreType(const std::string& chosen, const VectorFeatures& features);

// Executes the process again with better kernels if there are any and the user has not set
// OPENBLAS_CORETYPE; returns otherwise. The process keeps its id, open files and arguments.
// REQUIRES: main has done nothing yet.
void RestartWithBetterOpenBlasKernels(char** argv);

// For the log: the name of the kernels in use.
std::string OpenBlasKernels();

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CPU_OPENBLAS_KERNELS_H_
