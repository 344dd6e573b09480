#include "worker/data/readers/idx_reader.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pawl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Bytes(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes.push_back(static_cast<char>(value));
  return bytes;
}

// Two images of 1 x 3 pixels, and their labels.
const std::string kImageHeader = Bytes({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3});
const std::string kImages = kImageHeader + Bytes({0, 1, 2, 253, 254, 255});
const std::string kLabels = Bytes({0, 0, 8, 1, 0, 0, 0, 2, 9, 4});

absl::Status Read(const std::string& images, const std::string& labels, SampleStore* store) {
  MemorySource image_source(images);
  MemorySource label_source(labels);
  return ReadIdx(image_source, "images", label_source, "labels", store);
}

std::string Error(const std::string& images, const std::string& labels) {
  SampleStore store(1 << 30);
  const absl::Status status = Read(images, labels, &store);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(IdxReaderTest, ReadsImagesAndLabels) {
  SampleStore store(1 << 30);
  ASSERT_TRUE(Read(kImages, kLabels, &store).ok());
  EXPECT_EQ(store.shape.numeric_count, 3u);
  EXPECT_EQ(store.shape.field_count, 0u);
  EXPECT_THAT(store.pixels, ElementsAre(0, 1, 2, 253, 254, 255));
  EXPECT_THAT(store.labels, ElementsAre(9, 4));
}

TEST(IdxReaderTest, EveryTruncationIsRefused) {
  for (size_t length = 0; length < kImages.size(); ++length) {
    EXPECT_THAT(Error(kImages.substr(0, length), kLabels), HasSubstr("images: ")) << length;
  }
  for (size_t length = 0; length < kLabels.size(); ++length) {
    EXPECT_THAT(Error(kImages, kLabels.substr(0, length)), HasSubstr("labels: ")) << length;
  }
  EXPECT_EQ(Error(kImages.substr(0, kImages.size() - 1), kLabels),
            "images: ends after 5 elements; its header says 6, i.e. 2 samples of 3");
}

TEST(IdxReaderTest, WrongHeadersAreRefused) {
  EXPECT_THAT(Error(kImages + "x", kLabels), HasSubstr("images: is longer than the 6 elements"));
  EXPECT_THAT(Error("label,index\n", kLabels), HasSubstr("images: is not an IDX file"));
  EXPECT_THAT(Error(kLabels, kLabels), HasSubstr("images: has 1 dimensions, not 2 to 4"));
  EXPECT_THAT(Error(kImages, kImages), HasSubstr("labels: has 3 dimensions, not 1"));
  EXPECT_THAT(Error(Bytes({0, 0, 0x0d, 3}) + kImages.substr(4), kLabels),
              HasSubstr("element type is 0x0d"));
  EXPECT_THAT(Error(kImages, Bytes({0, 0, 8, 1, 0, 0, 0, 1, 9})),
              HasSubstr("has 2 images, but labels has 1 labels"));
  EXPECT_THAT(Error(Bytes({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3}), kLabels),
              HasSubstr("no elements"));
}

TEST(IdxReaderTest, WrongHeaderTakesNoMemory) {
  const std::string huge = Bytes({0, 0, 8, 3, 255, 255, 255, 255, 0, 0, 4, 0, 0, 0, 4, 0});
  SampleStore store(1 << 20);
  EXPECT_EQ(Read(huge + "abc", Bytes({0, 0, 8, 1, 255, 255, 255, 255}), &store).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_LT(store.memory_bytes(), 1000u);
  const std::string vast =
      Bytes({0, 0, 8, 4, 0, 0, 0, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255});
  EXPECT_THAT(Error(vast, kLabels), HasSubstr("too many elements"));
}

TEST(IdxReaderTest, MemoryLimitIsRespected) {
  SampleStore store(2);
  EXPECT_EQ(Read(kImages, kLabels, &store).code(), absl::StatusCode::kResourceExhausted);
}

TEST(IdxReaderTest, LabelFileIsBesideTheImages) {
  EXPECT_EQ(*IdxLabelPath("/a/images-idx3/train-images-idx3-ubyte.gz"),
            "/a/images-idx3/train-labels-idx1-ubyte.gz");
  EXPECT_EQ(*IdxLabelPath("images-idx3"), "labels-idx1");
  EXPECT_FALSE(IdxLabelPath("/images-idx3/train").ok());
  EXPECT_FALSE(IdxLabelPath("").ok());
}

}  // namespace
}  // namespace pawl
