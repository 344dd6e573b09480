#include "server/data_plane/gradient_decoder.h"

#include <cstdint>

#include "client_lib/base/elements.h"

namespace pawl {

size_t FloatBytes(const SegmentView& segment) {
  return segment.values.size() / ElementBytes(segment.element_type) * sizeof(float);
}

size_t DecodedBytes(const SegmentView& segment) {
  return ElementBytes(segment.element_type) == sizeof(float)
             ? 0
             : segment.keys.size() + FloatBytes(segment) + segment.slots.size();
}

SegmentView DecodeSegment(const SegmentView& segment, std::shared_ptr<const void>& owner) {
  SegmentView decoded = segment;
  decoded.element_type = FLOAT32;
  decoded.exponent = 0;
  const size_t bytes = DecodedBytes(segment);
  if (bytes == 0) return decoded;
  const auto memory = std::make_shared_for_overwrite<char[]>(bytes);
  segment.keys.CopyTo(memory.get());
  char* next = memory.get() + segment.keys.size();
  decoded.keys = ByteView(memory.get(), segment.keys.size());
  decoded.values = ByteView(next, FloatBytes(segment));
  char scratch[sizeof(uint16_t)];
  segment.values.ForEachRun(sizeof(scratch), scratch, [&](const char* data, size_t count) {
    DecodeElements(segment.element_type, data, count, next, segment.exponent);
    next += count * sizeof(float);
  });
  segment.slots.CopyTo(next);
  decoded.slots = ByteView(next, segment.slots.size());
  owner = memory;
  return decoded;
}

}  // namespace pawl
