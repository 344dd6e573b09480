#include "worker/device/cuda/kernels/launch.h"

namespace pawl::cuda {
namespace {

// A row of threads computes one sum: thread x the x-th float (or group of four), from the first
// entry to the last.
template <typename V>
__global__ void __launch_bounds__(kThreads)
    PoolRowsKernel(uint32_t sums, uint32_t groups, uint32_t fields_in_group,
                   const uint32_t* __restrict__ field_begin, const uint32_t* __restrict__ keys,
                   const float* __restrict__ values, const V* __restrict__ rows, size_t row_stride,
                   uint32_t width, V* __restrict__ pooled, size_t stride) {
  for (uint32_t sum = blockIdx.x * blockDim.y + threadIdx.y; sum < sums;
       sum += gridDim.x * blockDim.y) {
    const uint32_t sample = groups == 1 ? sum : sum / groups;
    V* const out = pooled + sample * stride + size_t{sum - sample * groups} * width;
    const uint32_t begin = field_begin[size_t{sum} * fields_in_group];
    const uint32_t end = field_begin[size_t{sum + 1} * fields_in_group];
    for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) {
      V total = Zeroed(static_cast<V*>(nullptr));
      if (begin < end) total = Times(values[begin], rows[keys[begin] * row_stride + c]);
#pragma unroll 4
      for (uint32_t e = begin + 1; e < end; ++e) {
        total = Plus(total, Times(values[e], rows[keys[e] * row_stride + c]));
      }
      out[c] = total;
    }
  }
}

struct ListOf {
  const uint32_t* field_begin;
  uint32_t* entry;
  uint32_t* field;
  __device__ void operator()(size_t, size_t f) const {
    for (uint32_t e = field_begin[f]; e < field_begin[f + 1]; ++e) {
      entry[e] = e;
      field[e] = static_cast<uint32_t>(f);
    }
  }
};

// Position i of the order, and one behind the last, starts the keys after that of the previous
// position up to its own.
struct IndexOf {
  size_t entries;
  uint32_t keys;
  const uint32_t* field;
  const float* value;
  const uint32_t* ordered_key;
  const uint32_t* ordered_entry;
  uint32_t* key_begin;
  uint32_t* ordered_field;
  float* ordered_value;
  __device__ void operator()(size_t, size_t i) const {
    const uint32_t first = i == 0 ? 0 : ordered_key[i - 1] + 1;
    const uint32_t last = i == entries ? keys : ordered_key[i];
    for (uint32_t k = first; k <= last; ++k) key_begin[k] = static_cast<uint32_t>(i);
    if (i == entries) return;
    const uint32_t e = ordered_entry[i];
    ordered_field[i] = field[e];
    ordered_value[i] = value[e];
  }
};

// The gradient of the sums to which entries contributed, by the entries' fields.
template <typename V>
struct PooledGradient {
  const V* data;
  size_t stride;
  // Fields of a sample, and in one of its sums. PoolOver::kSample: one sum over all fields.
  uint32_t fields;
  uint32_t fields_in_sum;
  uint32_t width;

