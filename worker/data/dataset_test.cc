#include "worker/data/dataset.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/batch_assembler.h"

namespace pawl {
namespace {

using ::testing::HasSubstr;

std::string Path(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

std::string Write(const std::string& name, const std::string& bytes) {
  std::ofstream(Path(name), std::ios::binary) << bytes;
  return Path(name);
}

std::string WriteGzip(const std::string& name, const std::string& bytes) {
  gzFile file = gzopen(Path(name).c_str(), "wb");
  EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
            static_cast<int>(bytes.size()));
  EXPECT_EQ(gzclose(file), Z_OK);
  return Path(name);
}

std::string Zstd(const std::string& bytes) {
  std::string compressed(ZSTD_compressBound(bytes.size()), '\0');
  compressed.resize(
      ZSTD_compress(compressed.data(), compressed.size(), bytes.data(), bytes.size(), 3));
  return compressed;
}

Data Libsvm(uint32_t fields = 0) {
  Data spec;
  spec.set_format(LIBSVM);
  spec.set_libsvm_fields(fields);
  return spec;
}

Data Csv() {
  Data spec;
  spec.set_format(CSV);
  Column* const label = spec.mutable_csv()->add_columns();
  label->set_name("y");
  label->mutable_label();
  Column* const feature = spec.mutable_csv()->add_columns();
  feature->set_name("x");
  feature->mutable_categorical();
  return spec;
}

Data Idx() {
  Data spec;
  spec.set_format(IDX);
  return spec;
}

absl::Status LoadError(const Data& spec, const std::string& path,
                       const DatasetOptions& options = {}) {
  return Dataset::Load(spec, path, options).status();
}

TEST(DatasetTest, LoadsEachFormatPlainAndCompressed) {
  const std::string csv = "y,x\n0,a\n3,b\n";
  for (const std::string& path :
       {Write("t.csv", csv), WriteGzip("t.csv.gz", csv), Write("t.csv.zst", Zstd(csv)),
        Write("frames.zst", Zstd("y,x\n0,") + Zstd("a\n3,b\n"))}) {
    SCOPED_TRACE(path);
    const auto dataset = Dataset::Load(Csv(), path);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->size(), 2u);
    EXPECT_EQ((*dataset)->shape().field_count, 1u);
    EXPECT_EQ((*dataset)->distinct_keys(), 2u);
  }
  const auto libsvm =
      Dataset::Load(Libsvm(), WriteGzip("t.libsvm.gz", "1 1:1 2:1\n0 2:1\n0 1:1\n"));
  ASSERT_TRUE(libsvm.ok()) << libsvm.status();
  EXPECT_EQ((*libsvm)->size(), 3u);
  EXPECT_EQ((*libsvm)->shape().field_count, 2u);
  const std::string images("\0\0\10\3\0\0\0\1\0\0\0\1\0\0\0\2ab", 18);
  const std::string labels("\0\0\10\1\0\0\0\1\7", 9);
  Write("t-images-idx3-ubyte", images);
  Write("t-labels-idx1-ubyte", labels);
  const auto idx = Dataset::Load(Idx(), Path("t-images-idx3-ubyte"));
  ASSERT_TRUE(idx.ok()) << idx.status();
  EXPECT_EQ((*idx)->shape().numeric_count, 2u);
  EXPECT_EQ((*idx)->labels().max, 7);
}

TEST(DatasetTest, SamplesOfSeveralFilesFollowEachOther) {
  const auto csv = Dataset::Load(Csv(), std::vector<std::string>{Write("1.csv", "y,x\n0,a\n3,b\n"),
                                                                 Write("2.csv", "x,y\nb,5\n")});
  ASSERT_TRUE(csv.ok()) << csv.status();
  EXPECT_EQ((*csv)->size(), 3u);
  EXPECT_EQ((*csv)->labels().max, 5);
  EXPECT_EQ((*csv)->distinct_keys(), 2u);
  // The longest line of all files determines the fields.
  const auto libsvm = Dataset::Load(
      Libsvm(),
      std::vector<std::string>{Write("1.libsvm", "1 1:1 2:1 3:1\n"), Write("2.libsvm", "0 1:2\n")});
  ASSERT_TRUE(libsvm.ok()) << libsvm.status();
  EXPECT_EQ((*libsvm)->size(), 2u);
  EXPECT_EQ((*libsvm)->shape().field_count, 3u);
}

TEST(DatasetTest, MalformedSamplesUpToTheLimitAreSkippedAndShown) {
  const std::string csv = Write("some.csv", "y,x\n1,a\nq,b\n2,\"b\"c\n4,d\n1\n");
  for (uint64_t limit = 0; limit < 3; ++limit) {
    const absl::Status status = LoadError(Csv(), csv, {.max_bad_samples = limit});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("some.csv:3:1: column 'y': 'q' is not a number"));
  }
  const auto dataset = Dataset::Load(Csv(), csv, {.max_bad_samples = 3});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 2u);
  EXPECT_EQ((*dataset)->labels().max, 4);
  EXPECT_EQ((*dataset)->bad_samples().count(), 3u);
  EXPECT_THAT((*dataset)->bad_samples().shown()[1], HasSubstr("some.csv:4:6: text after"));

  const std::string libsvm =
      Write("some.libsvm", "1 1:1\n0 1:2 x\n" + std::string(3 << 20, 'x') + "\n0 2:1\n");
  const auto lines = Dataset::Load(Libsvm(), libsvm, {.max_bad_samples = 2});
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_EQ((*lines)->size(), 2u);
  EXPECT_EQ((*lines)->distinct_keys(), 2u);
  EXPECT_THAT((*lines)->bad_samples().shown()[1], HasSubstr("some.libsvm:3:1: the line is longer"));
}

