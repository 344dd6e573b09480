#include "worker/data/stream/streamed_data.h"

#include <google/protobuf/text_format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/env.h"
#include "client_lib/base/testing/no_more_threads.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/tf_example.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/readers/line_reader.h"

namespace pawl {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kRanks = 3;

class StreamedDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/",
                           testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    spec_.set_format(LIBSVM);
    spec_.set_window_samples(100);
    spec_.set_block_bytes(1024);
  }

  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return folder_ + "/" + name;
  }
  std::string WriteGzip(const std::string& name, const std::string& bytes) {
    const std::string path = folder_ + "/" + name;
    gzFile file = gzopen(path.c_str(), "wb");
    // Members end deflate blocks, at which reading can restart.
    for (size_t at = 0; at < bytes.size(); at += 3000) {
      gzwrite(file, bytes.data() + at,
              static_cast<unsigned>(std::min<size_t>(3000, bytes.size() - at)));
      gzflush(file, Z_BLOCK);
    }
    gzclose(file);
    return path;
  }
  std::string WriteZstd(const std::string& name, const std::string& bytes, size_t frame) {
    std::string all;
    for (size_t at = 0; at < bytes.size(); at += frame) {
      const std::string part = bytes.substr(at, frame);
      std::string packed(ZSTD_compressBound(part.size()), '\0');
      packed.resize(ZSTD_compress(packed.data(), packed.size(), part.data(), part.size(), 3));
      all += packed;
    }
    return Write(name, all);
  }

  static std::string ReadAll(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file.good()) << path;
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  // Appends a record of a TFRecord file.
  static void AppendRecord(const std::string& message, std::string* bytes) {
    const uint64_t length = message.size();
    const uint32_t head_crc = MaskedCrc32c(&length, sizeof(length));
    const uint32_t crc = MaskedCrc32c(message.data(), message.size());
    bytes->append(reinterpret_cast<const char*>(&length), sizeof(length));
    bytes->append(reinterpret_cast<const char*>(&head_crc), sizeof(head_crc));
    *bytes += message;
    bytes->append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  }

  // Lines of different lengths; the label is the sample's number.
  static std::string Lines(uint64_t first, uint64_t count) {
    std::string text;
    for (uint64_t i = first; i < first + count; ++i) {
      absl::StrAppend(&text, i, " ", i * 7, ":1 ", i % 13, ":", 1 + i % 3);
      if (i % 5 == 0) absl::StrAppend(&text, " 3:1  # ", std::string(i % 50, '#'));
      text += i % 11 == 0 ? "\r\n\n" : "\n";
    }
    return text;
  }

  absl::StatusOr<std::unique_ptr<StreamedData>> Open(const std::vector<std::string>& paths,
                                                     bool refresh = false) {
    StreamOptions options;
    options.index.refresh = refresh;
    return StreamedData::Open(spec_, paths, options);
  }

  Sampler SamplerFor(const TrainingData& data, uint64_t batch_size = 30) {
    return Sampler::Create({.samples = data.size(),
                            .batch_size = batch_size,
                            .logical_workers = kRanks,
                            .seed = 5,
                            .keep_order = spec_.keep_order()})
        .value();
  }

  static FieldLookup LookupOf(const TrainingData& data) {
    return {FieldLayout::Single(data.shape().field_count), {{3, 8}}};
  }

  // The batches of all ranks in all steps of two epochs, one after another.
  static std::vector<Batch> AllBatches(const TrainingData& data, const Sampler& sampler) {
    std::vector<Batch> batches;
    const uint64_t steps = 2 * sampler.epochs().StepsOf(0);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const auto stream = data.OpenRank(sampler, rank, steps, LookupOf(data));
      for (uint64_t step = 0; step < steps; ++step) {
        const absl::Status status = stream->Assemble(step, &batches.emplace_back());
        EXPECT_TRUE(status.ok()) << status;
      }
    }
    return batches;
  }

  static void ExpectEqual(const std::vector<Batch>& a, const std::vector<Batch>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].labels, b[i].labels) << i;
      ASSERT_EQ(a[i].weights, b[i].weights) << i;
      ASSERT_EQ(a[i].numerics, b[i].numerics) << i;
      ASSERT_EQ(a[i].keys, b[i].keys) << i;
      ASSERT_EQ(a[i].field_sets[0].field_begin, b[i].field_sets[0].field_begin) << i;
      ASSERT_EQ(a[i].field_sets[0].entry_key, b[i].field_sets[0].entry_key) << i;
      ASSERT_EQ(a[i].field_sets[0].entry_value, b[i].field_sets[0].entry_value) << i;
    }
  }

  std::string folder_;
  Data spec_;
};

