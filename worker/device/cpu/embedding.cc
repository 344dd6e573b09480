#include <algorithm>

#include "worker/device/cpu/stream.h"

namespace pawl {
namespace {

// Calls visit(sample, group, first entry, end) for each sum, in order.
template <typename Visit>
void ForEachSum(const Entries& entries, PoolOver over, Visit visit) {
  const size_t groups = over == PoolOver::kField ? entries.fields : 1;
  const size_t fields_in_group = over == PoolOver::kField ? 1 : entries.fields;
  const uint32_t* begin = entries.field_begin;
  for (size_t s = 0; s < entries.samples; ++s) {
    for (size_t g = 0; g < groups; ++g) {
      visit(s, g, begin[0], begin[fields_in_group]);
      begin += fields_in_group;
    }
  }
}

// kWidth 0: any width. The common widths are constants, so that the compiler can unroll the inner
// loops.
template <size_t kWidth>
void Pool(const Entries& entries, PoolOver over, const float* rows, size_t any_width,
          Matrix pooled) {
  const size_t width = kWidth > 0 ? kWidth : any_width;
  ForEachSum(entries, over, [&](size_t s, size_t g, uint32_t e, uint32_t end) {
    float* __restrict sum = pooled.data + s * pooled.stride + g * width;
    if (e == end) {
      std::fill_n(sum, width, 0.0f);
      return;
    }
    const float* __restrict row = rows + entries.entry_key[e] * width;
    float value = entries.entry_value[e];
    for (size_t d = 0; d < width; ++d) sum[d] = value * row[d];
    while (++e < end) {
      row = rows + entries.entry_key[e] * width;
      value = entries.entry_value[e];
      for (size_t d = 0; d < width; ++d) sum[d] += value * row[d];
    }
  });
}

template <size_t kWidth>
void PoolBackward(const Entries& entries, PoolOver over, ConstMatrix pooled_gradient,
                  size_t any_width, float* rows_gradient) {
  const size_t width = kWidth > 0 ? kWidth : any_width;
  std::fill_n(rows_gradient, entries.keys * width, 0.0f);
  ForEachSum(entries, over, [&](size_t s, size_t g, uint32_t e, uint32_t end) {
    const float* __restrict gradient =
        pooled_gradient.data + s * pooled_gradient.stride + g * width;
    for (; e < end; ++e) {
      float* __restrict row = rows_gradient + entries.entry_key[e] * width;
      const float value = entries.entry_value[e];
      for (size_t d = 0; d < width; ++d) row[d] += value * gradient[d];
    }
  });
}

}  // namespace

void CpuStream::PoolRows(const Entries& entries, PoolOver over, const float* rows, size_t width,
                         Matrix pooled) {
  switch (width) {
    case 1:
      return Pool<1>(entries, over, rows, width, pooled);
    case 8:
      return Pool<8>(entries, over, rows, width, pooled);
    case 16:
      return Pool<16>(entries, over, rows, width, pooled);
    default:
      return Pool<0>(entries, over, rows, width, pooled);
  }
}

void CpuStream::PoolRowsBackward(const Entries& entries, PoolOver over, ConstMatrix pooled_gradient,
                                 size_t width, float* rows_gradient) {
  switch (width) {
    case 1:
      return PoolBackward<1>(entries, over, pooled_gradient, width, rows_gradient);
    case 8:
      return PoolBackward<8>(entries, over, pooled_gradient, width, rows_gradient);
    case 16:
      return PoolBackward<16>(entries, over, pooled_gradient, width, rows_gradient);
    default:
      return PoolBackward<0>(entries, over, pooled_gradient, width, rows_gradient);
  }
}

}  // namespace pawl