  __device__ const V* At(uint32_t field) const {
    const uint32_t sample = field / fields;
    const uint32_t sum = fields_in_sum == 1 ? field - sample * fields : 0;
    return data + sample * stride + size_t{sum} * width;
  }
};

// Sums positions `begin` to `end` of the order, in order.
template <typename V>
__device__ inline V SumOfPlaces(const PooledGradient<V>& gradient,
                                const uint32_t* __restrict__ field, const float* __restrict__ value,
                                uint32_t begin, uint32_t end, uint32_t c) {
  V sum = Zeroed(static_cast<V*>(nullptr));
#pragma unroll 4
  for (uint32_t i = begin; i < end; ++i) sum = Plus(sum, Times(value[i], gradient.At(field[i])[c]));
  return sum;
}

// A key with more entries than this is summed in parts: its entries in each tile of this many
// positions of the order. All others are summed from the first entry to the last.
constexpr uint32_t kTile = 64;

template <typename V>
__global__ void __launch_bounds__(kThreads)
    SumShortKeysKernel(PooledGradient<V> gradient, EntryOrder order, uint32_t keys,
                       V* __restrict__ rows_gradient, size_t row_stride) {
  for (uint32_t k = blockIdx.x * blockDim.y + threadIdx.y; k < keys; k += gridDim.x * blockDim.y) {
    const uint32_t begin = order.key_begin[k], end = order.key_begin[k + 1];
    if (end - begin > kTile) continue;
    for (uint32_t c = threadIdx.x; c < gradient.width; c += blockDim.x) {
      rows_gradient[k * row_stride + c] =
          SumOfPlaces(gradient, order.field, order.value, begin, end, c);
    }
  }
}

// At most two keys in a tile are longer than the tile: parts[2 t] belongs to the one of its first
// position, parts[2 t + 1] to one that starts behind its first position.
template <typename V>
__global__ void __launch_bounds__(kThreads)
    SumTilesKernel(PooledGradient<V> gradient, EntryOrder order, uint32_t entries, uint32_t tiles,
                   V* __restrict__ parts) {
  for (uint32_t t = blockIdx.x * blockDim.y + threadIdx.y; t < tiles; t += gridDim.x * blockDim.y) {
    const uint32_t begin = t * kTile;
    const uint32_t end = begin + kTile < entries ? begin + kTile : entries;
    const uint32_t first_key = order.key[begin], last_key = order.key[end - 1];
    const uint32_t first_begin = order.key_begin[first_key],
                   first_end = order.key_begin[first_key + 1];
    const uint32_t last_begin = order.key_begin[last_key], last_end = order.key_begin[last_key + 1];
    const bool has_first = first_end - first_begin > kTile;
    const bool has_last = last_begin > begin && last_end - last_begin > kTile;
    if (!has_first && !has_last) continue;
    for (uint32_t c = threadIdx.x; c < gradient.width; c += blockDim.x) {
      V* const part = parts + size_t{t} * 2 * gradient.width + c;
      if (has_first) {
        part[0] = SumOfPlaces(gradient, order.field, order.value, begin,
                              first_end < end ? first_end : end, c);
      }
      if (has_last)
        part[gradient.width] = SumOfPlaces(gradient, order.field, order.value, last_begin, end, c);
    }
  }
}

// A block sums the parts of the long key that starts in its tile, if any: each row of threads every
// blockDim.y-th part, then pairs of rows, halving their number.
template <typename V>
__global__ void __launch_bounds__(kThreads)
    JoinTilesKernel(EntryOrder order, uint32_t entries, uint32_t tiles, uint32_t width,
                    const V* __restrict__ parts, V* __restrict__ rows_gradient, size_t row_stride) {
  __shared__ V sums[kThreads];
  for (uint32_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const uint32_t begin = t * kTile;
    const uint32_t end = begin + kTile < entries ? begin + kTile : entries;
    const uint32_t k = order.key[end - 1];
    const uint32_t key_begin = order.key_begin[k], key_end = order.key_begin[k + 1];
    // The same for all threads.
    if (key_begin < begin || key_end - key_begin <= kTile) continue;
    const uint32_t more = (key_end - 1) / kTile - t;
    const unsigned at = threadIdx.y * blockDim.x + threadIdx.x;
    for (uint32_t c0 = 0; c0 < width; c0 += blockDim.x) {
      const uint32_t c = c0 + threadIdx.x;
      V sum = Zeroed(static_cast<V*>(nullptr));
      if (c < width) {
#pragma unroll 4
        for (uint32_t i = threadIdx.y; i <= more; i += blockDim.y) {
          const size_t part = size_t{t + i} * 2 + (i == 0 && key_begin > begin ? 1 : 0);
          sum = Plus(sum, parts[part * width + c]);
        }
      }
      sums[at] = sum;
      for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) sums[at] = Plus(sums[at], sums[at + half * blockDim.x]);
      }
      if (threadIdx.y == 0 && c < width) rows_gradient[k * row_stride + c] = sums[at];
      // Before the next columns replace them.
      __syncthreads();
    }
  }
}