TEST_F(StreamedDataTest, FilesWithoutSamplesAreNamedAndLeaveNothingBehind) {
  const auto message = [this](const std::string& path) {
    const auto data = Open({path});
    EXPECT_EQ(data.status().code(), absl::StatusCode::kInvalidArgument) << data.status();
    return std::string(data.status().message());
  };
  // Neither a sample nor the end of a line.
  EXPECT_THAT(message(Write("zeros", std::string(70 << 20, '\0'))),
              HasSubstr("have no end of a sample"));
  EXPECT_THAT(message(Write("words", "one two\nthree four\n")), HasSubstr("words:1:1"));
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) files += entry.exists();
  EXPECT_EQ(files, 2u);
}

TEST_F(StreamedDataTest, CancelledRankReadsNoMoreWindows) {
  const auto data = Open({WriteZstd("one-frame.zst", Lines(0, 3000), 1 << 20)});
  ASSERT_TRUE(data.ok()) << data.status();
  const Sampler sampler = SamplerFor(**data);
  const uint64_t last = sampler.epochs().StepsOf(0) - 1;
  const auto rank = (*data)->OpenRank(sampler, 0, last + 1, LookupOf(**data));
  Batch batch;
  ASSERT_TRUE(rank->Assemble(0, &batch).ok());
  rank->Cancel();
  EXPECT_EQ(rank->Assemble(last, &batch).code(), absl::StatusCode::kCancelled);
}

TEST_F(StreamedDataTest, OnlyTheStepsOfAShareAreRead) {
  spec_.set_keep_order(true);
  spec_.set_window_samples(400);
  const std::string file = Write("whole", Lines(0, 3000));
  const auto data = Open({file}), whole = Open({file});
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_TRUE(whole.ok()) << whole.status();
  const auto sampler =
      Sampler::Create({.samples = (*data)->size(), .batch_size = 100, .keep_order = true});
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  // Neither the first step nor the end is that of a window.
  const auto share = (*data)->OpenRank(*sampler, 0, 26, LookupOf(**data));
  const auto everything = (*whole)->OpenRank(*sampler, 0, 30, LookupOf(**data));
  Batch batch, expected;
  for (uint64_t step = 7; step < 26; ++step) {
    ASSERT_TRUE(share->Assemble(step, &batch).ok());
    ASSERT_TRUE(everything->Assemble(step, &expected).ok());
    EXPECT_EQ(batch.labels, expected.labels) << "step " << step;
    EXPECT_EQ(batch.keys, expected.keys) << "step " << step;
  }
  EXPECT_EQ((*data)->counts().samples, 1900u);
  // An earlier step of the same window is read when it is asked for.
  ASSERT_TRUE(share->Assemble(4, &batch).ok());
  ASSERT_TRUE(everything->Assemble(4, &expected).ok());
  EXPECT_EQ(batch.labels, expected.labels);
}

TEST_F(StreamedDataTest, LimitThatTheSecondWindowExceedsFailsTheStep) {
  spec_.set_keep_order(true);
  std::string text = Lines(0, 300);
  for (int i = 0; i < 3000; ++i) {
    absl::StrAppend(&text, "1");
    for (int key = 0; key < 100; ++key) absl::StrAppend(&text, " ", key, ":1");
    text += "\n";
  }
  StreamOptions options;
  // The index takes some 75 KB.
  options.max_bytes = 200 << 10;
  const auto data = StreamedData::Open(spec_, {Write("grows", text)}, options);
  ASSERT_TRUE(data.ok()) << data.status();
  const Sampler sampler = SamplerFor(**data);
  const auto rank = (*data)->OpenRank(sampler, 0, sampler.epochs().StepsOf(0), LookupOf(**data));
  absl::Status status;
  uint64_t step = 0;
  Batch batch;
  for (; status.ok() && step < sampler.epochs().StepsOf(0); ++step)
    status = rank->Assemble(step, &batch);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GT(step, 1u);
}

