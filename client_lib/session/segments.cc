#include "client_lib/session/segments.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "client_lib/base/compiler.h"
#include "client_lib/base/elements.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/partitioner.h"

namespace pawl {
namespace {

// How many rows ahead of the copied one are prefetched.
constexpr uint32_t kPrefetchRows = 8;

}  // namespace

void Segmenter::Build(const Table& table, absl::Span<const uint64_t> keys, uint32_t partitions,
                      bool distinct) {
  std::vector<uint64_t> all;
  if (table.dense() && keys.empty()) {
    all.resize(BlockCount(table.elements()));
    std::iota(all.begin(), all.end(), 0);
    keys = all;
  }
  const size_t key_bytes = (table.dense() ? kBlockElements : table.row_width()) * sizeof(float);
  groups_.Build(table.id(), keys, partitions, distinct || table.dense(),
                static_cast<uint32_t>(std::max<size_t>(1, kMaxSegmentValueBytes / key_bytes)));
}

ByteView Segmenter::Keys(const Segment& segment) const {
  return ByteView(reinterpret_cast<const char*>(groups_.keys().data() + segment.begin),
                  segment.size() * sizeof(uint64_t));
}

size_t Segmenter::ValueBytes(const Table& table, const Segment& segment, ElementType type) const {
  if (!table.dense()) return segment.size() * table.row_width() * ElementBytes(type);
  size_t elements = 0;
  for (uint32_t i = segment.begin; i < segment.end; ++i)
    elements += BlockElements(table.elements(), groups_.keys()[i]);
  return elements * ElementBytes(type);
}

bool Segmenter::IsSentInPlace(const Table& table, ElementType type) const {
  return ElementBytes(type) == sizeof(float) && (table.dense() || groups_.in_order());
}

void Segmenter::AllocateGradients(const Table& table, ElementType type) {
  if (IsSentInPlace(table, type)) return;
  size_t bytes = 0;
  for (const Segment& segment : segments()) bytes += ValueBytes(table, segment, type);
  if (bytes <= gradient_bytes_) return;
  gradients_.reset(new char[bytes]);
  gradient_bytes_ = bytes;
}

void Segmenter::Gather(const Table& table, const Segment& segment, const float* gradients,
                       ElementType type, SegmentView& out) {
  out.element_type = type;
  if (table.dense()) return GatherBlocks(table, segment, gradients, out);
  GatherRows(table, segment, gradients, out);
}

void Segmenter::GatherRows(const Table& table, const Segment& segment, const float* gradients,
                           SegmentView& out) {
  const ElementType type = out.element_type;
  const size_t width = table.row_width();
  const size_t row_bytes = width * ElementBytes(type);
  if (IsSentInPlace(table, type)) {
    out.values.Append(gradients + segment.begin * width, segment.size() * row_bytes);
    return;
  }
  char* const begin = gradients_.get() + segment.begin * row_bytes;
  const bool is_float = row_bytes == width * sizeof(float);
  if (!is_float) rows_.resize(segment.size() * width);
  float* const rows = is_float ? reinterpret_cast<float*>(begin) : rows_.data();
  float* row = rows;
  for (uint32_t i = segment.begin; i < segment.end; ++i, row += width) {
    if (i + kPrefetchRows < segment.end)
      Prefetch(gradients + groups_.first_position(i + kPrefetchRows) * width);
    std::memcpy(row, gradients + groups_.first_position(i) * width, width * sizeof(float));
    if (!groups_.has_duplicates()) continue;
    bool first = true;
    groups_.ForEachPosition(i, [&](uint32_t position) {
      if (std::exchange(first, false)) return;
      const float* const more = gradients + position * width;
      for (size_t j = 0; j < width; ++j) row[j] += more[j];
    });
  }
  out.values.Append(begin, segment.size() * row_bytes);
  if (is_float) return;
  const size_t count = segment.size() * width;
  if (type == FLOAT16) out.exponent = ElementExponentFor(type, LargestFinite(rows, count));
  EncodeElements(type, rows, count, begin, out.exponent);
}

void Segmenter::GatherBlocks(const Table& table, const Segment& segment, const float* gradients,
                             SegmentView& out) {
  const ElementType type = out.element_type;
  // Only a tensor's last block, and hence the last of the list, is shorter. If all blocks are sent,
  // a block's position is its number.
  const auto for_each_block = [&](auto visit) {
    for (uint32_t i = segment.begin; i < segment.end; ++i) {
      visit(groups_.first_position(i) * kBlockElements,
            BlockElements(table.elements(), groups_.keys()[i]));
    }
  };
  if (IsSentInPlace(table, type)) {
    for_each_block([&](size_t begin, size_t elements) {
      out.values.Append(gradients + begin, elements * sizeof(float));
    });
    return;
  }
  float largest = 0;
  if (type == FLOAT16) {
    for_each_block([&](size_t begin, size_t elements) {
      largest = std::max(largest, LargestFinite(gradients + begin, elements));
    });
  }
  out.exponent = ElementExponentFor(type, largest);
  for_each_block([&](size_t begin, size_t elements) {
    char* const block = gradients_.get() + begin * ElementBytes(type);
    EncodeElements(type, gradients + begin, elements, block, out.exponent);
    out.values.Append(block, elements * ElementBytes(type));
  });
}

void Segmenter::Scatter(const Table& table, const Segment& segment, const ByteView& values,
                        float* out) const {
  if (table.dense()) {
    // Fragment boundaries and block boundaries are independent.
    uint32_t index = segment.begin;
    char* to = nullptr;
    size_t left = 0;
    for (ByteView::Fragment rest : values.fragments()) {
      while (!rest.empty()) {
        if (left == 0) {
          const uint64_t block = groups_.keys()[index++];
          to = reinterpret_cast<char*>(out + block * kBlockElements);
          left = BlockElements(table.elements(), block) * sizeof(float);
        }
        const size_t taken = std::min(left, rest.size());
        std::memcpy(to, rest.data(), taken);
        to += taken;
        left -= taken;
        rest.remove_prefix(taken);
      }
    }
    return;
  }
  const size_t width = table.row_width();
  const size_t row_bytes = width * sizeof(float);
  float split_row[kMaxRowWidth];
  uint32_t index = segment.begin;
  values.ForEachRun(
      row_bytes, reinterpret_cast<char*>(split_row), [&](const char* rows, size_t count) {
        if (groups_.in_order()) {
          std::memcpy(out + index * width, rows, count * row_bytes);
          index += static_cast<uint32_t>(count);
          return;
        }
        for (const char* const end = rows + count * row_bytes; rows != end;
             rows += row_bytes, ++index) {
          if (index + kPrefetchRows < segment.end) {
            float* const ahead = out + groups_.first_position(index + kPrefetchRows) * width;
            PrefetchForWriting(ahead);
            // Rows are not aligned to cache lines.
            PrefetchForWriting(ahead + width - 1);
          }
          groups_.ForEachPosition(index, [&](uint32_t position) {
            std::memcpy(out + position * width, rows, row_bytes);
          });
        }
      });
}

size_t Segmenter::SlotBytes(const Table& table, const Segment& segment) const {
  if (!table.dense()) return segment.size() * table.SlotFloats(table.row_width()) * sizeof(float);
  size_t floats = 0;
  for (uint32_t i = segment.begin; i < segment.end; ++i)
    floats += table.SlotFloats(BlockElements(table.elements(), groups_.keys()[i]));
  return floats * sizeof(float);
}

void Segmenter::AllocateSlots(const Table& table) {
  if (table.dense() || groups_.in_order()) return;
  slots_.resize(
      std::max<size_t>(slots_.size(), groups_.keys().size() * table.SlotFloats(table.row_width())));
}

void Segmenter::GatherSlots(const Table& table, const Segment& segment, const float* slots,
                            SegmentView& out) {
  if (table.dense()) {
    // As with values, only the last block of the list is shorter.
    for (uint32_t i = segment.begin; i < segment.end; ++i) {
      out.slots.Append(
          slots + groups_.first_position(i) * table.SlotFloats(kBlockElements),
          table.SlotFloats(BlockElements(table.elements(), groups_.keys()[i])) * sizeof(float));
    }
    return;
  }
  const size_t width = table.SlotFloats(table.row_width());
  const size_t bytes = segment.size() * width * sizeof(float);
  if (groups_.in_order()) return out.slots.Append(slots + segment.begin * width, bytes);
  float* const begin = slots_.data() + segment.begin * width;
  for (uint32_t i = segment.begin; i < segment.end; ++i) {
    std::copy_n(slots + groups_.first_position(i) * width, width,
                begin + (i - segment.begin) * width);
  }
  out.slots.Append(begin, bytes);
}

void Segmenter::ScatterSlots(const Table& table, const Segment& segment, const ByteView& slots,
                             float* out) const {
  ByteCursor cursor(slots);
  if (table.dense()) {
    for (uint32_t i = segment.begin; i < segment.end; ++i) {
      const uint64_t block = groups_.keys()[i];
      cursor.Read(out + block * table.SlotFloats(kBlockElements),
                  table.SlotFloats(BlockElements(table.elements(), block)) * sizeof(float));
    }
    return;
  }
  const size_t width = table.SlotFloats(table.row_width());
  for (uint32_t i = segment.begin; i < segment.end; ++i) {
    float* const first = out + groups_.first_position(i) * width;
    cursor.Read(first, width * sizeof(float));
    groups_.ForEachPosition(i, [&](uint32_t position) {
      if (float* const to = out + position * width; to != first) std::copy_n(first, width, to);
    });
  }
}

size_t Segmenter::capacity_bytes() const {
  return groups_.capacity_bytes() + gradient_bytes_ +
         (rows_.capacity() + slots_.capacity()) * sizeof(float);
}

std::unique_ptr<Segmenter> SegmenterPool::Get() {
  {
    MutexLock lock(mu_);
    if (!free_.empty()) {
      std::unique_ptr<Segmenter> segmenter = std::move(free_.back());
      free_.pop_back();
      bytes_ -= segmenter->capacity_bytes();
      return segmenter;
    }
  }
  return std::make_unique<Segmenter>();
}

void SegmenterPool::Put(std::unique_ptr<Segmenter> segmenter) {
  MutexLock lock(mu_);
  const size_t bytes = segmenter->capacity_bytes();
  if (free_.size() >= kMaxPooled || bytes_ + bytes > kMaxPooledBytes) return;
  bytes_ += bytes;
  free_.push_back(std::move(segmenter));
}

}  // namespace pawl