constexpr uint32_t kNoEntry = ~uint32_t{0};

struct MaxOf {
  uint32_t fields;
  const uint32_t* field_begin;
  const float* rows;
  size_t rows_stride;
  size_t width;
  float* largest;
  size_t stride;
  uint32_t* chosen;
  // f: sample * fields + field
  __device__ void operator()(size_t f, size_t c) const {
    float value = 0;
    uint32_t entry = kNoEntry;
    for (uint32_t e = field_begin[f]; e < field_begin[f + 1]; ++e) {
      const float other = rows[e * rows_stride + c];
      // NaN wins, so that the loss shows it.
      if (entry != kNoEntry && !(other > value) && other == other) continue;
      value = other;
      entry = e;
    }
    largest[f / fields * stride + f % fields * width + c] = value;
    chosen[f * width + c] = entry;
  }
};

struct MaxBackwardOf {
  uint32_t fields;
  const uint32_t* field_begin;
  const float* gradient;
  size_t gradient_stride;
  size_t width;
  const uint32_t* chosen;
  float* rows;
  size_t stride;
  __device__ void operator()(size_t f, size_t c) const {
    const float of_largest = gradient[f / fields * gradient_stride + f % fields * width + c];
    for (uint32_t e = field_begin[f]; e < field_begin[f + 1]; ++e)
      rows[e * stride + c] = chosen[f * width + c] == e ? of_largest : 0.0f;
  }
};

size_t FieldsInSum(const Entries& entries, PoolOver over) {
  return over == PoolOver::kField ? 1 : entries.fields;
}

template <typename V>
void PoolAs(const Queue& queue, const Entries& entries, PoolOver over, ConstMatrix rows,
            Matrix pooled) {
  constexpr size_t kFloats = sizeof(V) / sizeof(float);
  const size_t groups = over == PoolOver::kField ? entries.fields : 1;
  const size_t sums = entries.samples * groups;
  const size_t width = rows.columns / kFloats;
  const unsigned x = PowerOfTwo(width, kWarp);
  Launch(queue, dim3(Blocks(queue, sums, kThreads / x)), dim3(x, kThreads / x, 1), 0,
         PoolRowsKernel<V>, static_cast<uint32_t>(sums), static_cast<uint32_t>(groups),
         static_cast<uint32_t>(FieldsInSum(entries, over)), entries.field_begin, entries.entry_key,
         entries.entry_value, reinterpret_cast<const V*>(rows.data), rows.stride / kFloats,
         static_cast<uint32_t>(width), reinterpret_cast<V*>(pooled.data), pooled.stride / kFloats);
}