TEST(DatasetTest, FingerprintTellsDataApart) {
  const auto fingerprint = [](const std::string& lines) {
    return Dataset::Load(Libsvm(), Write("fingerprint", lines)).value()->fingerprint();
  };
  const uint64_t one = fingerprint("1 1:1 2:0.5\n0 3:1\n");
  EXPECT_EQ(fingerprint("1 1:1 2:0.5\n0 3:1\n"), one);
  for (const char* other : {"1 1:1 2:0.25\n0 3:1\n", "0 1:1 2:0.5\n0 3:1\n", "1 1:1 4:0.5\n0 3:1\n",
                            "0 3:1\n1 1:1 2:0.5\n", "1 1:1 2:0.5\n0 3:1\n0 3:1\n"}) {
    EXPECT_NE(fingerprint(other), one) << other;
  }
}

TEST(DatasetTest, MissingFileIsNotFoundAndNamed) {
  for (const Data& spec : {Csv(), Libsvm()}) {
    const absl::Status status = LoadError(spec, Path("absent.txt"));
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr("absent.txt"));
  }
  const absl::Status status = LoadError(Idx(), Write("lonely-images-idx3-ubyte", "x"));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("lonely-labels-idx1-ubyte"));
}

TEST(DatasetTest, FileWithoutSamplesIsRefused) {
  for (const auto& [spec, text] : {std::pair{Csv(), "y,x\n"}, std::pair{Libsvm(), "# nothing\n"}}) {
    const absl::Status status = LoadError(spec, Write("empty.txt", text));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("empty.txt: has no samples"));
  }
}

TEST(DatasetTest, MalformedLineIsNamedThroughGzip) {
  EXPECT_THAT(LoadError(Csv(), WriteGzip("bad.csv.gz", "y,x\n1,a\nq,b\n")).message(),
              HasSubstr("bad.csv.gz:3:1: column 'y': 'q' is not a number"));
}

TEST(DatasetTest, MalformedTrainingSampleComesWithARemedy) {
  const std::string path = Write("remedy.csv", "y,x\n1,a\nq,b\n");
  EXPECT_EQ(LoadError(Csv(), path, {.is_training = true}).message(),
            path +
                ":3:1: column 'y': 'q' is not a number; correct it, or set "
                "data.max_bad_samples to skip malformed samples");
  EXPECT_EQ(LoadError(Csv(), path).message(), path + ":3:1: column 'y': 'q' is not a number");
}

TEST(DatasetTest, EvaluationFileTakesTheTrainingShape) {
  const DatasetOptions options{.shape = DataShape{0, 3}};
  const std::string path = Write("eval.libsvm", "1 1:1\n");
  const auto dataset = Dataset::Load(Libsvm(), path, options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->shape().field_count, 3u);
  const absl::Status status = LoadError(Libsvm(2), path, options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("2 categorical fields, but the training data has 0 and 3"));
}

TEST(DatasetTest, FileWithTooManyPairsForOneFieldEachIsNamed) {
  std::string longest = "1";
  for (uint32_t i = 0; i <= SampleStore::kMaxFields; ++i) absl::StrAppend(&longest, " ", i, ":1");
  const std::string file = Write("long.libsvm", longest);
  EXPECT_THAT(Dataset::Load(Libsvm(), std::vector<std::string>{Write("a.libsvm", "1 1:1\n"), file,
                                                               Write("b.libsvm", "1 1:1\n")})
                  .status()
                  .message(),
              HasSubstr(file + ": a line has 4097 pairs"));
}

