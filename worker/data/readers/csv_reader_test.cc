#include "worker/data/readers/csv_reader.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/feature_key.h"
#include "worker/data/readers/testing/read_samples.h"

namespace pawl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kNoLimit = uint64_t{1} << 40;

constexpr char kFlights[] = R"(
  columns { name: "delay" label { greater_than: 15 } }
  columns { name: "route" crossed { columns: "origin" columns: "destination" } }
  columns { name: "origin" categorical {} }
  columns { name: "destination" categorical {} }
  columns { name: "distance" bucketized { width: 100 } }
  columns { name: "miles" source: "distance" numeric { mean: 1000 scale: 500 } }
)";
constexpr char kHeader[] = "distance,delay,unused,origin,destination\n";

CsvSpec Spec(const std::string& text) {
  CsvSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

absl::Status Read(const std::string& spec, const std::string& text, SampleStore* store) {
  MemorySource source(text);
  return ReadCsv(source, "t.csv", Spec(spec), store);
}

std::string Error(const std::string& spec, const std::string& text) {
  SampleStore store(kNoLimit);
  const absl::Status status = Read(spec, text, &store);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << spec << "\n" << text;
  return std::string(status.message());
}

// Reads the texts, one line each, as a feature of this kind, and returns its keys.
std::vector<uint64_t> Keys(const std::string& kind, const std::string& lines) {
  SampleStore store(kNoLimit);
  const absl::Status status = Read(
      "columns { name: 'y' label {} } columns { name: 'x' " + kind + " }", "y,x\n" + lines, &store);
  EXPECT_TRUE(status.ok()) << status;
  std::vector<uint64_t> keys;
  for (const uint32_t entry : store.entries) keys.push_back(store.keys()[entry]);
  return keys;
}

TEST(CsvReaderTest, ReadsEveryKindOfColumn) {
  SampleStore store(kNoLimit);
  ASSERT_TRUE(
      Read(kFlights, std::string(kHeader) + "2176,33,x,LAS,PHL\n215,15,y,ATL,LAS\n", &store).ok());
  EXPECT_EQ(store.shape.field_count, 4u);
  EXPECT_EQ(store.shape.numeric_count, 1u);
  EXPECT_THAT(store.labels, ElementsAre(1, 0));
  EXPECT_THAT(store.numerics, ElementsAre(2.352f, -1.57f));
  EXPECT_THAT(store.sample_begin, IsEmpty());
  EXPECT_THAT(store.weights, IsEmpty());
  const FeatureKey route("route"), origin("origin"), destination("destination"),
      distance("distance");
  EXPECT_THAT(
      store.keys(),
      ElementsAre(route.OfCross({origin.OfCategory("LAS"), destination.OfCategory("PHL")}),
                  origin.OfCategory("LAS"), destination.OfCategory("PHL"), distance.OfBucket(21),
                  route.OfCross({origin.OfCategory("ATL"), destination.OfCategory("LAS")}),
                  origin.OfCategory("ATL"), destination.OfCategory("LAS"), distance.OfBucket(2)));
  EXPECT_THAT(store.entries, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(CsvReaderTest, LabelWithoutThresholdIsTheNumber) {
  SampleStore store(kNoLimit);
  ASSERT_TRUE(Read("columns { name: 'y' label {} } columns { name: 'x' numeric {} }",
                   "x,y\n1,2.5\n3,-4\n", &store)
                  .ok());
  EXPECT_THAT(store.labels, ElementsAre(2.5, -4));
  EXPECT_THAT(store.numerics, ElementsAre(1, 3));
}

TEST(CsvReaderTest, BucketsByWidthAreFloors) {
  const FeatureKey x("x");
  EXPECT_THAT(Keys("bucketized { width: 0.5 }", "0,0\n0,0.49\n0,0.5\n0,-0.1\n"),
              ElementsAre(x.OfBucket(0), x.OfBucket(0), x.OfBucket(1), x.OfBucket(-1)));
}

TEST(CsvReaderTest, BucketsByBoundariesCountReachedBoundaries) {
  const FeatureKey x("x");
  EXPECT_THAT(
      Keys("bucketized { boundaries: 1 boundaries: 10 }", "0,0\n0,1\n0,9.9\n0,10\n0,99\n"),
      ElementsAre(x.OfBucket(0), x.OfBucket(1), x.OfBucket(1), x.OfBucket(2), x.OfBucket(2)));
}

TEST(CsvReaderTest, HashedCategoriesFallIntoTheirBuckets) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "0,category" + std::to_string(i) + "\n";
  std::vector<uint64_t> keys = Keys("hashed { buckets: 10 }", lines);
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  std::vector<uint64_t> expected;
  for (int i = 0; i < 10; ++i) expected.push_back(FeatureKey("x").OfBucket(i));
  EXPECT_THAT(keys, ::testing::UnorderedElementsAreArray(expected));
}

TEST(CsvReaderTest, CrossesCanBeHashed) {
  SampleStore store(kNoLimit);
  std::string lines = "y,a,b\n";
  for (int i = 0; i < 400; ++i)
    lines += "0," + std::to_string(i % 20) + "," + std::to_string(i / 20) + "\n";
  ASSERT_TRUE(Read(R"(columns { name: 'y' label {} } columns { name: 'a' categorical {} }
                      columns { name: 'b' hashed { buckets: 100 } }
                      columns { name: 'ab' crossed { columns: 'a' columns: 'b' buckets: 5 } })",
                   lines, &store)
                  .ok());
  std::vector<uint64_t> crossed;
  for (size_t i = 2; i < store.entries.size(); i += 3)
    crossed.push_back(store.keys()[store.entries[i]]);
  std::sort(crossed.begin(), crossed.end());
  EXPECT_EQ(std::unique(crossed.begin(), crossed.end()) - crossed.begin(), 5);
}

TEST(CsvReaderTest, QuotedCategoriesReadAsTheirText) {
  EXPECT_EQ(
      Keys("categorical {}", "0,\"a,b\"\n0,\"LAS\"\n0,LAS\n"),
      (std::vector<uint64_t>{FeatureKey("x").OfCategory("a,b"), FeatureKey("x").OfCategory("LAS"),
                             FeatureKey("x").OfCategory("LAS")}));
}

TEST(CsvReaderTest, MalformedLinesNameFileLineAndColumn) {
  const std::string good = std::string(kHeader) + "1,2,x,A,B\n";
  EXPECT_EQ(Error(kFlights, good + "abc,3,x,A,B\n"),
            "t.csv:3:1: column 'distance': 'abc' is not a number");
  EXPECT_EQ(Error(kFlights, good + "1,,x,A,B\n"), "t.csv:3:3: column 'delay': '' is not a number");
  EXPECT_EQ(Error(kFlights, good + "\n\"1\",\"nan\",x,A,B\n"),
            "t.csv:4:5: column 'delay': 'nan' is not a number");
  EXPECT_EQ(Error(kFlights, good + "1,2,x,A\n"),
            "t.csv:3:1: the line has 4 fields, but the header has 5");
  EXPECT_EQ(Error(kFlights, good + "1,2,x,A,B,C\n"),
            "t.csv:3:1: the line has 6 fields, but the header has 5");
  EXPECT_EQ(Error(kFlights, good + "1e300,2,x,A,B\n"),
            "t.csv:3:1: column 'distance': '1e300' is too large for its buckets");
}

TEST(CsvReaderTest, ValuesBeyondFloat32AreRefused) {
  const std::string spec =
      "columns { name: 'y' label {} } columns { name: 'x' numeric { scale: 1e-30 } }";
  EXPECT_EQ(Error(spec, "x,y\n1e10,0\n"),
            "t.csv:2:1: column 'x': '1e10' is out of float32's range");
  EXPECT_EQ(Error(spec, "x,y\n0,1e39\n"),
            "t.csv:2:3: column 'y': '1e39' is out of float32's range");
}

TEST(CsvReaderTest, HeaderMustHaveEachColumnOnce) {
  EXPECT_EQ(Error(kFlights, "distance,delay,origin\n"),
            "t.csv:1:1: column 'destination' is not in the header, which has 'distance', "
            "'delay', 'origin'");
  EXPECT_EQ(Error(kFlights, "distance,delay,origin,destination,delay\n"),
            "t.csv:1:35: column 'delay' is in the header twice");
  EXPECT_THAT(Error(kFlights, ""), HasSubstr("t.csv: is empty"));
}

TEST(CsvReaderTest, BadSpecsNameTheField) {
  const std::string y = "columns { name: 'y' label {} } ";
  const std::pair<std::string, std::string> cases[] = {
      {"", "data.csv.columns is empty"},
      {"columns { name: 'x' numeric {} }", "has 0 label columns"},
      {y, "a label and no feature"},
      {y + "columns { numeric {} }", "data.csv.columns[1].name is empty"},
      {y + "columns { name: 'x' }", "data.csv.columns[1] (x) has no kind"},
      {y + "columns { name: 'x' numeric {} } columns { name: 'x' categorical {} }",
       "data.csv.columns[2] (x): the name is used twice"},
      {y + "columns { name: 'x' numeric { mean: nan } }", "(x).numeric: mean is nan"},
      {y + "columns { name: 'x' numeric { scale: inf } }", "scale inf"},
      {"columns { name: 'y' label { greater_than: nan } }", "label.greater_than is not a finite"},
      {y + "columns { name: 'x' bucketized {} }", "either width or boundaries"},
      {y + "columns { name: 'x' bucketized { width: 1 boundaries: 1 } }",
       "either width or boundaries"},
      {y + "columns { name: 'x' bucketized { width: -1 } }", "bucketized.width is -1"},
      {y + "columns { name: 'x' bucketized { boundaries: 2 boundaries: 2 } }",
       "bucketized.boundaries[1] is 2"},
      {y + "columns { name: 'x' hashed {} }", "hashed.buckets is 0"},
      {y + "columns { name: 'x' categorical {} } columns { name: 'c' crossed { columns: 'x' } }",
       "at least 2"},
      {y + "columns { name: 'x' categorical {} } columns { name: 'c' crossed { columns: 'x' "
           "columns: 'z' } }",
       "names 'z', which is not in data.csv.columns"},
      {y + "columns { name: 'x' categorical {} } columns { name: 'c' crossed { columns: 'x' "
           "columns: 'y' } }",
       "names 'y', which is not bucketized"},
      {y + "columns { name: 'x' categorical {} } columns { name: 'c' source: 'x' crossed { "
           "columns: 'x' columns: 'x' } "
           "}",
       "source is set"},
  };
  for (const auto& [spec, expected] : cases)
    EXPECT_THAT(Error(spec, "y,x,z\n"), HasSubstr(expected)) << spec;
}

TEST(CsvReaderTest, MemoryLimitIsRespected) {
  std::string text = kHeader;
  for (int i = 0; i < 10000; ++i) text += "1,2,x,A,B\n";
  SampleStore store(100000);
  const absl::Status status = Read(kFlights, text, &store);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LT(store.memory_bytes(), 400000u);
}

TEST(CsvReaderTest, ColumnsByPositionNeedNoHeader) {
  constexpr char kSpec[] = R"(
    delimiter: "\t" no_header: true
    columns { name: "label" position: 1 label {} }
    columns { name: "i" position: 2 numeric { missing: -2 } }
    columns { name: "c" position: 4 categorical {} }
  )";
  SampleStore store(kNoLimit);
  ASSERT_TRUE(Read(kSpec, "1\t5\tunused\ta,b\n0\t\t\t\n", &store).ok());
  EXPECT_THAT(store.labels, ElementsAre(1, 0));
  EXPECT_THAT(store.numerics, ElementsAre(5, -2));
  EXPECT_THAT(store.keys(),
              ElementsAre(FeatureKey("c").OfCategory("a,b"), FeatureKey("c").OfCategory("")));
  EXPECT_EQ(Error(kSpec, "1\t5\tx\n"),
            "t.csv:1:1: column 'c' is at position 4, but the line has 3 fields");
  EXPECT_EQ(Error(kSpec, "1\t5\tx\ty\n1\t2\n"),
            "t.csv:2:1: the line has 2 fields, but the first line has 4");
  SampleStore empty(kNoLimit);
  ASSERT_TRUE(Read(kSpec, "", &empty).ok());
  EXPECT_EQ(empty.size(), 0u);
}

