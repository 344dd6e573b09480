#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/device/cuda/kernels/kernels.h"
#include "worker/device/cuda/stream.h"

namespace pawl {
namespace {

bool AreCountable(const Entries& entries) {
  return std::max({entries.samples, entries.fields, entries.samples * entries.fields,
                   entries.entries, entries.keys}) < cuda::kMaxEntries;
}

bool AreSame(const Entries& a, const Entries& b) {
  return a.samples == b.samples && a.fields == b.fields && a.entries == b.entries &&
         a.keys == b.keys && a.field_begin == b.field_begin && a.entry_key == b.entry_key &&
         a.entry_value == b.entry_value;
}

// The alignment of the parts of one allocation.
constexpr size_t kAlignment = 256;

}  // namespace

bool CudaStream::OrderEntries(const Entries& entries, cuda::EntryOrder* order) {
  if (records_) {
    // A recording would replay with the order of the current entries, and with memory that the
    // stream keeps.
    Fail(absl::InternalError(absl::StrCat(Where(), ": operations on entries cannot be recorded")));
    return false;
  }
  if (is_ordered_ && AreSame(ordered_, entries)) {
    *order = order_;
    return true;
  }
  is_ordered_ = false;
  const size_t list_bytes =
      (entries.entries * sizeof(uint32_t) + kAlignment - 1) / kAlignment * kAlignment;
  const size_t key_bytes =
      ((entries.keys + 1) * sizeof(uint32_t) + kAlignment - 1) / kAlignment * kAlignment;
  const size_t bytes = 3 * list_bytes + key_bytes;
  if (bytes > order_bytes_) {
    if (order_memory_ != nullptr && !Check(cudaFreeAsync(order_memory_, stream_))) return false;
    order_memory_ = nullptr;
    order_bytes_ = 0;
    void* memory = nullptr;
    if (!Check(cudaMallocFromPoolAsync(&memory, bytes, options_.pool, stream_))) return false;
    order_memory_ = static_cast<char*>(memory);
    order_bytes_ = bytes;
  }
  auto* const key = reinterpret_cast<uint32_t*>(order_memory_);
  auto* const field = reinterpret_cast<uint32_t*>(order_memory_ + list_bytes);
  auto* const value = reinterpret_cast<float*>(order_memory_ + 2 * list_bytes);
  auto* const key_begin = reinterpret_cast<uint32_t*>(order_memory_ + 3 * list_bytes);

  const size_t sort_bytes = cuda::SortByKeyScratch(entries.entries, entries.keys);
  const Scratch scratch(*this, 3 * list_bytes + sort_bytes);
  if (!scratch.ok()) return false;
  char* const lists = static_cast<char*>(scratch.data());
  auto* const entry = reinterpret_cast<uint32_t*>(lists);
  auto* const field_of_entry = reinterpret_cast<uint32_t*>(lists + list_bytes);
  auto* const ordered_entry = reinterpret_cast<uint32_t*>(lists + 2 * list_bytes);
  cuda::ListEntries(queue(), entries, entry, field_of_entry);
  const int sorted = cuda::SortByKey(queue(), entries.entries, entries.keys, entries.entry_key,
                                     entry, lists + 3 * list_bytes, sort_bytes, key, ordered_entry);
  if (!Check(static_cast<cudaError_t>(sorted))) return false;
  cuda::IndexOrder(queue(), entries, field_of_entry, key, ordered_entry, key_begin, field, value);
  if (!Check(cudaGetLastError())) return false;
  order_ = {key_begin, key, field, value};
  ordered_ = entries;
  is_ordered_ = true;
  *order = order_;
  return true;
}

void CudaStream::PoolRows(const Entries& entries, PoolOver over, ConstMatrix rows, Matrix pooled) {
  if (!Begin("PoolRows")) return;
  if (!AreCountable(entries)) {
    return Fail(absl::ResourceExhaustedError(
        absl::StrCat(Where(), ": more than ", cuda::kMaxEntries, " entries")));
  }
  cuda::PoolRows(queue(), entries, over, rows, pooled);
  Launched();
}

void CudaStream::MaxOfEntries(const Entries& entries, ConstMatrix rows, Matrix largest,
                              uint32_t* chosen) {
  if (!Begin("MaxOfEntries")) return;
  cuda::MaxOfEntries(queue(), entries, rows, largest, chosen);
  Launched();
}

void CudaStream::MaxOfEntriesBackward(const Entries& entries, ConstMatrix largest_gradient,
                                      const uint32_t* chosen, Matrix rows_gradient) {
  if (!Begin("MaxOfEntriesBackward")) return;
  cuda::MaxOfEntriesBackward(queue(), entries, largest_gradient, chosen, rows_gradient);
  Launched();
}

void CudaStream::PoolRowsBackward(const Entries& entries, PoolOver over,
                                  ConstMatrix pooled_gradient, Matrix rows_gradient) {
  if (!Begin("PoolRowsBackward")) return;
  if (entries.entries == 0) {
    cuda::ScaleRows(queue(), 0, rows_gradient);
    return Launched();
  }
  if (!AreCountable(entries)) {
    return Fail(absl::ResourceExhaustedError(
        absl::StrCat(Where(), ": more than ", cuda::kMaxEntries, " entries")));
  }
  cuda::EntryOrder order;
  if (!OrderEntries(entries, &order)) return;
  const size_t floats = cuda::PoolRowsBackwardScratch(entries.entries, rows_gradient.columns);
  const Scratch scratch(*this, floats * sizeof(float));
  if (!scratch.ok()) return;
  cuda::PoolRowsBackward(queue(), entries, order, over, pooled_gradient,
                         static_cast<float*>(scratch.data()), rows_gradient);
  Launched();
}

}  // namespace pawl
