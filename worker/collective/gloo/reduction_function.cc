#include "worker/collective/gloo/reduction_function.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace pawl {
namespace {

template <typename T, Reduction kReduction>
void Reduce(void* output, const void* a, const void* b, size_t count) {
  // Unsigned integers wrap around.
  using Value = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  T* const to = static_cast<T*>(output);
  const T* const left = static_cast<const T*>(a);
  const T* const right = static_cast<const T*>(b);
  // Input and output are identical or disjoint, so no element depends on another's result.
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (size_t i = 0; i < count; ++i) {
    if constexpr (kReduction == Reduction::kSum) {
      to[i] = static_cast<T>(static_cast<Value>(left[i]) + static_cast<Value>(right[i]));
    } else {
      to[i] = std::min(left[i], right[i]);
    }
  }
}

template <typename T>
ReductionFunction Find(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return &Reduce<T, Reduction::kSum>;
    case Reduction::kMin:
      return &Reduce<T, Reduction::kMin>;
  }
  return nullptr;
}

}  // namespace

ReductionFunction FindReductionFunction(CollectiveType type, Reduction reduction) {
  switch (type) {
    case CollectiveType::kInt64:
      return Find<int64_t>(reduction);
    case CollectiveType::kFloat32:
      return Find<float>(reduction);
  }
  return nullptr;
}

}  // namespace pawl
