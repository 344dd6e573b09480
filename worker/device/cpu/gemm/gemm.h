// Products of float32 matrices with the same bits on every processor.
//
// OpenBLAS sums in an order that depends on the kernels it picks for a processor. Here every
// element of the result is one chain of fused multiply-adds:
//
//   x = beta * c[i][j], or 0 if beta is 0
//   for k = 0, 1, ..., inner - 1:  x = fma(op(a)[i][k], alpha * op(b)[k][j], x)
//   c[i][j] = x
//
// Vector instructions run across elements of the result, never along k, so the AVX-512, AVX2 and
// portable kernels round alike. (If the result has fewer than kNarrow columns and more rows, alpha
// multiplies op(a) instead; this depends on the shape alone.)
#ifndef PAWL_WORKER_DEVICE_CPU_GEMM_GEMM_H_
#define PAWL_WORKER_DEVICE_CPU_GEMM_GEMM_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/device/operands.h"

namespace pawl {

// The instructions of a kernel. The order is that of preference, the best last.
enum class GemmKernel { kPortable, kAvx2, kAvx512 };

// Results with fewer columns are computed transposed, so that vectors run along their rows.
inline constexpr size_t kNarrow = 8;

// The kernels that this processor can run, the best last.
std::vector<GemmKernel> SupportedGemmKernels();

const char* GemmKernelName(GemmKernel kernel);

// "auto" (the best one), "portable", "avx2" or "avx512". INVALID_ARGUMENT for another name and for
// a kernel that this processor cannot run.
absl::StatusOr<GemmKernel> ParseGemmKernel(absl::string_view name);

// The operations after a product, element by element: c[i][j] + bias[j], if there is a bias, then
// the activation. Each is rounded separately.
struct GemmEpilogue {
  const float* bias = nullptr;
  Activation activation = Activation::kLinear;
};

// Computes products in the calling thread and keeps the memory that they need. Not thread-safe.
class Gemm {
 public:
  // The best kernel of this processor.
  Gemm();
  // REQUIRES: SupportedGemmKernels() contains `kernel`.
  explicit Gemm(GemmKernel kernel);

  // c = alpha * op(a) * op(b) + beta * c, rounded as the file's comment says, and then the
  // epilogue. With beta == 0, c may hold anything. REQUIRES: the shapes fit, and c overlaps neither
  // a nor b.
  void Multiply(Transpose transpose_a, Transpose transpose_b, float alpha, ConstMatrix a,
                ConstMatrix b, float beta, Matrix c, const GemmEpilogue& epilogue = {});

 private:
  GemmKernel kernel_;
  std::vector<float> panels_;
  std::vector<float> transposed_;
};

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CPU_GEMM_GEMM_H_