TEST_F(StreamedDataTest, WithoutShufflingBatchesAreThoseOfDataInMemory) {
  spec_.set_keep_order(true);
  const std::string text = Lines(0, 1500);
  const std::vector<std::vector<std::string>> cases = {
      {Write("a", text)},
      {Write("b1", Lines(0, 400)), Write("b2", Lines(400, 1)), Write("b3", Lines(401, 1099))},
      {WriteGzip("c.gz", text)},
      {WriteZstd("d.zst", text, 1 << 20)},
      {WriteZstd("e.zst", text, 3333)},
  };
  for (const auto& files : cases) {
    SCOPED_TRACE(files.front());
    const auto memory = Dataset::Load(spec_, files);
    ASSERT_TRUE(memory.ok()) << memory.status();
    const auto streamed = Open(files);
    ASSERT_TRUE(streamed.ok()) << streamed.status();
    ASSERT_EQ((*streamed)->size(), 1500u);
    EXPECT_EQ((*streamed)->shape().field_count, (*memory)->shape().field_count);
    EXPECT_EQ((*streamed)->labels().max, 1499);
    const Sampler sampler = SamplerFor(**streamed);
    ExpectEqual(AllBatches(**streamed, sampler), AllBatches(**memory, sampler));
  }
}

TEST_F(StreamedDataTest, CsvWithQuotesAndHeaderIsTheSameToo) {
  spec_.set_format(CSV);
  spec_.set_keep_order(true);
  for (const char* name : {"y", "n", "c"}) spec_.mutable_csv()->add_columns()->set_name(name);
  spec_.mutable_csv()->mutable_columns(0)->mutable_label();
  spec_.mutable_csv()->mutable_columns(1)->mutable_numeric()->set_missing(-1);
  spec_.mutable_csv()->mutable_columns(2)->mutable_categorical();
  std::string text =
      "\xef\xbb\xbf"
      "c,unused,y,n\n";
  for (int i = 0; i < 1000; ++i) {
    absl::StrAppend(&text, i % 7 == 0 ? "\"two\nlines, \"\"quoted\"\"\"" : "plain", ",", i, ",", i,
                    ",", i % 3 == 0 ? "" : "1.25", "\n");
  }
  for (const std::string& file : {Write("a.csv", text), WriteZstd("b.csv.zst", text, 5000)}) {
    const auto memory = Dataset::Load(spec_, file);
    ASSERT_TRUE(memory.ok()) << memory.status();
    const auto streamed = Open({file});
    ASSERT_TRUE(streamed.ok()) << streamed.status();
    const Sampler sampler = SamplerFor(**streamed);
    ExpectEqual(AllBatches(**streamed, sampler), AllBatches(**memory, sampler));
  }
}

TEST_F(StreamedDataTest, ListsWeightsAndSeveralLabelsAreTheSameToo) {
  spec_.set_format(CSV);
  spec_.set_keep_order(true);
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
      columns { name: "y" label {} }
      columns { name: "sold" label {} }
      columns { name: "w" weight {} }
      columns { name: "n" numeric {} }
      columns { name: "tags" list { separator: "|" max_length: 3 } categorical {} }
      columns { name: "c" categorical {} })",
                                                            spec_.mutable_csv()));
  std::string text = "y,sold,w,n,tags,c\n";
  for (int i = 0; i < 1000; ++i) {
    absl::StrAppend(&text, i, ",", i % 2, ",", i % 5, ",1.5,");
    for (int k = 0; k < i % 6; ++k) absl::StrAppend(&text, k > 0 ? "|" : "", i % 11 + k);
    absl::StrAppend(&text, ",", i % 9, "\n");
  }
  const std::string file = Write("a.csv", text);
  const auto memory = Dataset::Load(spec_, file);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ((*memory)->shape().label_count, 2u);
  const auto streamed = Open({file});
  ASSERT_TRUE(streamed.ok()) << streamed.status();
  const Sampler sampler = SamplerFor(**streamed);
  const std::vector<Batch> batches = AllBatches(**streamed, sampler);
  ExpectEqual(batches, AllBatches(**memory, sampler));
  EXPECT_EQ(batches[0].labels.size(), 20u);
  EXPECT_EQ(batches[0].labels[2], 1);
  EXPECT_EQ(batches[0].weights[3], 3);
  // The fifth sample has 4 tags, and a list has at most 3.
  EXPECT_EQ(batches[0].field_sets[0].field_begin[9] - batches[0].field_sets[0].field_begin[8], 3u);
}

