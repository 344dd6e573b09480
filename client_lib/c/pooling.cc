// pawl_pool and pawl_pool_gradient. They need no client.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "client_lib/base/compiler.h"
#include "client_lib/c/error.h"
#include "client_lib/c/pawl.h"

namespace {

// How many keys ahead of the current one the row is prefetched.
constexpr size_t kPrefetchKeys = 8;
// The vectors of so many samples stay in the processor's cache while the features add theirs.
constexpr size_t kSamplesInBlock = 32;

void Add(const float* from, size_t width, float* to) {
  for (size_t i = 0; i < width; ++i) to[i] += from[i];
}

void AddScaled(const float* from, float scale, size_t width, float* to) {
  for (size_t i = 0; i < width; ++i) to[i] += from[i] * scale;
}

absl::Status CheckBags(const pawl_bags& bags) {
  if (bags.size != sizeof(pawl_bags)) {
    return absl::InvalidArgumentError(
        "pawl_bags.size is not that of this library: use its own pawl.h");
  }
  if (bags.samples > 0 && bags.features > SIZE_MAX / sizeof(int64_t) / bags.samples)
    return absl::InvalidArgumentError("features times samples is too large");
  const size_t count = bags.features * bags.samples;
  if (bags.offsets == nullptr) {
    if (bags.place_count != count)
      return absl::InvalidArgumentError("without offsets, every bag has one key");
  } else {
    bool is_ok = bags.offsets[0] >= 0;
    for (size_t bag = 0; bag < count; ++bag)
      is_ok = is_ok && bags.offsets[bag] <= bags.offsets[bag + 1];
    if (!is_ok || static_cast<uint64_t>(bags.offsets[count]) > bags.place_count) {
      return absl::InvalidArgumentError(
          "offsets must ascend, from 0 at the least to the number of keys at most");
    }
  }
  const auto is_row = [&](int64_t place) {
    return place >= 0 && static_cast<uint64_t>(place) < bags.row_count;
  };
  if (!std::all_of(bags.places, bags.places + bags.place_count, is_row))
    return absl::InvalidArgumentError("a place is not that of a row");
  return absl::OkStatus();
}

// Calls visit(first key, end of the keys, where the bag's vector begins) for all bags, in an order
// that depends on their numbers only. Returns the pawl_code.
template <typename Visit>
int ForEachBag(const pawl_bags& bags, Visit visit) {
  if (const absl::Status status = CheckBags(bags); !status.ok()) return pawl::c::Fail(status);
  for (size_t first = 0; first < bags.samples; first += kSamplesInBlock) {
    const size_t last = std::min(first + kSamplesInBlock, bags.samples);
    for (size_t feature = 0; feature < bags.features; ++feature) {
      for (size_t sample = first; sample < last; ++sample) {
        const size_t bag = feature * bags.samples + sample;
        const size_t begin = bags.offsets == nullptr ? bag : bags.offsets[bag];
        const size_t end = bags.offsets == nullptr ? bag + 1 : bags.offsets[bag + 1];
        visit(begin, end, sample * bags.stride + feature * bags.width);
      }
    }
  }
  return PAWL_OK;
}

const float* RowAt(const pawl_bags& bags, const float* rows, size_t key) {
  return rows + bags.places[key] * bags.width;
}

void Prefetch(const pawl_bags& bags, const float* rows, size_t key) {
  if (key + kPrefetchKeys < bags.place_count)
    pawl::Prefetch(RowAt(bags, rows, key + kPrefetchKeys));
}

size_t CountKeys(const pawl_bags& bags, size_t begin, size_t end) {
  return end - begin - std::count(bags.places + begin, bags.places + end, bags.padding_row);
}

}  // namespace

int pawl_pool(const pawl_bags* bags, const float* rows, float* pooled) {
  const size_t width = bags->width;
  return ForEachBag(*bags, [&](size_t begin, size_t end, size_t vector) {
    float* const to = pooled + vector;
    if (end == begin + 1 && bags->places[begin] != bags->padding_row) {
      Prefetch(*bags, rows, begin);
      std::copy_n(RowAt(*bags, rows, begin), width, to);
      return;
    }
    std::fill_n(to, width, 0.0f);
    for (size_t key = begin; key < end; ++key) {
      Prefetch(*bags, rows, key);
      if (bags->places[key] != bags->padding_row) Add(RowAt(*bags, rows, key), width, to);
    }
    if (bags->takes_means == 0) return;
    const size_t keys = CountKeys(*bags, begin, end);
    if (keys > 1) {
      for (size_t i = 0; i < width; ++i) to[i] /= static_cast<float>(keys);
    }
  });
}

int pawl_pool_gradient(const pawl_bags* bags, const float* pooled_gradient, float* row_gradients) {
  const size_t width = bags->width;
  return ForEachBag(*bags, [&](size_t begin, size_t end, size_t vector) {
    const float* const from = pooled_gradient + vector;
    const size_t keys = bags->takes_means == 0 ? 1 : CountKeys(*bags, begin, end);
    for (size_t key = begin; key < end; ++key) {
      Prefetch(*bags, row_gradients, key);
      if (bags->places[key] == bags->padding_row) continue;
      float* const to = row_gradients + bags->places[key] * width;
      if (keys == 1) {
        Add(from, width, to);
      } else {
        AddScaled(from, 1.0f / static_cast<float>(keys), width, to);
      }
    }
  });
}
