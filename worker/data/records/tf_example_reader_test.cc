#include "worker/data/records/tf_example_reader.h"

#include <google/protobuf/text_format.h>

#include <string>
#include <vector>

#include "client_lib/base/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/tf_example.pb.h"
#include "worker/data/feature_key.h"

namespace pawl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kNoLimit = uint64_t{1} << 40;
constexpr char kColumns[] = R"(
  columns { name: "label" label {} }
  columns { name: "price" numeric { missing: -1 } }
  columns { name: "user" categorical {} }
  columns { name: "items" list { max_length: 2 } categorical {} }
)";

template <typename T>
std::string Bytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string Record(const std::string& message) {
  const std::string length = Bytes(uint64_t{message.size()});
  return length + Bytes(MaskedCrc32c(length.data(), length.size())) + message +
         Bytes(MaskedCrc32c(message.data(), message.size()));
}

// A record of a message in protobuf's text format: entries "feature { name: ... value { ... } }".
std::string Example(const std::string& features) {
  TfExample example;
  EXPECT_TRUE(
      google::protobuf::TextFormat::ParseFromString("features { " + features + " }", &example))
      << features;
  return Record(example.SerializeAsString());
}

const std::string kFirst = Example(R"(
  feature { name: "items" value { bytes_list { value: ["a", "b", "c"] } } }
  feature { name: "label" value { int64_list { value: 1 } } }
  feature { name: "user" value { int64_list { value: 5 } } }
  feature { name: "price" value { float_list { value: 0.5 } } }
  feature { name: "other" value { float_list { value: [1, 2] } } })");
const std::string kSecond = Example(R"(
  feature { name: "label" value { float_list { value: 0 } } }
  feature { name: "user" value { bytes_list { value: "5" } } })");

absl::Status Read(const std::string& bytes, SampleStore* store, BadSamples* bad = nullptr,
                  const std::string& columns = kColumns) {
  MemorySource source(bytes);
  RecordSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(columns, &spec));
  const auto reader = TfExampleReader::Open(source, "t.tfrecord", spec);
  if (!reader.ok()) return reader.status();
  store->shape = (*reader)->shape();
  BadSamples none;
  return ReadSamples(**reader, "t.tfrecord", store, bad == nullptr ? &none : bad);
}