TEST_F(StreamedDataTest, TfRecordsAreTheSameToo) {
  spec_.set_format(TFRECORD);
  spec_.set_keep_order(true);
  for (const char* name : {"y", "n", "c"}) spec_.mutable_records()->add_columns()->set_name(name);
  spec_.mutable_records()->mutable_columns(0)->mutable_label();
  spec_.mutable_records()->mutable_columns(1)->mutable_numeric()->set_missing(-1);
  spec_.mutable_records()->mutable_columns(2)->mutable_categorical();
  std::string bytes;
  for (int i = 0; i < 1000; ++i) {
    TfExample example;
    const auto add = [&example](const char* name) {
      TfFeatureEntry* const entry = example.mutable_features()->add_feature();
      entry->set_name(name);
      return entry->mutable_value();
    };
    add("y")->mutable_int64_list()->add_value(i);
    if (i % 3 != 0) add("n")->mutable_float_list()->add_value(1.25f);
    add("c")->mutable_bytes_list()->add_value(std::string(static_cast<size_t>(i % 40), 'c'));
    AppendRecord(example.SerializeAsString(), &bytes);
  }
  for (const std::string& file :
       {Write("a", bytes), WriteGzip("b.gz", bytes), WriteZstd("c.zst", bytes, 5000)}) {
    SCOPED_TRACE(file);
    const auto memory = Dataset::Load(spec_, file);
    ASSERT_TRUE(memory.ok()) << memory.status();
    const auto streamed = Open({file});
    ASSERT_TRUE(streamed.ok()) << streamed.status();
    ASSERT_EQ((*streamed)->size(), 1000u);
    const Sampler sampler = SamplerFor(**streamed);
    ExpectEqual(AllBatches(**streamed, sampler), AllBatches(**memory, sampler));
  }
}

TEST_F(StreamedDataTest, RecordFilesAreTheSameToo) {
  spec_.set_format(RECORDS);
  spec_.set_keep_order(true);
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
      columns { name: "label" label {} }
      columns { name: "price" numeric { missing: -1 } }
      columns { name: "user" categorical {} }
      columns { name: "city" hashed { buckets: 50 } })",
                                                            spec_.mutable_records()));
  const std::string folder = "worker/data/records/testdata/";
  std::vector<std::string> files;
  for (const char* name : {"small.rec", "hundred_zlib.rec", "hundred_zstd.rec"})
    files.push_back(Write(name, ReadAll(folder + name)));
  files.push_back(WriteGzip("whole.rec.gz", ReadAll(files[1])));
  const auto memory = Dataset::Load(spec_, files);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto streamed = Open(files);
  ASSERT_TRUE(streamed.ok()) << streamed.status();
  ASSERT_EQ((*streamed)->size(), 310u);
  const Sampler sampler = SamplerFor(**streamed);
  ExpectEqual(AllBatches(**streamed, sampler), AllBatches(**memory, sampler));
  // A block of the index ends where one of the file does.
  const absl::StatusOr<std::string> index = ReadWholeFile(
      Env::Real(), IndexPathOf(files[1], "", IndexSettings(spec_)), uint64_t{1} << 20);
  ASSERT_TRUE(index.ok()) << index.status();
  uint64_t begin = 0;
  const absl::StatusOr<BlockIndex> decoded = DecodeBlockIndex(*index, &begin);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_GT(decoded->blocks.size(), 1u);
  for (const DataBlock& block : decoded->blocks) EXPECT_EQ(block.samples % 10, 0u);
  EXPECT_EQ(decoded->blocks[1].lines_before, decoded->blocks[0].samples);
}

// A block must not end between the start of a line that is too long, where it is noticed, and its
// end.
TEST_F(StreamedDataTest, LineThatIsTooLongAtARestartPointIsSkipped) {
  spec_.set_keep_order(true);
  spec_.set_max_bad_samples(1);
  const std::string before = Lines(0, 1000);
  const std::string text =
      before + "1 " + std::string(LineReader::kMaxLineBytes + 10, 'x') + "\n" + Lines(1000, 100);
  // A frame, and so a restart point, begins with the line.
  const std::string file = WriteZstd("long.zst", text, before.size());
  const auto memory = Dataset::Load(spec_, {file}, {.max_bad_samples = 1});
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto streamed = Open({file});
  ASSERT_TRUE(streamed.ok()) << streamed.status();
  EXPECT_EQ((*streamed)->bad_samples().count(), 1u);
  ASSERT_EQ((*streamed)->size(), 1100u);
  const Sampler sampler = SamplerFor(**streamed);
  ExpectEqual(AllBatches(**streamed, sampler), AllBatches(**memory, sampler));
}

