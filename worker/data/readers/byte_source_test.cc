#include "worker/data/readers/byte_source.h"

#include <sys/stat.h>
#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "client_lib/base/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/readers/gzip_source.h"

namespace pawl {
namespace {

using ::testing::HasSubstr;

std::string Gzip(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.erase(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

std::string Path(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

std::string Write(const std::string& name, const std::string& bytes) {
  std::ofstream(Path(name), std::ios::binary) << bytes;
  return Path(name);
}

absl::StatusOr<std::string> ReadAll(ByteSource& source, size_t piece) {
  std::string all;
  std::string buffer(piece, '\0');
  for (;;) {
    const absl::StatusOr<size_t> count = source.Read(buffer.data(), piece);
    if (!count.ok()) return count.status();
    if (*count == 0) return all;
    all.append(buffer, 0, *count);
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  absl::StatusOr<std::unique_ptr<ByteSource>> source = OpenDataFile(path);
  if (!source.ok()) return source.status();
  return ReadAll(**source, 1000);
}

absl::StatusOr<std::string> Gunzip(const std::string& bytes, size_t piece) {
  GzipSource source(std::make_unique<MemorySource>(bytes), "x.gz");
  return ReadAll(source, piece);
}

std::string LongText() {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += std::to_string(i * 7919) + ",";
  return text;
}

TEST(ByteSourceTest, PlainAndGzipFilesReadTheSame) {
  const std::string text = LongText();
  EXPECT_EQ(*ReadFile(Write("plain.txt", text)), text);
  EXPECT_EQ(*ReadFile(Write("by_name.txt.gz", Gzip(text))), text);
  EXPECT_EQ(*ReadFile(Write("by_magic.txt", Gzip(text))), text);
}

TEST(ByteSourceTest, LengthOfATfRecordIsNotTakenForCompression) {
  // In bytes, the magic numbers of gzip and zstd.
  for (const uint64_t length : {uint64_t{0x8b1f}, uint64_t{0xfd2fb528}}) {
    const uint32_t crc = MaskedCrc32c(&length, sizeof(length));
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
    bytes.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
    bytes += "the record";
    EXPECT_EQ(*ReadFile(Write("t.tfrecord", bytes)), bytes);
  }
}

TEST(ByteSourceTest, MissingFileIsNotFoundAndNamed) {
  const absl::Status status = ReadFile(Path("no_such_file.csv")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("no_such_file.csv"));
}

TEST(ByteSourceTest, FolderIsRefused) {
  EXPECT_EQ(ReadFile(std::getenv("TEST_TMPDIR")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ByteSourceTest, PipeIsRefusedWithoutWaitingForAWriter) {
  const std::string path = Path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const absl::Status status = ReadFile(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("not a regular file"));
}

TEST(GzipSourceTest, PieceSizeDoesNotMatter) {
  const std::string text = LongText();
  const std::string compressed = Gzip(text);
  for (const size_t piece : {1, 7, 4096, 1 << 24})
    EXPECT_EQ(*Gunzip(compressed, piece), text) << piece;
}

TEST(GzipSourceTest, MembersAreConcatenated) {
  EXPECT_EQ(*Gunzip(Gzip("one ") + Gzip("") + Gzip("two"), 100), "one two");
  EXPECT_EQ(*Gunzip(Gzip(""), 100), "");
}

TEST(GzipSourceTest, EveryTruncationIsRefused) {
  const std::string compressed = Gzip("some text, some text, some other text");
  for (size_t length = 0; length < compressed.size(); ++length) {
    const absl::Status status = Gunzip(compressed.substr(0, length), 100).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << length;
    EXPECT_THAT(status.message(), HasSubstr("x.gz: the gzip data ends early at byte")) << length;
  }
}

TEST(GzipSourceTest, DamageIsRefused) {
  std::string compressed = Gzip(LongText());
  compressed[compressed.size() - 5] ^= 1;  // in the checksum
  EXPECT_EQ(Gunzip(compressed, 1000).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Gunzip("not gzip data", 100).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Gunzip(Gzip("text") + "garbage", 100).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pawl
