// For processors without AVX2, and the reference of the other kernels' bits.
#include <cmath>

#include "worker/device/cpu/gemm/panel_kernel_impl.h"

namespace pawl {
namespace {

// A vector of one float.
struct Portable {
  using Type = float;
  struct Mask {};
  static constexpr size_t kFloats = 1;
  static Type Zero() { return 0; }
  static Type Set(float x) { return x; }
  static Type Load(const float* x) { return *x; }
  static Type LoadPart(Mask, const float* x) { return *x; }
  static void Store(float* to, Type x) { *to = x; }
  static void StorePart(Mask, float* to, Type x) { *to = x; }
  static Type Multiply(Type x, Type y) { return x * y; }
  static Type Add(Type x, Type y) { return x + y; }
  static Type Relu(Type x) { return x < 0 ? 0 : x; }
  // Rounds once on every processor, if need be in software.
  static Type Fma(Type x, Type y, Type z) { return std::fma(x, y, z); }
  static Mask First(size_t) { return {}; }
};

void Multiply(const PanelProduct& product) {
  switch (product.columns) {
    case 1:
      return MultiplyRows<Portable, 4, 1>(product);
    case 2:
      return MultiplyRows<Portable, 4, 2>(product);
    case 3:
      return MultiplyRows<Portable, 4, 3>(product);
    default:
      return MultiplyRows<Portable, 4, 4>(product);
  }
}

}  // namespace

extern const PanelKernel kPortablePanelKernel = {4, 1, Multiply};

}  // namespace pawl