TEST_F(StreamedDataTest, EpochUsesEachSampleOnceAndMixesBlocks) {
  const auto data = Open({Write("a", Lines(0, 700)), WriteGzip("b.gz", Lines(700, 800))});
  ASSERT_TRUE(data.ok()) << data.status();
  const Sampler sampler = SamplerFor(**data);
  const std::vector<Batch> batches = AllBatches(**data, sampler);
  std::map<float, int> used;
  uint64_t neighbours = 0;
  for (const Batch& batch : batches) {
    for (size_t i = 0; i < batch.labels.size(); ++i) {
      ++used[batch.labels[i]];
      neighbours += i > 0 && batch.labels[i] == batch.labels[i - 1] + 1;
    }
  }
  EXPECT_EQ(used.size(), 1500u);
  for (const auto& [label, count] : used) EXPECT_EQ(count, 2) << label;
  EXPECT_LT(neighbours, 100u);
  EXPECT_NE(batches[0].labels, batches[sampler.epochs().StepsOf(0)].labels) << "epochs are alike";
}

// The successor of a dead worker.
TEST_F(StreamedDataTest, RankContinuesAnywhereWithTheSameBatches) {
  const auto data = Open({WriteGzip("a.gz", Lines(0, 1500))});
  ASSERT_TRUE(data.ok()) << data.status();
  const Sampler sampler = SamplerFor(**data);
  const uint64_t steps = 2 * sampler.epochs().StepsOf(0);
  const std::vector<Batch> all = AllBatches(**data, sampler);
  for (uint64_t first = 0; first < steps; first += 7) {
    const auto stream = (*data)->OpenRank(sampler, 1, steps, LookupOf(**data));
    std::vector<Batch> rest;
    for (uint64_t step = first; step < std::min(first + 12, steps); ++step)
      ASSERT_TRUE(stream->Assemble(step, &rest.emplace_back()).ok());
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(steps + first);
    ExpectEqual(rest, {begin, begin + static_cast<std::ptrdiff_t>(rest.size())});
  }
  // Backwards, too.
  const auto stream = (*data)->OpenRank(sampler, 0, steps, LookupOf(**data));
  Batch batch;
  for (uint64_t step = steps; step-- > 0;) {
    ASSERT_TRUE(stream->Assemble(step, &batch).ok());
    ASSERT_EQ(batch.labels, all[step].labels);
  }
}

TEST_F(StreamedDataTest, IndexIsMadeOnceAndKeptBesideTheData) {
  const std::string file = Write("a", Lines(0, 100));
  ASSERT_TRUE(Open({file}).ok());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    names.push_back(entry.path().filename().string());
  ASSERT_EQ(names.size(), 2u);
  const std::string index = IndexPathOf(file, "", IndexSettings(spec_));
  const auto made = std::filesystem::last_write_time(index);
  ASSERT_TRUE(Open({file}).ok());
  EXPECT_EQ(std::filesystem::last_write_time(index), made);
  // Other settings have an index of their own.
  spec_.set_block_bytes(2048);
  ASSERT_TRUE(Open({file}).ok());
  EXPECT_TRUE(std::filesystem::exists(IndexPathOf(file, "", IndexSettings(spec_))));
  EXPECT_TRUE(std::filesystem::exists(index));
}