std::string Error(const std::string& bytes) {
  SampleStore store(kNoLimit);
  const absl::Status status = Read(bytes, &store);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(TfExampleReaderTest, ReadsTheBytesOfTensorFlowsDefinition) {
  // A tf.train.Example whose map of features has a: [3] (int64) and b: ["xy"].
  const std::string message(
      "\n\x19\n\n\n\x01"
      "a\x12\x05\x1a\x03\n\x01\x03\n\x0b\n\x01"
      "b\x12\x06\n\x04\n\x02xy",
      27);
  SampleStore store(kNoLimit);
  ASSERT_EQ(Read(Record(message), &store, nullptr,
                 "columns { name: 'a' label {} } columns { name: 'b' categorical {} }"),
            absl::OkStatus());
  EXPECT_THAT(store.labels, ElementsAre(3));
  EXPECT_THAT(store.keys(), ElementsAre(FeatureKey("b").OfCategory("xy")));
}

TEST(TfExampleReaderTest, ReadsEachTypeAndAbsentFeatures) {
  SampleStore store(kNoLimit);
  ASSERT_EQ(Read(kFirst + kSecond, &store), absl::OkStatus());
  EXPECT_THAT(store.labels, ElementsAre(1, 0));
  EXPECT_THAT(store.numerics, ElementsAre(0.5, -1));
  EXPECT_THAT(store.field_counts, ElementsAre(1, 2, 1, 0));
  EXPECT_THAT(store.sample_begin, ElementsAre(0, 3, 4));
  const FeatureKey user("user"), items("items");
  EXPECT_THAT(store.keys(),
              ElementsAre(user.OfCategory("5"), items.OfCategory("b"), items.OfCategory("c")));
  EXPECT_THAT(store.entries, ElementsAre(0, 1, 2, 0));
}

TEST(TfExampleReaderTest, MalformedRecordsAreNamedAndCanBeSkipped) {
  const std::string no_label =
      Example("feature { name: 'user' value { bytes_list { value: '5' } } }");
  EXPECT_EQ(Error(kFirst + no_label), "t.tfrecord: record 2 at byte " +
                                          std::to_string(kFirst.size()) +
                                          ": column 'label': the sample has no value");
  EXPECT_THAT(Error(Example("feature { name: 'label' value { float_list { value: [1, 2] } } }")),
              HasSubstr("record 1 at byte 0: column 'label': the sample has 2 values"));
  EXPECT_THAT(Error(Example("feature { name: 'label' value { float_list { value: nan } } }")),
              HasSubstr("column 'label': nan is not a finite number"));
  EXPECT_THAT(Error(Example("feature { name: 'label' value { bytes_list { value: 'x\\n' } } }")),
              HasSubstr("column 'label': 'x\\n' is not a number"));
  std::string damaged = kFirst;
  damaged[20] = static_cast<char>(damaged[20] ^ 1);
  EXPECT_THAT(Error(damaged),
              HasSubstr("record 1 at byte 0: the checksum of its content is wrong"));
  EXPECT_THAT(Error(Record("\xff\xff")), HasSubstr("it is not a tf.Example message"));
  SampleStore store(kNoLimit);
  BadSamples bad(3);
  ASSERT_EQ(Read(damaged + kSecond + no_label + Record("\xff") + kFirst, &store, &bad),
            absl::OkStatus());
  EXPECT_EQ(bad.count(), 3u);
  EXPECT_THAT(store.labels, ElementsAre(0, 1));
}

TEST(TfExampleReaderTest, NothingIsReadBehindADamagedHead) {
  const auto fatal = [](const std::string& bytes) {
    SampleStore store(kNoLimit);
    BadSamples bad(100);
    const absl::Status status = Read(bytes, &store, &bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  std::string damaged = kFirst + kSecond;
  damaged[1] = 1;
  EXPECT_THAT(fatal(damaged), HasSubstr("record 1 at byte 0: the checksum of its length is wrong"));
  EXPECT_THAT(fatal(kFirst.substr(0, kFirst.size() - 1)), HasSubstr("the file ends within"));
  EXPECT_THAT(fatal(kFirst + kSecond.substr(0, 5)),
              HasSubstr("record 2 at byte " + std::to_string(kFirst.size()) + ": the file ends"));
  const std::string length = Bytes(uint64_t{1} << 60);
  EXPECT_THAT(fatal(length + Bytes(MaskedCrc32c(length.data(), length.size()))),
              HasSubstr("the record has 1152921504606846976 bytes; at most 16777216"));
}

TEST(TfExampleReaderTest, ReadsFromTheMidstOfAFile) {
  RecordSpec spec;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(kColumns, &spec));
  const std::string bytes = kSecond + kFirst + Record("?");
  MemorySource source(bytes);
  const auto reader =
      TfExampleReader::Open(source, "t.tfrecord", spec, {.offset = 1000, .lines = 7});
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_TRUE((*reader)->Skip().value());
  EXPECT_EQ((*reader)->offset(), kSecond.size());
  EXPECT_EQ((*reader)->lines(), 8u);
  SampleStore store(kNoLimit);
  store.shape = (*reader)->shape();
  ASSERT_TRUE((*reader)->Next(&store).value());
  EXPECT_THAT(store.labels, ElementsAre(1));
  EXPECT_THAT(
      (*reader)->Next(&store).status().message(),
      HasSubstr("record 10 at byte " + std::to_string(1000 + kSecond.size() + kFirst.size())));
  EXPECT_TRUE((*reader)->IsAtSample());
  EXPECT_FALSE((*reader)->Next(&store).value());
}

TEST(TfExampleReaderTest, BadSpecsNameTheField) {
  SampleStore store(kNoLimit);
  EXPECT_THAT(
      Read("", &store, nullptr, "columns { name: 'x' position: 1 label {} }").message(),
      HasSubstr("data.records.columns[0] (x).position is 1; columns of records are found by"));
}

}  // namespace
}  // namespace pawl
