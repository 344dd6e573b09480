#include "server/gradient_decoder.h"

#include <cstdint>
#include <utility>

#include "client_lib/base/elements.h"

namespace pawl {
namespace {

bool IsFloat(const PushSegmentView& segment) { return ElementBytes(segment.element_type) == sizeof(float); }

struct Owned {
  std::unique_ptr<char[]> floats;
  std::shared_ptr<const void> message;
};

}  // namespace

size_t FloatBytes(const PushSegmentView& segment) {
  return segment.values.size() / ElementBytes(segment.element_type) * sizeof(float);
}

size_t DecodedBytes(const PushRequestView& request) {
  size_t bytes = 0;
  for (const PushSegmentView& segment : request.segments) {
    if (!IsFloat(segment)) bytes += FloatBytes(segment);
  }
  return bytes;
}

void DecodeGradients(PushRequestView& request, std::shared_ptr<const void>& owner) {
  char* next = nullptr;
  if (const size_t bytes = DecodedBytes(request); bytes > 0) {
    auto owned = std::make_shared<Owned>();
    owned->floats.reset(next = new char[bytes]);
    owned->message = std::move(owner);
    owner = std::move(owned);
  }
  for (PushSegmentView& segment : request.segments) {
    if (!IsFloat(segment)) {
      const char* const begin = next;
      char scratch[sizeof(uint16_t)];
      segment.values.ForEachRun(sizeof(scratch), scratch, [&](const char* data, size_t count) {
        DecodeElements(segment.element_type, data, count, next);
        next += count * sizeof(float);
      });
      segment.values = ByteView(begin, next - begin);
    }
    segment.element_type = FLOAT32;
  }
}

}  // namespace pawl