TEST(CsvReaderTest, MalformedRecordsBeforeTheFirstOneAreSamples) {
  const CsvSpec spec = Spec(
      "no_header: true columns { name: 'y' label {} position: 1 } "
      "columns { name: 'x' categorical {} position: 2 }");
  MemorySource source("1,\"a\"b\n2\n3,c\n4,d,e\n");
  const auto reader = CsvReader::Open(source, "t.csv", spec);
  ASSERT_TRUE(reader.ok()) << reader.status();
  SampleStore store(kNoLimit);
  store.shape = (*reader)->shape();
  for (const char* error : {"t.csv:1:6: text after", "t.csv:2:1: column 'x' is at position 2"}) {
    const absl::StatusOr<bool> more = (*reader)->Next(&store);
    EXPECT_THAT(more.status().message(), HasSubstr(error));
    EXPECT_TRUE((*reader)->IsAtSample());
    EXPECT_FALSE((*reader)->IsAtBoundary());
  }
  EXPECT_TRUE((*reader)->Next(&store).value());
  EXPECT_TRUE((*reader)->IsAtBoundary());
  EXPECT_THAT(store.labels, ElementsAre(3));
  EXPECT_THAT((*reader)->Next(&store).status().message(), HasSubstr("the first line has 2"));

  MemorySource again("1,\"a\"b\n2\n3,c\n");
  const auto skipping = CsvReader::Open(again, "t.csv", spec);
  ASSERT_TRUE(skipping.ok()) << skipping.status();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE((*skipping)->Skip().value());
  EXPECT_FALSE((*skipping)->Skip().value());
}