TEST_F(StreamedDataTest, ChangedFileIsRefusedByName) {
  const std::string a = Write("a", Lines(0, 500)), b = Write("b", Lines(500, 500));
  const auto data = Open({a, b});
  ASSERT_TRUE(data.ok()) << data.status();
  Write("b", Lines(501, 500));
  const auto refused = Open({a, b});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr(b + ": has changed since its index"));
  // The one that is open notices it, too.
  const Sampler sampler = SamplerFor(**data);
  const auto stream = (*data)->OpenRank(sampler, 0, 1000, LookupOf(**data));
  absl::Status status;
  Batch batch;
  for (uint64_t step = 0; step < sampler.epochs().StepsOf(0) && status.ok(); ++step)
    status = stream->Assemble(step, &batch);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(status.message(), HasSubstr(b + ": has changed"));
  // On demand the index is made again, but the data has another identity.
  const auto fresh = Open({a, b}, /*refresh=*/true);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_NE((*fresh)->id(), (*data)->id());
  spec_.set_data_id((*data)->id());
  const auto other = Open({a, b});
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(other.status().message(), HasSubstr((*fresh)->id()));
}

TEST_F(StreamedDataTest, DamagedBlockIsRefusedByName) {
  const std::string file = Write("a", Lines(0, 500));
  const auto data = Open({file});
  ASSERT_TRUE(data.ok());
  const auto time = std::filesystem::last_write_time(file);
  {
    std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
    bytes.seekp(5000);
    bytes << "8";
  }
  std::filesystem::last_write_time(file, time);
  const Sampler sampler = SamplerFor(**data);
  absl::Status status;
  for (uint32_t rank = 0; rank < kRanks && status.ok(); ++rank) {
    const auto stream = (*data)->OpenRank(sampler, rank, 1000, LookupOf(**data));
    Batch batch;
    for (uint64_t step = 0; step < sampler.epochs().StepsOf(0) && status.ok(); ++step)
      status = stream->Assemble(step, &batch);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(status.message(), HasSubstr(file + ": the "));
}

TEST_F(StreamedDataTest, IdentityDependsOnContentAndOrderOnly) {
  const std::string a = Write("a", Lines(0, 200)), b = Write("b", Lines(200, 200));
  const std::string copy = Write("copy", Lines(0, 200));
  const std::string id = Open({a, b}).value()->id();
  EXPECT_EQ(Open({copy, b}).value()->id(), id);
  EXPECT_NE(Open({b, a}).value()->id(), id);
  spec_.set_data_id(id);
  EXPECT_TRUE(Open({a, b}).ok());
}

TEST_F(StreamedDataTest, MalformedSamplesAreCountedAndSkipped) {
  spec_.set_keep_order(true);
  std::string text;
  for (int i = 0; i < 300; ++i)
    absl::StrAppend(&text, Lines(static_cast<uint64_t>(i) * 3, 3), i % 50 == 7 ? "1 x\n" : "");
  const std::string file = Write("a", text);
  const auto strict = Open({file});
  EXPECT_EQ(strict.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(strict.status().message(),
              HasSubstr(file + ":28:3: 'x' is not an index:value pair; correct it, or set "
                               "data.max_bad_samples"));
  spec_.set_max_bad_samples(6);
  const auto memory = Dataset::Load(spec_, {file}, {.max_bad_samples = 6});
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto streamed = Open({file});
  ASSERT_TRUE(streamed.ok()) << streamed.status();
  EXPECT_EQ((*streamed)->bad_samples().count(), 6u);
  EXPECT_EQ((*streamed)->size(), 900u);
  const Sampler sampler = SamplerFor(**streamed);
  ExpectEqual(AllBatches(**streamed, sampler), AllBatches(**memory, sampler));
}

// The malformed lines fill more than a block, so the first good one is not in the first block.
TEST_F(StreamedDataTest, MalformedLinesBeforeTheFirstSampleAreSkipped) {
  spec_.set_keep_order(true);
  spec_.set_format(CSV);
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(no_header: true
         columns { name: "y" label {} position: 1 }
         columns { name: "x" categorical {} position: 2 })",
      spec_.mutable_csv()));
  std::string text;
  for (int i = 0; i < 3; ++i) text += "1,\"a\"" + std::string(600, 'b') + "\n";
  for (int i = 0; i < 300; ++i) absl::StrAppend(&text, i, ",", i % 7, "\n");
  const std::string file = Write("a", text);
  spec_.set_max_bad_samples(3);
  const auto memory = Dataset::Load(spec_, std::vector<std::string>{file}, {.max_bad_samples = 3});
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto streamed = Open({file});
  ASSERT_TRUE(streamed.ok()) << streamed.status();
  EXPECT_EQ((*streamed)->bad_samples().count(), 3u);
  EXPECT_EQ((*streamed)->size(), 300u);
  const Sampler sampler = SamplerFor(**streamed);
  ExpectEqual(AllBatches(**streamed, sampler), AllBatches(**memory, sampler));
}

