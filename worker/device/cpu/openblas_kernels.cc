#include "worker/device/cpu/openblas_kernels.h"

#include <cblas.h>

#include <cstdio>
#include <cstdlib>

#include "absl/container/flat_hash_set.h"
#include "client_lib/process/restart.h"

namespace pawl {
namespace {

constexpr char kVariable[] = "OPENBLAS_CORETYPE";

// All other kernels have at least AVX2: newer versions of OpenBLAS add only such kernels.
const absl::flat_hash_set<std::string>& KernelsWithoutAvx2() {
  static const auto* names = new absl::flat_hash_set<std::string>{
      "Unknown",   "Katmai", "Coppermine",  "Northwood", "Prescott",  "Banias",     "Atom",
      "Core2",     "Penryn", "Dunnington",  "Nehalem",   "Athlon",    "Opteron",    "Opteron_SSE3",
      "Barcelona", "Nano",   "Sandybridge", "Bobcat",    "Bulldozer", "Piledriver", "Steamroller"};
  return *names;
}

const absl::flat_hash_set<std::string>& KernelsWithAvx2Only() {
  static const auto* names = new absl::flat_hash_set<std::string>{"Haswell", "Zen", "Excavator"};
  return *names;
}

}  // namespace

VectorFeatures DetectVectorFeatures() {
  VectorFeatures features;
#if defined(__x86_64__)
  __builtin_cpu_init();
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  features.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512cd");
#endif
  return features;
}

std::string BetterCoreType(const std::string& chosen, const VectorFeatures& features) {
  const bool lacks_avx2 = KernelsWithoutAvx2().contains(chosen);
  if (features.avx512 && (lacks_avx2 || KernelsWithAvx2Only().contains(chosen))) return "SKYLAKEX";
  if (features.avx2 && lacks_avx2) return "HASWELL";
  return "";
}

void RestartWithBetterOpenBlasKernels(char** argv) {
  if (std::getenv(kVariable) != nullptr) return;
  const std::string better = BetterCoreType(OpenBlasKernels(), DetectVectorFeatures());
  if (better.empty()) return;
  const absl::Status status = RestartWithVariable(argv, kVariable, better);
  std::fprintf(stderr, "OpenBLAS uses its slow %s kernels: re-executing this program failed: %s\n",
               OpenBlasKernels().c_str(), std::string(status.message()).c_str());
}

std::string OpenBlasKernels() { return openblas_get_corename(); }

}  // namespace pawl