TEST(CsvReaderTest, FileOfMalformedRecordsIsRefusedAtOnce) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "1\n";
  text += "1,a\n";
  MemorySource source(text);
  EXPECT_EQ(CsvReader::Open(source, "t.csv",
                            Spec("no_header: true columns { name: 'y' label {} position: 1 } "
                                 "columns { name: 'x' categorical {} position: 2 }"))
                .status(),
            absl::InvalidArgumentError(
                "t.csv:1:1: column 'x' is at position 2, but the line has 1 fields"));
}

TEST(CsvReaderTest, PositionIsCountedInTheHeader) {
  SampleStore store(kNoLimit);
  ASSERT_TRUE(
      Read("columns { name: 'y' label {} } columns { name: 'f' position: 1 categorical {} }",
           "x,y\na,3\n", &store)
          .ok());
  EXPECT_THAT(store.labels, ElementsAre(3));
  EXPECT_THAT(store.keys(), ElementsAre(FeatureKey("f").OfCategory("a")));
}

TEST(CsvReaderTest, QuotesMayBePlainCharacters) {
  SampleStore store(kNoLimit);
  ASSERT_TRUE(Read("no_quotes: true columns { name: 'y' label {} } columns { name: 'x' "
                   "categorical {} }",
                   "y,x\n1,\"a\n", &store)
                  .ok());
  EXPECT_THAT(store.keys(), ElementsAre(FeatureKey("x").OfCategory("\"a")));
}

