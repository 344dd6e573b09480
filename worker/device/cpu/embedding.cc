#include "worker/device/cpu/stream.h"

namespace pawl {

void CpuStream::PoolRows(const Entries& entries, PoolOver over, ConstMatrix rows, Matrix pooled) {
  loops_.pool_rows(entries, over, rows, pooled);
}

void CpuStream::PoolRowsBackward(const Entries& entries, PoolOver over, ConstMatrix pooled_gradient,
                                 Matrix rows_gradient) {
  loops_.pool_rows_backward(entries, over, pooled_gradient, rows_gradient);
}

void CpuStream::MaxOfEntries(const Entries& entries, ConstMatrix rows, Matrix largest,
                             uint32_t* chosen) {
  for (size_t f = 0; f < entries.samples * entries.fields; ++f) {
    float* const to =
        largest.data + f / entries.fields * largest.stride + f % entries.fields * rows.columns;
    uint32_t* const entry_of = chosen + f * rows.columns;
    const uint32_t begin = entries.field_begin[f], end = entries.field_begin[f + 1];
    for (size_t c = 0; c < rows.columns; ++c) {
      to[c] = begin == end ? 0 : rows.data[begin * rows.stride + c];
      entry_of[c] = begin == end ? kNoEntry : begin;
    }
    for (uint32_t e = begin + 1; e < end; ++e) {
      for (size_t c = 0; c < rows.columns; ++c) {
        const float value = rows.data[e * rows.stride + c];
        // NaN wins, so that the loss shows it.
        if (!(value > to[c]) && !(value != value)) continue;
        to[c] = value;
        entry_of[c] = e;
      }
    }
  }
}

void CpuStream::MaxOfEntriesBackward(const Entries& entries, ConstMatrix largest_gradient,
                                     const uint32_t* chosen, Matrix rows_gradient) {
  const size_t width = rows_gradient.columns;
  for (size_t f = 0; f < entries.samples * entries.fields; ++f) {
    const float* const from = largest_gradient.data + f / entries.fields * largest_gradient.stride +
                              f % entries.fields * width;
    for (uint32_t e = entries.field_begin[f]; e < entries.field_begin[f + 1]; ++e) {
      for (size_t c = 0; c < width; ++c) {
        rows_gradient.data[e * rows_gradient.stride + c] =
            chosen[f * width + c] == e ? from[c] : 0.0f;
      }
    }
  }
}

}  // namespace pawl
