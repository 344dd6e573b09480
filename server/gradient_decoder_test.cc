#include "server/gradient_decoder.h"

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

TEST(GradientDecoderTest, MakesFloatsOfAllTypesWhereverFragmentsEnd) {
  // All of these are numbers of each type.
  const std::vector<float> values = {1, -2, 0.5f, 0, 1024, -0.125f, 3};
  for (size_t cut = 0; cut <= values.size() * 2; ++cut) {
    auto memory = std::make_shared<std::vector<std::string>>();
    memory->reserve(8);
    PushRequestView request;
    for (const ElementType type : {BFLOAT16, FLOAT32, FLOAT16, ELEMENT_TYPE_UNSPECIFIED}) {
      const std::string bytes = Encoded(type, values);
      PushSegmentView& segment = request.segments.emplace_back();
      segment.element_type = type;
      for (const std::string& piece : {bytes.substr(0, cut), bytes.substr(cut)}) {
        memory->push_back(piece);
        segment.values.Append(memory->back().data(), memory->back().size());
      }
      EXPECT_EQ(FloatBytes(segment), values.size() * sizeof(float));
    }
    const char* const float32 = request.segments[1].values.fragments()[0].data();
    EXPECT_EQ(DecodedBytes(request), 2 * values.size() * sizeof(float));
    const std::weak_ptr<std::vector<std::string>> alive = memory;
    std::shared_ptr<const void> owner = std::move(memory);
    DecodeGradients(request, owner);
    // What was not decoded still lies there.
    EXPECT_FALSE(alive.expired());
    for (const PushSegmentView& segment : request.segments) {
      EXPECT_EQ(segment.element_type, FLOAT32);
      EXPECT_EQ(Floats(segment.values), values) << cut;
    }
    EXPECT_EQ(request.segments[1].values.fragments()[0].data(), float32);
    EXPECT_EQ(DecodedBytes(request), 0u);
    owner = nullptr;
    EXPECT_TRUE(alive.expired());
  }
}

TEST(GradientDecoderTest, TakesNoMemoryForFloats) {
  const float values[] = {1, 2};
  PushRequestView request;
  request.segments.emplace_back().values = ByteView(values, sizeof(values));
  const auto message = std::make_shared<int>(1);
  std::shared_ptr<const void> owner = message;
  DecodeGradients(request, owner);
  EXPECT_EQ(owner, message);
  EXPECT_EQ(request.segments[0].values.fragments()[0].data(), reinterpret_cast<const char*>(values));
}

}  // namespace
}  // namespace pawl
