#include "worker/data/records/record_reader.h"

#include <google/protobuf/text_format.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client_lib/base/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/feature_key.h"

namespace pawl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kNoLimit = uint64_t{1} << 40;

// The columns of small.rec, which client_lib/python/tests/convert_test.py writes.
constexpr char kColumns[] = R"(
  columns { name: "label" label {} }
  columns { name: "weight" weight {} }
  columns { name: "user" categorical { missing: "guest" } }
  columns { name: "price" numeric { missing: -1 } }
  columns { name: "level" source: "price" bucketized { width: 2 missing: 100 } }
  columns { name: "city" hashed { buckets: 50 } }
  columns { name: "items" list { max_length: 2 } categorical {} domain: "item" }
  columns { name: "hours" list {} hashed { buckets: 7 } }
  columns { name: "both" crossed { columns: "user" columns: "city" } }
)";

RecordSpec Spec(const std::string& text) {
  RecordSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

std::string File(const std::string& name) {
  std::ifstream file("worker/data/records/testdata/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

absl::Status Read(const std::string& bytes, const std::string& spec, SampleStore* store,
                  BadSamples* bad = nullptr) {
  MemorySource source(bytes);
  const auto reader = RecordReader::Open(source, "t.rec", Spec(spec));
  if (!reader.ok()) return reader.status();
  store->shape = (*reader)->shape();
  BadSamples none;
  return ReadSamples(**reader, "t.rec", store, bad == nullptr ? &none : bad);
}

std::string Error(const std::string& bytes, const std::string& spec = kColumns) {
  SampleStore store(kNoLimit);
  const absl::Status status = Read(bytes, spec, &store);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

std::vector<uint64_t> Keys(const SampleStore& store) {
  std::vector<uint64_t> keys;
  for (const uint32_t entry : store.entries) keys.push_back(store.keys()[entry]);
  return keys;
}

// Offsets of the blocks of small.rec, then of its end.
std::vector<size_t> Blocks(const std::string& bytes) {
  std::vector<size_t> blocks;
  for (size_t at = bytes.find("BLK1"); at < bytes.size();) {
    blocks.push_back(at);
    uint32_t stored = 0;
    std::memcpy(&stored, bytes.data() + at + 8, 4);
    at += kRecordBlockHeadBytes + stored;
  }
  return blocks;
}

// Corrects the checksums of the block at `at`.
void Sign(std::string* bytes, size_t at) {
  uint32_t stored = 0;
  std::memcpy(&stored, bytes->data() + at + 8, 4);
  uint32_t crc = Crc32(0, bytes->data() + at + kRecordBlockHeadBytes, stored);
  std::memcpy(bytes->data() + at + 20, &crc, 4);
  crc = Crc32(0, bytes->data() + at, kRecordBlockHeadBytes - 4);
  std::memcpy(bytes->data() + at + kRecordBlockHeadBytes - 4, &crc, 4);
}

TEST(RecordReaderTest, ReadsWhatPythonWrites) {
  SampleStore store(kNoLimit);
  ASSERT_EQ(Read(File("small.rec"), kColumns, &store), absl::OkStatus());
  EXPECT_EQ(store.size(), 10u);
  EXPECT_EQ(store.shape.field_count, 6u);
  EXPECT_THAT(store.labels, ElementsAre(0, 1, 0, 1, 0, 1, 0, 1, 0, 1));
  EXPECT_THAT(store.sample_weights, ElementsAre(0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.25));
  EXPECT_THAT(store.numerics, ElementsAre(1.5, -1, -2, 3, 1.5, 1.5, 1.5, 1.5, 0.25, 8));
  EXPECT_THAT(std::vector<uint16_t>(store.field_counts.begin(), store.field_counts.begin() + 24),
              ElementsAre(1, 1, 1, 2, 2, 1,  //
                          1, 1, 1, 0, 0, 1,  //
                          1, 1, 1, 1, 3, 1,  //
                          1, 1, 1, 2, 0, 1));
  const FeatureKey user("user"), level("level"), city("city"), item("item"), hours("hours"),
      both("both");
  const auto hashed = [](const FeatureKey& key, absl::string_view text, uint64_t buckets) {
    return key.OfHashed(key.OfCategory(text), buckets);
  };
  const std::vector<uint64_t> keys = Keys(store);
  const uint64_t rome = hashed(city, "Rome", 50), oslo = hashed(city, "Oslo", 50);
  EXPECT_THAT(std::vector<uint64_t>(keys.begin(), keys.begin() + 8),
              ElementsAre(user.OfCategory("7"), level.OfBucket(0), rome, item.OfCategory("a"),
                          item.OfCategory("b"), hashed(hours, "0", 7), hashed(hours, "1", 7),
                          both.OfCross({user.OfCategory("7"), rome})));
  EXPECT_THAT(std::vector<uint64_t>(keys.begin() + 8, keys.begin() + 12),
              ElementsAre(user.OfCategory("guest"), level.OfBucket(50), oslo,
                          both.OfCross({user.OfCategory("guest"), oslo})));
  // The fourth row has ["a", "", "a"], and the last two elements are used; an absent text is "".
  EXPECT_THAT(
      std::vector<uint64_t>(keys.begin() + 20, keys.begin() + 26),
      ElementsAre(user.OfCategory("4611686018427387904"), level.OfBucket(1), hashed(city, "", 50),
                  item.OfCategory(""), item.OfCategory("a"),
                  both.OfCross({user.OfCategory("4611686018427387904"), hashed(city, "", 50)})));
}

TEST(RecordReaderTest, ReadsTheWorkedExample) {
  std::ifstream page("worker/data/records/README.md");
  std::string line, bytes;
  while (std::getline(page, line) && line.find("A worked example") == std::string::npos) continue;
  while (std::getline(page, line)) {
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      const bool is_byte =
          word.size() == 2 && absl::ascii_isxdigit(word[0]) && absl::ascii_isxdigit(word[1]);
      if (!is_byte) break;
      bytes += absl::HexStringToBytes(word);
    }
  }
  SampleStore store(kNoLimit);
  BadSamples bad(1);
  ASSERT_EQ(
      Read(bytes, "columns { name: 'y' source: 'x' label {} } columns { name: 'x' categorical {} }",
           &store, &bad),
      absl::OkStatus());
  EXPECT_THAT(store.labels, ElementsAre(7, 7));
  EXPECT_THAT(store.keys(), ElementsAre(FeatureKey("x").OfCategory("7")));
  EXPECT_THAT(bad.shown(),
              ElementsAre(HasSubstr("record 3 in the block at byte 25: column 'x': the "
                                    "sample has no value")));
}

TEST(RecordReaderTest, CompressedBlocksGiveTheSameSamples) {
  SampleStore small(kNoLimit), zlib(kNoLimit), zstd(kNoLimit);
  ASSERT_EQ(Read(File("small.rec"), kColumns, &small), absl::OkStatus());
  ASSERT_EQ(Read(File("hundred_zlib.rec"), kColumns, &zlib), absl::OkStatus());
  ASSERT_EQ(Read(File("hundred_zstd.rec"), kColumns, &zstd), absl::OkStatus());
  EXPECT_EQ(zlib.size(), 100u);
  for (const SampleStore* store : {&zlib, &zstd}) {
    EXPECT_EQ(store->keys(), small.keys());
    EXPECT_EQ(store->entries.size(), 10 * small.entries.size());
    EXPECT_TRUE(
        std::equal(small.entries.begin(), small.entries.end(),
                   store->entries.end() - static_cast<std::ptrdiff_t>(small.entries.size())));
    EXPECT_EQ(store->field_counts.size(), 10 * small.field_counts.size());
  }
}

TEST(RecordReaderTest, ReadsFromAnyBlockOn) {
  const std::string bytes = File("small.rec");
  const std::vector<size_t> blocks = Blocks(bytes);
  ASSERT_EQ(blocks.size(), 4u) << "three blocks and the end";
  // A part of the file may end after any block.
  for (const size_t end : {blocks[2], blocks[3], bytes.size()}) {
    MemorySource source(absl::string_view(bytes).substr(blocks[1], end - blocks[1]));
    const auto reader = RecordReader::OpenBehind(absl::string_view(bytes).substr(0, blocks[0]),
                                                 source, "t.rec", Spec(kColumns), {blocks[1], 4});
    ASSERT_TRUE(reader.ok()) << reader.status();
    SampleStore store(kNoLimit);
    store.shape = (*reader)->shape();
    EXPECT_TRUE((*reader)->IsAtBoundary());
    ASSERT_TRUE((*reader)->Skip().value());
    EXPECT_FALSE((*reader)->IsAtBoundary());
    ASSERT_TRUE((*reader)->Next(&store).value());
    EXPECT_EQ((*reader)->lines(), 6u);
    EXPECT_THAT(store.sample_weights, ElementsAre(1.25));
    BadSamples bad;
    ASSERT_EQ(ReadSamples(**reader, "t.rec", &store, &bad), absl::OkStatus());
    EXPECT_EQ(store.size(), end == blocks[2] ? 3u : 5u);
    EXPECT_EQ((*reader)->offset(), std::min(end, blocks[3]) - blocks[1]);
  }
}

TEST(RecordReaderTest, MalformedSamplesAreNamedAndCanBeSkipped) {
  const std::string spec = R"(
    columns { name: "label" label {} }
    columns { name: "city" numeric {} }
  )";
  EXPECT_EQ(Error(File("small.rec"), spec),
            absl::StrCat("t.rec: record 1 in the block at byte ", Blocks(File("small.rec"))[0],
                         ": column 'city': 'Rome' is not a number"));
  const std::string price =
      "columns { name: 'label' label {} } columns { name: 'price' numeric {} }";
  EXPECT_THAT(Error(File("small.rec"), price),
              HasSubstr("record 2 in the block at byte 82: column 'price': the sample has no "
                        "value; set `missing`"));
  SampleStore store(kNoLimit);
  BadSamples bad(1);
  ASSERT_EQ(Read(File("small.rec"), price, &store, &bad), absl::OkStatus());
  EXPECT_EQ(bad.count(), 1u);
  EXPECT_EQ(store.size(), 9u);
  EXPECT_EQ(store.numerics.size(), 9u);
}

TEST(RecordReaderTest, ColumnsMustFitTheFile) {
  EXPECT_THAT(Error(File("small.rec"),
                    "columns { name: 'label' label {} } columns { name: 'town' categorical {} }"),
              HasSubstr("t.rec: column 'town' is not in the file, which has 'label', 'weight', "
                        "'user', 'price', 'city', 'items', 'hours'"));
  EXPECT_THAT(Error(File("small.rec"),
                    "columns { name: 'hours' label {} } columns { name: 'city' categorical {} }"),
              HasSubstr("column 'hours' is a list, but the job reads it as one number"));
  EXPECT_THAT(Error(File("small.rec"),
                    "columns { name: 'label' label {} } columns { name: 'items' categorical {} }"),
              HasSubstr("record 1 in the block at byte 82: column 'items': the sample has 2 "
                        "values; set `list`"));
  EXPECT_THAT(
      Error(File("small.rec"),
            "columns { name: 'label' label {} } columns { name: 'user' list {} categorical {} }"),
      HasSubstr("column 'user' is not a list, but the job has `list` for it"));
}

TEST(RecordReaderTest, EveryDamagedByteIsNoticed) {
  const std::string good = File("small.rec");
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    SampleStore store(kNoLimit);
    const absl::Status status = Read(bytes, kColumns, &store);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << at;
    EXPECT_THAT(status.message(), HasSubstr("t.rec: ")) << at;
  }
}

TEST(RecordReaderTest, CutFileIsNoticed) {
  const std::string good = File("small.rec");
  for (size_t size = 0; size < good.size(); ++size) {
    SampleStore store(kNoLimit);
    EXPECT_EQ(Read(good.substr(0, size), kColumns, &store).code(),
              absl::StatusCode::kInvalidArgument)
        << size;
  }
  const std::vector<size_t> blocks = Blocks(good);
  EXPECT_THAT(Error(good.substr(0, blocks[2])),
              HasSubstr(absl::StrCat("block at byte ", blocks[2], ": the file ends early")));
  EXPECT_THAT(Error(good.substr(0, blocks[2] - 1)), HasSubstr("the file ends within the block"));
  EXPECT_THAT(Error(good + good), HasSubstr("files cannot be joined"));
  EXPECT_THAT(Error(good.substr(0, blocks[1]) + good.substr(blocks[2])),
              HasSubstr("it follows 8 rows, but the file has 4 before it"));
  EXPECT_THAT(Error("label,x\n1,2\n"), HasSubstr("t.rec: is not a record file"));
}

TEST(RecordReaderTest, BlockWithGoodChecksumsMayStillBeMalformed) {
  const std::string good = File("small.rec");
  const size_t block = Blocks(good)[0];
  const auto changed = [&](size_t at, char value, bool in_head = false) {
    std::string bytes = good;
    bytes[block + at + (in_head ? 0 : kRecordBlockHeadBytes)] = value;
    Sign(&bytes, block);
    return Error(bytes);
  };
  EXPECT_THAT(changed(16, 3, true), HasSubstr("beyond what this version of Pawl reads"));
  EXPECT_THAT(changed(16, 2, true), HasSubstr("cannot be decompressed"));
  EXPECT_THAT(changed(4, 5, true), HasSubstr("column 'label' of the block is malformed"));
  EXPECT_THAT(changed(0, 7), HasSubstr("column 'label' of the block is malformed"));
  EXPECT_THAT(changed(4, 3), HasSubstr("column 'label' of the block is malformed"));
  // Numbers of the label's dictionary.
  const size_t numbers = 12 + 2 * 4;
  EXPECT_EQ(good[block + kRecordBlockHeadBytes + 1], 1) << "the test expects a dictionary";
  EXPECT_THAT(changed(numbers, 2), HasSubstr("column 'label' of the block is malformed"));
}

}  // namespace
}  // namespace pawl