TEST(CsvReaderTest, LogarithmComesBeforeScaling) {
  SampleStore store(kNoLimit);
  ASSERT_TRUE(Read("columns { name: 'y' label {} } columns { name: 'x' numeric { log1p: true mean: "
                   "1 scale: 2 missing: 0 } }",
                   "y,x\n0,0\n0,1.5\n0,-3\n0,99\n0,\n", &store)
                  .ok());
  const auto expected = [](double log) { return static_cast<float>((log - 1) / 2); };
  EXPECT_THAT(store.numerics,
              ElementsAre(expected(0), testing::FloatEq(expected(std::log(2.5))),
                          testing::FloatEq(expected(-std::log(4.0))),
                          testing::FloatEq(expected(std::log(100.0))), expected(0)));
}

TEST(CsvReaderTest, EmptyNumberIsRefusedWithAdvice) {
  EXPECT_THAT(Error("columns { name: 'y' label {} } columns { name: 'x' numeric {} }", "y,x\n1,\n"),
              HasSubstr("t.csv:2:3: column 'x': '' is not a number; set `missing`"));
}

TEST(CsvReaderTest, BadDialectsNameTheField) {
  const std::string columns = "columns { name: 'y' label {} } columns { name: 'x' categorical {} }";
  EXPECT_THAT(Error("delimiter: 'ab' " + columns, ""), HasSubstr("data.csv.delimiter is 'ab'"));
  EXPECT_THAT(Error("delimiter: '\"' " + columns, ""), HasSubstr("data.csv.delimiter"));
  EXPECT_THAT(Error("no_header: true " + columns, ""),
              HasSubstr("data.csv.columns[0] (y) has no position"));
  EXPECT_THAT(Error("columns { name: 'y' label {} } columns { name: 'x' source: 'z' position: 1 "
                    "categorical {} }",
                    ""),
              HasSubstr("has both source and position"));
}

