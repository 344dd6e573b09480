// Compiled with -mavx2 -mfma.
#include <immintrin.h>

#include "worker/device/cpu/gemm/panel_kernel_impl.h"

namespace pawl {
namespace {

struct Avx2 {
  using Type = __m256;
  using Mask = __m256i;
  static constexpr size_t kFloats = 8;
  static Type Zero() { return _mm256_setzero_ps(); }
  static Type Set(float x) { return _mm256_set1_ps(x); }
  static Type Load(const float* x) { return _mm256_loadu_ps(x); }
  static Type LoadPart(Mask mask, const float* x) { return _mm256_maskload_ps(x, mask); }
  static void Store(float* to, Type x) { _mm256_storeu_ps(to, x); }
  static void StorePart(Mask mask, float* to, Type x) { _mm256_maskstore_ps(to, mask, x); }
  static Type Multiply(Type x, Type y) { return _mm256_mul_ps(x, y); }
  static Type Add(Type x, Type y) { return _mm256_add_ps(x, y); }
  // The maximum is the second operand if that is NaN or both are 0.
  static Type Relu(Type x) { return _mm256_max_ps(Zero(), x); }
  static Type Fma(Type x, Type y, Type z) { return _mm256_fmadd_ps(x, y, z); }
  static Mask First(size_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

// 12 sums of the 16 registers.
void Multiply(const PanelProduct& product) {
  if (product.columns <= 8) return MultiplyRows<Avx2, 10, 1>(product);
  MultiplyRows<Avx2, 6, 2>(product);
}

}  // namespace

extern const PanelKernel kAvx2PanelKernel = {16, 8, Multiply};

}  // namespace pawl
