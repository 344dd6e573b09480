// Compiled with -mavx512f -mfma.
#include <immintrin.h>

#include "worker/device/cpu/gemm/panel_kernel_impl.h"

namespace pawl {
namespace {

struct Avx512 {
  using Type = __m512;
  using Mask = __mmask16;
  static constexpr size_t kFloats = 16;
  static Type Zero() { return _mm512_setzero_ps(); }
  static Type Set(float x) { return _mm512_set1_ps(x); }
  static Type Load(const float* x) { return _mm512_loadu_ps(x); }
  static Type LoadPart(Mask mask, const float* x) { return _mm512_maskz_loadu_ps(mask, x); }
  static void Store(float* to, Type x) { _mm512_storeu_ps(to, x); }
  static void StorePart(Mask mask, float* to, Type x) { _mm512_mask_storeu_ps(to, mask, x); }
  static Type Multiply(Type x, Type y) { return _mm512_mul_ps(x, y); }
  static Type Add(Type x, Type y) { return _mm512_add_ps(x, y); }
  // The maximum is the second operand if that is NaN or both are 0.
  // Masked, because gcc 12 takes _mm512_max_ps for one with an uninitialized operand.
  static Type Relu(Type x) { return _mm512_maskz_max_ps(0xffff, Zero(), x); }
  static Type Fma(Type x, Type y, Type z) { return _mm512_fmadd_ps(x, y, z); }
  static Mask First(size_t n) { return static_cast<Mask>((1u << n) - 1); }
};

// 24 sums of the 32 registers; with fewer vectors a row, more rows hide the latency of a sum.
void Multiply(const PanelProduct& product) {
  switch ((product.columns + 15) / 16) {
    case 1:
      return MultiplyRows<Avx512, 12, 1>(product);
    case 2:
      return MultiplyRows<Avx512, 12, 2>(product);
    case 3:
      return MultiplyRows<Avx512, 8, 3>(product);
    default:
      return MultiplyRows<Avx512, 6, 4>(product);
  }
}

}  // namespace

extern const PanelKernel kAvx512PanelKernel = {64, 16, Multiply};

}  // namespace pawl