TEST(CsvReaderTest, ListsHaveTheLastElementsOfTheirField) {
  SampleStore store(kNoLimit);
  ASSERT_EQ(Read(R"(columns { name: "y" label {} }
                    columns { name: "tags" list { separator: "|" max_length: 3 } categorical {} }
                    columns { name: "c" categorical {} }
                    columns { name: "ids" list { separator: ", " } hashed { buckets: 9 } })",
                 "y,c,tags,ids\n"
                 "0,x,a|b,\"5, 6\"\n"
                 "1,x,,\n"
                 "2,x,a|b|c||d,7\n"
                 "3,x,|,\"\"\n",
                 &store),
            absl::OkStatus());
  EXPECT_EQ(store.shape.field_count, 3u);
  EXPECT_THAT(store.field_counts, ElementsAre(2, 1, 2,  //
                                              0, 1, 0,  //
                                              3, 1, 1,  //
                                              2, 1, 0));
  EXPECT_THAT(store.sample_begin, ElementsAre(0, 5, 6, 11, 14));
  EXPECT_THAT(store.weights, IsEmpty());
  std::vector<uint64_t> keys;
  for (const uint32_t entry : store.entries) keys.push_back(store.keys()[entry]);
  const FeatureKey tags("tags"), ids("ids");
  const uint64_t x = FeatureKey("c").OfCategory("x");
  const auto id = [&ids](absl::string_view text) { return ids.OfHashed(ids.OfCategory(text), 9); };
  EXPECT_THAT(keys, ElementsAre(tags.OfCategory("a"), tags.OfCategory("b"), x, id("5"), id("6"),  //
                                x,                                                                //
                                tags.OfCategory("c"), tags.OfCategory(""), tags.OfCategory("d"), x,
                                id("7"),  //
                                tags.OfCategory(""), tags.OfCategory(""), x));
}

TEST(CsvReaderTest, ListsHaveAtMost1024Elements) {
  std::string field = "first";
  for (int i = 0; i < 1024; ++i) field += "|" + std::to_string(i);
  const std::vector<uint64_t> keys =
      Keys("list { separator: '|' } categorical {}", "0," + field + "\n");
  ASSERT_EQ(keys.size(), 1024u);
  EXPECT_EQ(keys.front(), FeatureKey("x").OfCategory("0"));
  EXPECT_EQ(keys.back(), FeatureKey("x").OfCategory("1023"));
}

TEST(CsvReaderTest, ColumnsOfADomainShareKeys) {
  SampleStore store(kNoLimit);
  ASSERT_EQ(Read(R"(columns { name: "y" label {} }
                    columns { name: "item" categorical {} }
                    columns { name: "history" list { separator: " " } categorical {} domain: "item" })",
                 "y,item,history\n1,a,b a\n", &store),
            absl::OkStatus());
  EXPECT_THAT(store.entries, ElementsAre(0, 1, 0));
  EXPECT_THAT(store.keys(),
              ElementsAre(FeatureKey("item").OfCategory("a"), FeatureKey("item").OfCategory("b")));
}

TEST(CsvReaderTest, EmptyCategoryMayStandForAnother) {
  EXPECT_EQ(Keys("categorical { missing: 'none' }", "0,\n0,none\n"),
            std::vector<uint64_t>(2, FeatureKey("x").OfCategory("none")));
  const FeatureKey x("x");
  EXPECT_EQ(Keys("hashed { buckets: 1000 missing: 'none' }", "0,\n"),
            std::vector<uint64_t>{x.OfHashed(x.OfCategory("none"), 1000)});
}

TEST(CsvReaderTest, ReadsSeveralLabelsAndWeights) {
  constexpr char kSpec[] = R"(
    columns { name: "click" label {} }
    columns { name: "c" categorical {} }
    columns { name: "w" weight {} }
    columns { name: "bought" source: "price" label { greater_than: 0 } }
  )";
  SampleStore store(kNoLimit);
  ASSERT_EQ(Read(kSpec, "c,w,click,price\nx,0.5,1,0\nx,2,0,3\n", &store), absl::OkStatus());
  EXPECT_EQ(store.size(), 2u);
  EXPECT_EQ(store.shape.label_count, 2u);
  EXPECT_THAT(store.labels, ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(store.sample_weights, ElementsAre(0.5, 2));
  EXPECT_EQ(Error(kSpec, "c,w,click,price\nx,-1,1,0\n"),
            "t.csv:2:3: column 'w': '-1' is no weight; a weight is a number of at least 0");
  EXPECT_EQ(Error(kSpec, "c,w,click,price\nx,,1,0\n"), "t.csv:2:3: column 'w': '' is not a number");
}

}  // namespace
}  // namespace pawl
