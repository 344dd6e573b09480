#include "client_lib/session/segments.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "client_lib/base/elements.h"
#include "client_lib/base/limits.h"
#include "client_lib/base/partitioner.h"

namespace pawl {
namespace {

// How many rows ahead of the copied one are prefetched.
constexpr uint32_t kPrefetchRows = 8;

// Divides every group into runs of at most `keys_per_segment` keys, in order.
void DivideGroups(const KeyGroups& groups, uint32_t keys_per_segment,
                  std::vector<KeyRange>* ranges) {
  ranges->clear();
  for (const KeyGroups::Group& group : groups.groups()) {
    for (uint32_t begin = group.begin; begin < group.end; begin += keys_per_segment) {
      ranges->push_back(
          KeyRange{group.partition, begin, std::min(keys_per_segment, group.end - begin)});
    }
  }
}

// How many rows or blocks of the table fit into a segment.
uint32_t KeysPerSegment(const Table& table) {
  const size_t bytes = (table.dense() ? kBlockElements : table.row_width()) * sizeof(float);
  return static_cast<uint32_t>(std::max<size_t>(1, kMaxSegmentValueBytes / bytes));
}

}  // namespace

void Segmenter::BuildSparse(const Table& table, absl::Span<const uint64_t> keys,
                            uint32_t partitions, bool distinct) {
  groups_.Build(table.id(), keys, partitions, distinct);
  DivideGroups(groups_, KeysPerSegment(table), &ranges_);
}

void Segmenter::BuildDense(const Table& table, uint32_t partitions,
                           absl::Span<const uint64_t> blocks) {
  std::vector<uint64_t> all;
  if (blocks.empty()) {
    all.resize(BlockCount(table.elements()));
    std::iota(all.begin(), all.end(), 0);
    blocks = all;
  }
  groups_.Build(table.id(), blocks, partitions, true);
  DivideGroups(groups_, KeysPerSegment(table), &ranges_);
}

void Segmenter::AppendKeys(const KeyRange& range, ByteView* view) const {
  view->Append(groups_.keys().data() + range.begin, range.count * sizeof(uint64_t));
}

size_t Segmenter::ValueBytes(const Table& table, const KeyRange& range, ElementType type) const {
  if (!table.dense()) return range.count * table.row_width() * ElementBytes(type);
  size_t elements = 0;
  for (uint32_t i = range.begin; i < range.begin + range.count; ++i)
    elements += BlockElements(table.elements(), groups_.keys()[i]);
  return elements * ElementBytes(type);
}

bool Segmenter::IsSentInPlace(const Table& table, ElementType type) const {
  return ElementBytes(type) == sizeof(float) && (table.dense() || groups_.in_order());
}

void Segmenter::AllocateGradients(const Table& table, ElementType type) {
  if (IsSentInPlace(table, type)) return;
  size_t bytes = 0;
  for (const KeyRange& range : ranges_) bytes += ValueBytes(table, range, type);
  if (bytes <= gradient_bytes_) return;
  gradients_.reset(new char[bytes]);
  gradient_bytes_ = bytes;
}

int32_t Segmenter::GatherRows(const Table& table, const KeyRange& range, const float* gradients,
                              ByteView* view, ElementType type) {
  const size_t width = table.row_width();
  const size_t row_bytes = width * ElementBytes(type);
  if (IsSentInPlace(table, type)) {
    view->Append(gradients + range.begin * width, range.count * row_bytes);
    return 0;
  }
  char* const begin = gradients_.get() + range.begin * row_bytes;
  const bool is_float = row_bytes == width * sizeof(float);
  if (!is_float) rows_.resize(range.count * width);
  float* const rows = is_float ? reinterpret_cast<float*>(begin) : rows_.data();
  float* out = rows;
  const uint32_t end = range.begin + range.count;
  for (uint32_t i = range.begin; i < end; ++i, out += width) {
    if (i + kPrefetchRows < end)
      __builtin_prefetch(gradients + groups_.first_position(i + kPrefetchRows) * width);
    std::memcpy(out, gradients + groups_.first_position(i) * width, width * sizeof(float));
    if (!groups_.has_duplicates()) continue;
    bool first = true;
    groups_.ForEachPosition(i, [&](uint32_t position) {
      if (std::exchange(first, false)) return;
      const float* const more = gradients + position * width;
      for (size_t j = 0; j < width; ++j) out[j] += more[j];
    });
  }
  view->Append(begin, range.count * row_bytes);
  if (is_float) return 0;
  const size_t count = range.count * width;
  const int32_t exponent =
      type == FLOAT16 ? ElementExponentFor(type, LargestFinite(rows, count)) : 0;
  EncodeElements(type, rows, count, begin, exponent);
  return exponent;
}

int32_t Segmenter::AppendBlocks(const Table& table, const KeyRange& range, const float* blocks,
                                ByteView* view, ElementType type) {
  // Only a tensor's last block, and hence the last of the list, is shorter. If all blocks are sent,
  // a block's position is its number.
  const auto for_each_block = [&](auto visit) {
    for (uint32_t i = range.begin; i < range.begin + range.count; ++i) {
      visit(groups_.first_position(i) * kBlockElements,
            BlockElements(table.elements(), groups_.keys()[i]));
    }
  };
  if (IsSentInPlace(table, type)) {
    for_each_block([&](size_t begin, size_t elements) {
      view->Append(blocks + begin, elements * sizeof(float));
    });
    return 0;
  }
  float largest = 0;
  if (type == FLOAT16) {
    for_each_block([&](size_t begin, size_t elements) {
      largest = std::max(largest, LargestFinite(blocks + begin, elements));
    });
  }
  const int32_t exponent = ElementExponentFor(type, largest);
  for_each_block([&](size_t begin, size_t elements) {
    char* const out = gradients_.get() + begin * ElementBytes(type);
    EncodeElements(type, blocks + begin, elements, out, exponent);
    view->Append(out, elements * ElementBytes(type));
  });
  return exponent;
}

void Segmenter::Scatter(const Table& table, const KeyRange& range, const ByteView& values,
                        float* out) const {
  if (table.dense()) {
    // Fragment boundaries and block boundaries are independent.
    uint32_t index = range.begin;
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
  uint32_t index = range.begin;
  values.ForEachRun(row_bytes, reinterpret_cast<char*>(split_row),
                    [&](const char* rows, size_t count) {
                      if (groups_.in_order()) {
                        std::memcpy(out + index * width, rows, count * row_bytes);
                        index += static_cast<uint32_t>(count);
                        return;
                      }
                      for (const char* const end = rows + count * row_bytes; rows != end;
                           rows += row_bytes, ++index) {
                        groups_.ForEachPosition(index, [&](uint32_t position) {
                          std::memcpy(out + position * width, rows, row_bytes);
                        });
                      }
                    });
}

size_t Segmenter::capacity_bytes() const {
  return groups_.capacity_bytes() + ranges_.capacity() * sizeof(KeyRange) + gradient_bytes_ +
         rows_.capacity() * sizeof(float);
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