template <typename V>
void PoolBackwardAs(const Queue& queue, const Entries& entries, const EntryOrder& order,
                    PoolOver over, ConstMatrix pooled_gradient, float* scratch,
                    Matrix rows_gradient) {
  constexpr size_t kFloats = sizeof(V) / sizeof(float);
  const auto width = static_cast<uint32_t>(rows_gradient.columns / kFloats);
  const auto keys = static_cast<uint32_t>(entries.keys);
  const auto count = static_cast<uint32_t>(entries.entries);
  const auto tiles = static_cast<uint32_t>(DivideUp(count, kTile));
  const PooledGradient<V> gradient{reinterpret_cast<const V*>(pooled_gradient.data),
                                   pooled_gradient.stride / kFloats,
                                   static_cast<uint32_t>(entries.fields),
                                   static_cast<uint32_t>(FieldsInSum(entries, over)), width};
  V* const parts = reinterpret_cast<V*>(scratch);
  V* const result = reinterpret_cast<V*>(rows_gradient.data);
  const size_t stride = rows_gradient.stride / kFloats;
  const unsigned x = PowerOfTwo(width, kWarp);
  const dim3 block(x, kThreads / x, 1);
  Launch(queue, dim3(Blocks(queue, keys, block.y)), block, 0, SumShortKeysKernel<V>, gradient,
         order, keys, result, stride);
  if (count <= kTile) return;
  Launch(queue, dim3(Blocks(queue, tiles, block.y)), block, 0, SumTilesKernel<V>, gradient, order,
         count, tiles, parts);
  Launch(queue, dim3(Blocks(queue, tiles, 1)), block, 0, JoinTilesKernel<V>, order, count, tiles,
         width, static_cast<const V*>(parts), result, stride);
}

}  // namespace

void PoolRows(const Queue& queue, const Entries& entries, PoolOver over, ConstMatrix rows,
              Matrix pooled) {
  if (pooled.rows == 0 || pooled.columns == 0) return;
  if (rows.columns % 4 == 0 && IsAligned(rows) && IsAligned(pooled)) {
    PoolAs<float4>(queue, entries, over, rows, pooled);
  } else {
    PoolAs<float>(queue, entries, over, rows, pooled);
  }
}

void MaxOfEntries(const Queue& queue, const Entries& entries, ConstMatrix rows, Matrix largest,
                  uint32_t* chosen) {
  ForEach(queue, entries.samples * entries.fields, rows.columns,
          MaxOf{static_cast<uint32_t>(entries.fields), entries.field_begin, rows.data, rows.stride,
                rows.columns, largest.data, largest.stride, chosen});
}

void MaxOfEntriesBackward(const Queue& queue, const Entries& entries, ConstMatrix largest_gradient,
                          const uint32_t* chosen, Matrix rows_gradient) {
  ForEach(queue, entries.samples * entries.fields, rows_gradient.columns,
          MaxBackwardOf{static_cast<uint32_t>(entries.fields), entries.field_begin,
                        largest_gradient.data, largest_gradient.stride, rows_gradient.columns,
                        chosen, rows_gradient.data, rows_gradient.stride});
}

void ListEntries(const Queue& queue, const Entries& entries, uint32_t* entry, uint32_t* field) {
  ForEach(queue, 1, entries.samples * entries.fields, ListOf{entries.field_begin, entry, field});
}

void IndexOrder(const Queue& queue, const Entries& entries, const uint32_t* field,
                const uint32_t* ordered_key, const uint32_t* ordered_entry, uint32_t* key_begin,
                uint32_t* ordered_field, float* ordered_value) {
  ForEach(queue, 1, entries.entries + 1,
          IndexOf{entries.entries, static_cast<uint32_t>(entries.keys), field, entries.entry_value,
                  ordered_key, ordered_entry, key_begin, ordered_field, ordered_value});
}

size_t PoolRowsBackwardScratch(size_t entries, size_t width) {
  return entries <= kTile ? 0 : DivideUp(entries, kTile) * 2 * width;
}

void PoolRowsBackward(const Queue& queue, const Entries& entries, const EntryOrder& order,
                      PoolOver over, ConstMatrix pooled_gradient, float* scratch,
                      Matrix rows_gradient) {
  if (rows_gradient.rows == 0 || rows_gradient.columns == 0) return;
  if (rows_gradient.columns % 4 == 0 && IsAligned(pooled_gradient) && IsAligned(rows_gradient) &&
      IsAligned(scratch)) {
    PoolBackwardAs<float4>(queue, entries, order, over, pooled_gradient, scratch, rows_gradient);
  } else {
    PoolBackwardAs<float>(queue, entries, order, over, pooled_gradient, scratch, rows_gradient);
  }
}

}  // namespace pawl::cuda
