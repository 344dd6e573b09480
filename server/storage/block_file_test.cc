#include "server/storage/block_file.h"

#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client_lib/base/testing/fault_env.h"
#include "gtest/gtest.h"
#include "server/storage/testing/worked_bytes.h"

namespace pawl {
namespace {

constexpr char kPath[] = "/f";
const BlockFileId kId = {BlockFileKind::kCheckpointPart, 77, 5, 123, 9};

BlockFileInfo WriteFile(Env& env, const std::string& path, const BlockFileId& id,
                        absl::string_view payload,
                        size_t piece = std::numeric_limits<size_t>::max()) {
  std::unique_ptr<BlockFileWriter> writer = BlockFileWriter::Create(env, path, id).value();
  while (!payload.empty()) {
    EXPECT_TRUE(writer->Append(payload.substr(0, piece)).ok());
    payload.remove_prefix(std::min(piece, payload.size()));
  }
  return writer->Finish().value();
}

absl::StatusOr<std::string> ReadFile(Env& env, const std::string& path, const BlockFileId& id) {
  absl::StatusOr<std::unique_ptr<BlockFileReader>> reader = BlockFileReader::Open(env, path, id);
  if (!reader.ok()) return reader.status();
  std::string payload;
  while (true) {
    const absl::StatusOr<absl::string_view> block = (*reader)->NextBlock();
    if (!block.ok()) return block.status();
    if (block->empty()) return payload;
    EXPECT_LE(block->size(), kBlockBytes);
    absl::StrAppend(&payload, *block);
  }
}

std::string Payload(size_t size) {
  std::string payload(size, '\0');
  uint32_t state = 1;
  for (char& c : payload) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return payload;
}

void ExpectDamaged(Env& env, const BlockFileId& id, absl::string_view what) {
  const absl::Status status = ReadFile(env, kPath, id).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << what << ": " << status;
  EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat(kPath, " is damaged at offset ")))
      << status;
}

TEST(BlockFileTest, AnySizeInAnyPiecesIsReadBack) {
  FaultEnv env(1);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{kBlockBytes - 1}, size_t{kBlockBytes},
                            size_t{kBlockBytes + 1}, size_t{3 * kBlockBytes + 17}}) {
    for (const size_t piece :
         {size_t{1000}, size_t{kBlockBytes + 7}, std::numeric_limits<size_t>::max()}) {
      const std::string payload = Payload(size);
      const BlockFileInfo info = WriteFile(env, kPath, kId, payload, piece);
      EXPECT_EQ(info.payload_bytes, size);
      EXPECT_EQ(info.file_bytes, env.FileSize(kPath).value());
      EXPECT_EQ(ReadFile(env, kPath, kId).value(), payload);
      const BlockFileInfo verified = VerifyBlockFile(env, kPath, kId).value();
      EXPECT_EQ(verified.crc32c, info.crc32c);
      EXPECT_EQ(verified.file_bytes, info.file_bytes);
      EXPECT_EQ(verified.payload_bytes, info.payload_bytes);
    }
  }
}

TEST(BlockFileTest, FinishedFileIsDurable) {
  FaultEnv env(1);
  WriteFile(env, kPath, kId, Payload(5000));
  ASSERT_TRUE(env.SyncFolder("/").ok());
  env.CutPower();
  env.RestorePower();
  EXPECT_EQ(ReadFile(env, kPath, kId).value(), Payload(5000));
}

TEST(BlockFileTest, EveryFlippedByteIsDetected) {
  FaultEnv env(1);
  WriteFile(env, kPath, kId, Payload(300));
  const std::string contents = env.Contents(kPath);
  for (size_t i = 0; i < contents.size(); ++i) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string flipped = contents;
      flipped[i] ^= flip;
      env.SetContents(kPath, flipped);
      ExpectDamaged(env, kId, absl::StrCat("byte ", i));
    }
  }
}

TEST(BlockFileTest, EveryTruncationAndExtensionIsDetected) {
  FaultEnv env(1);
  WriteFile(env, kPath, kId, Payload(300));
  const std::string contents = env.Contents(kPath);
  for (size_t size = 0; size < contents.size(); ++size) {
    env.SetContents(kPath, contents.substr(0, size));
    ExpectDamaged(env, kId, absl::StrCat("cut to ", size));
  }
  env.SetContents(kPath, contents + '\0');
  ExpectDamaged(env, kId, "one byte more");
}

TEST(BlockFileTest, UnfinishedFileIsDetected) {
  FaultEnv env(1);
  std::unique_ptr<BlockFileWriter> writer = BlockFileWriter::Create(env, kPath, kId).value();
  ASSERT_TRUE(writer->Append(Payload(2 * kBlockBytes)).ok());
  writer.reset();
  ExpectDamaged(env, kId, "no footer");
}

TEST(BlockFileTest, FileUnderAWrongNameIsDetected) {
  FaultEnv env(1);
  for (const BlockFileId& other : {BlockFileId{BlockFileKind::kSnapshot, 77, 5, 123, 9},
                                   BlockFileId{BlockFileKind::kCheckpointPart, 78, 5, 123, 9},
                                   BlockFileId{BlockFileKind::kCheckpointPart, 77, 6, 123, 9},
                                   BlockFileId{BlockFileKind::kCheckpointPart, 77, 5, 124, 9},
                                   BlockFileId{BlockFileKind::kCheckpointPart, 77, 5, 123, 10}}) {
    WriteFile(env, kPath, other, Payload(300));
    ExpectDamaged(env, kId, "another file");
  }
}

TEST(BlockFileTest, MisplacedBlocksAreDetected) {
  FaultEnv env(1);
  WriteFile(env, kPath, kId, Payload(3 * kBlockBytes));
  const std::string contents = env.Contents(kPath);
  const size_t block = kBlockHeaderBytes + kBlockBytes;
  std::string swapped = contents;
  swapped.replace(kBlockFileHeaderBytes, block, contents, kBlockFileHeaderBytes + block, block);
  swapped.replace(kBlockFileHeaderBytes + block, block, contents, kBlockFileHeaderBytes, block);
  env.SetContents(kPath, swapped);
  ExpectDamaged(env, kId, "swapped blocks");

  // The same payload as another partition: only the file's header differs.
  BlockFileId other = kId;
  other.partition = 6;
  WriteFile(env, "/other", other, Payload(3 * kBlockBytes));
  env.SetContents(kPath, contents.substr(0, kBlockFileHeaderBytes) +
                             env.Contents("/other").substr(kBlockFileHeaderBytes));
  ExpectDamaged(env, kId, "blocks of another file");

  std::string without = contents;
  without.erase(kBlockFileHeaderBytes + block, block);
  env.SetContents(kPath, without);
  ExpectDamaged(env, kId, "a block is missing");
}

TEST(BlockFileTest, FullDiskIsReported) {
  FaultEnv env(1);
  env.SetCapacity(kBlockBytes);
  std::unique_ptr<BlockFileWriter> writer = BlockFileWriter::Create(env, kPath, kId).value();
  EXPECT_EQ(writer->Append(Payload(kBlockBytes)).code(), absl::StatusCode::kResourceExhausted);
}

TEST(BlockFileTest, DocumentShowsTheBytes) {
  FaultEnv env(1);
  WriteFile(env, kPath, kId, "Pawl");
  EXPECT_EQ(ReadWorkedBytes("server/storage/block_file_format.md"), env.Contents(kPath))
      << FormatWorkedBytes(env.Contents(kPath));
}

}  // namespace
}  // namespace pawl