TEST_F(StreamedDataTest, FileWithTooManyPairsForOneFieldEachIsNamed) {
  std::string longest = "1";
  for (uint32_t i = 0; i <= SampleStore::kMaxFields; ++i) absl::StrAppend(&longest, " ", i, ":1");
  const std::string file = Write("long", longest);
  EXPECT_THAT(Open({Write("a", Lines(0, 3)), file}).status().message(),
              HasSubstr(file + ": a line has 4097 pairs"));
}

TEST_F(StreamedDataTest, MemoryLimitsNameTheirRemedy) {
  const std::string file = Write("a", Lines(0, 500));
  StreamOptions options;
  options.max_rank_bytes = 1000;
  Batch batch;
  auto data = StreamedData::Open(spec_, {file}, options);
  ASSERT_TRUE(data.ok());
  Sampler sampler = SamplerFor(**data);
  absl::Status status = (*data)->OpenRank(sampler, 0, 9, LookupOf(**data))->Assemble(0, &batch);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("--max_rank_data_bytes"));
  options = {};
  options.max_bytes = 1000;
  data = StreamedData::Open(spec_, {file}, options);
  ASSERT_TRUE(data.ok());
  status = (*data)->OpenRank(sampler, 0, 9, LookupOf(**data))->Assemble(0, &batch);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("--max_data_bytes"));
}

TEST_F(StreamedDataTest, DecompressorsAndIndexesCount) {
  const std::string text = Lines(0, 500);
  const auto needs = [&](const std::string& file, uint64_t bytes) {
    StreamOptions options;
    options.max_bytes = bytes;
    const auto data = StreamedData::Open(spec_, {file}, options);
    EXPECT_TRUE(data.ok()) << data.status();
    const Sampler sampler = SamplerFor(**data);
    Batch batch;
    return (*data)->OpenRank(sampler, 0, 1, LookupOf(**data))->Assemble(0, &batch).code();
  };
  const std::string plain = Write("plain", text), gzip = WriteGzip("packed.gz", text);
  EXPECT_EQ(needs(plain, 40 << 10), absl::StatusCode::kOk);
  EXPECT_EQ(needs(gzip, 40 << 10), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(needs(gzip, 500 << 10), absl::StatusCode::kOk);
  // The blocks of an index of 400 KB.
  const std::string large = Write("large", Lines(0, 300000));
  EXPECT_EQ(needs(large, 200 << 10), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(needs(large, 2000 << 10), absl::StatusCode::kOk);
}

// If the system has no more threads, reading ahead is not possible; reading is.
TEST_F(StreamedDataTest, DataIsReadWithoutMoreThreads) {
  const std::vector<std::string> files = {Write("a", Lines(0, 500)), Write("b", Lines(500, 500))};
  const auto data = Open(files);
  ASSERT_TRUE(data.ok()) << data.status();
  const Sampler sampler = SamplerFor(**data);
  const std::vector<Batch> expected = AllBatches(**data, sampler);
  for (const std::string& file : files)
    std::filesystem::remove(IndexPathOf(file, "", IndexSettings(spec_)));
  const NoMoreThreads none;
  const auto again = Open(files);
  ASSERT_TRUE(again.ok()) << again.status();
  ExpectEqual(AllBatches(**again, sampler), expected);
}

TEST_F(StreamedDataTest, DamagedIndexIsRefusedByName) {
  const std::string file = Write("a", Lines(0, 100));
  ASSERT_TRUE(Open({file}).ok());
  const std::string index = IndexPathOf(file, "", IndexSettings(spec_));
  for (const uint64_t at : {3, 14, 40}) {
    std::fstream bytes(index, std::ios::binary | std::ios::in | std::ios::out);
    bytes.seekp(static_cast<std::streamoff>(at));
    bytes << "\xff";
    bytes.close();
    const auto data = Open({file});
    EXPECT_EQ(data.status().code(), absl::StatusCode::kDataLoss) << data.status();
    EXPECT_THAT(data.status().message(), HasSubstr(index));
    std::filesystem::remove(index);
    ASSERT_TRUE(Open({file}).ok());
  }
}

}  // namespace
}  // namespace pawl