TEST(DatasetTest, MemoryLimitIsNamed) {
  std::string text = "y,x\n";
  for (int i = 0; i < 1000; ++i) text += "1,a\n";
  const absl::Status status = LoadError(Csv(), Write("large.csv", text), {.max_bytes = 1000});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("the limit is 1000"));
}

TEST(DatasetTest, BadSpecIsRefusedBeforeTheFileIsOpened) {
  EXPECT_THAT(LoadError(Data(), Path("absent")).message(), HasSubstr("data.format"));
  EXPECT_THAT(LoadError(Libsvm(SampleStore::kMaxFields + 1), Path("absent")).message(),
              HasSubstr("data.libsvm_fields is 4097"));
  Data both = Csv();
  both.set_format(LIBSVM);
  EXPECT_THAT(LoadError(both, Path("absent")).message(), HasSubstr("data.csv is set"));
  both = Csv();
  both.set_libsvm_fields(1);
  EXPECT_THAT(LoadError(both, Path("absent")).message(),
              HasSubstr("data.libsvm_fields is 1, but data.format is CSV"));
}

TEST(DatasetTest, SamplesOfAGroupGoToOneRank) {
  // Samples with one category, with several, and without any in field 1.
  std::string text;
  for (int s = 0; s < 300; ++s) {
    text += absl::StrCat(s % 2, " ", s % 7, ":1");
    if (s % 11 != 0) absl::StrAppend(&text, " ", 100 + s % 23, ":1 7:1");
    text += "\n";
  }
  const auto dataset = Dataset::Load(Libsvm(2), Write("groups.libsvm", text));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::map<uint64_t, std::set<uint32_t>> ranks_of_group;
  std::vector<uint64_t> all;
  const GroupKey key = {.field = 1};
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const std::vector<uint64_t> samples = (*dataset)->SamplesOfGroups(key, rank, 3);
    EXPECT_TRUE(std::is_sorted(samples.begin(), samples.end()));
    EXPECT_FALSE(samples.empty());
    all.insert(all.end(), samples.begin(), samples.end());
    for (const uint64_t s : samples) {
      const uint64_t group = (*dataset)->GroupOf(s, key);
      EXPECT_EQ(group, s % 11 == 0 ? 0 : 100 + s % 23) << s;
      ranks_of_group[group].insert(rank);
    }
  }
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 300u);
  for (uint64_t s = 0; s < 300; ++s) EXPECT_EQ(all[s], s);
  EXPECT_EQ(ranks_of_group.size(), 24u) << "23 categories, and the samples without one";
  EXPECT_EQ(ranks_of_group.count(0), 1u);
  for (const auto& [group, ranks] : ranks_of_group) EXPECT_EQ(ranks.size(), 1u) << group;
}

TEST(DatasetTest, QueryIdsAreGroups) {
  // The first file has none, and a line of the second one has none.
  const auto dataset = Dataset::Load(
      Libsvm(1), {Write("plain.libsvm", "1 5:1\n0 6:1\n"),
                  Write("queries.libsvm", "1 qid:7 5:1\n0 5:1\n1 qid:18446744073709551615 5:1\n")});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const GroupKey key = {.is_query_id = true};
  std::vector<uint64_t> groups;
  for (uint64_t s = 0; s < 5; ++s) groups.push_back((*dataset)->GroupOf(s, key));
  EXPECT_EQ(groups, (std::vector<uint64_t>{0, 0, 7, 0, UINT64_MAX}));
  EXPECT_EQ((*dataset)->SamplesOfGroups(key, 0, 1).size(), 5u);
  const auto without = Dataset::Load(Libsvm(1), Write("plain.libsvm", "1 5:1\n"));
  ASSERT_TRUE(without.ok());
  EXPECT_EQ((*without)->GroupOf(0, key), 0u);
}

TEST(DatasetTest, LabelsAreSummarized) {
  const auto whole = Dataset::Load(Libsvm(), Write("whole.libsvm", "3\n-1\n"));
  EXPECT_EQ((*whole)->labels().min, -1);
  EXPECT_EQ((*whole)->labels().max, 3);
  EXPECT_TRUE((*whole)->labels().integers);
  const auto broken = Dataset::Load(Libsvm(), Write("broken.libsvm", "3\n0.5\n"));
  EXPECT_FALSE((*broken)->labels().integers);
}

}  // namespace
}  // namespace pawl
