#include "server/data_plane/gradient_decoder.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/base/elements.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

std::string Encoded(ElementType type, const std::vector<float>& values) {
  std::string bytes(values.size() * ElementBytes(type), '\0');
  EncodeElements(type, values.data(), values.size(), bytes.data());
  return bytes;
}

std::vector<float> Floats(const ByteView& view) {
  std::vector<float> floats(view.size() / sizeof(float));
  view.CopyTo(floats.data());
  return floats;
}

TEST(GradientDecoderTest, DecodesEveryTypeAcrossFragments) {
  // Every type can represent these values exactly.
  const std::vector<float> values = {1, -2, 0.5f, 0, 1024, -0.125f, 3};
  const std::vector<uint64_t> keys = {7, 9};
  for (const ElementType type : {BFLOAT16, FLOAT16, FLOAT32, ELEMENT_TYPE_UNSPECIFIED}) {
    const std::string bytes = Encoded(type, values);
    for (size_t split = 0; split <= values.size() * 2; ++split) {
      auto message = std::make_shared<std::vector<std::string>>();
      SegmentView segment;
      segment.table = 5;
      segment.element_type = type;
      segment.keys = ByteView(keys.data(), keys.size() * sizeof(uint64_t));
      *message = {bytes.substr(0, split), bytes.substr(split)};
      for (const std::string& piece : *message) segment.values.Append(piece.data(), piece.size());
      const bool is_float = ElementBytes(type) == sizeof(float);
      EXPECT_EQ(FloatBytes(segment), values.size() * sizeof(float));
      EXPECT_EQ(DecodedBytes(segment),
                is_float ? 0 : keys.size() * sizeof(uint64_t) + values.size() * sizeof(float));
      const std::weak_ptr<std::vector<std::string>> alive = message;
      const char* const place = segment.values.fragments()[0].data();
      std::shared_ptr<const void> owner = std::move(message);
      const SegmentView decoded = DecodeSegment(segment, owner);
      // A decoded segment keeps nothing of the message.
      EXPECT_EQ(alive.expired(), !is_float);
      EXPECT_EQ(decoded.values.fragments()[0].data() == place, is_float);
      EXPECT_EQ(decoded.table, 5u);
      EXPECT_EQ(decoded.element_type, FLOAT32);
      EXPECT_EQ(Floats(decoded.values), values) << split;
      std::vector<uint64_t> decoded_keys(decoded.keys.size() / sizeof(uint64_t));
      decoded.keys.CopyTo(decoded_keys.data());
      EXPECT_EQ(decoded_keys, keys);
    }
  }
}

TEST(GradientDecoderTest, Float16IsScaledByItsExponent) {
  const std::string bytes = Encoded(FLOAT16, {1, -0.75f});
  SegmentView segment;
  segment.element_type = FLOAT16;
  segment.exponent = -20;
  segment.values = ByteView(bytes.data(), bytes.size());
  std::shared_ptr<const void> owner;
  const SegmentView decoded = DecodeSegment(segment, owner);
  EXPECT_EQ(decoded.exponent, 0);
  EXPECT_EQ(Floats(decoded.values), (std::vector<float>{0x1p-20f, -0x0.cp-20f}));
}

}  // namespace
}  // namespace pawl
