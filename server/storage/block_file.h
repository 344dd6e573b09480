// A file of checksummed blocks, the format of snapshots and of checkpoint parts.
// block_file_format.md has the bytes.
#ifndef PAWL_SERVER_STORAGE_BLOCK_FILE_H_
#define PAWL_SERVER_STORAGE_BLOCK_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client_lib/base/env.h"

namespace pawl {

// The payload of every block but the last: large enough that the cost of headers and calls is
// negligible, small enough for the buffer of a reader.
inline constexpr uint32_t kBlockBytes = 1u << 20;
inline constexpr uint32_t kBlockFileVersion = 1;
inline constexpr size_t kBlockFileHeaderBytes = 52;
inline constexpr size_t kBlockHeaderBytes = 8;
inline constexpr size_t kBlockFileFooterBytes = 28;

enum class BlockFileKind : uint32_t {
  kSnapshot = 1,
  kCheckpointPart = 2,
};

// The identity of a file, which the checksum of every block covers.
struct BlockFileId {
  BlockFileKind kind = BlockFileKind::kSnapshot;
  uint64_t job_id = 0;
  uint32_t partition = 0;
  // The log index of the state in the file.
  uint64_t index = 0;
  // kCheckpointPart: the checkpoint's step. kSnapshot: the log's position when the snapshot was
  // started (log_format.md).
  uint64_t mark = 0;
};

struct BlockFileInfo {
  uint64_t payload_bytes = 0;
  uint64_t file_bytes = 0;
  // The checksum of the file up to the footer.
  uint32_t crc32c = 0;
};

// Not thread-safe. Without Finish the file is incomplete, which readers detect.
class BlockFileWriter {
 public:
  static absl::StatusOr<std::unique_ptr<BlockFileWriter>> Create(Env& env, const std::string& path,
                                                                 const BlockFileId& id);

  // After an error the file is unusable.
  absl::Status Append(absl::string_view bytes);
  // Writes the footer, syncs and closes; call nothing afterwards. The file's name is durable once
  // its folder is synced.
  absl::StatusOr<BlockFileInfo> Finish();

 private:
  BlockFileWriter(std::unique_ptr<WritableFile> file, const BlockFileId& id);
  absl::Status WriteBlock(absl::string_view payload);
  absl::Status Write(absl::Span<const WritableFile::Fragment> fragments);

  const std::unique_ptr<WritableFile> file_;
  std::string header_;
  // The start of the next block.
  std::string buffer_;
  uint64_t blocks_ = 0;
  uint64_t payload_bytes_ = 0;
  uint64_t synced_bytes_ = 0;
  uint32_t file_crc_ = 0;
};

// Reads the blocks in order and verifies each before it returns it. Not thread-safe. Every error in
// the file's contents is DATA_LOSS and names the file and the offset. INVALID_ARGUMENT: a whole
// header has another version.
class BlockFileReader {
 public:
  // Opens a file whose identity must be `expected`; the mark of a snapshot may be any.
  static absl::StatusOr<std::unique_ptr<BlockFileReader>> Open(Env& env, const std::string& path,
                                                               const BlockFileId& expected);
  // Reads only the identity of a file.
  static absl::StatusOr<BlockFileId> ReadId(Env& env, const std::string& path);

  // Reads only the footer: it tells which file this is, not whether the file is whole.
  absl::StatusOr<BlockFileInfo> PeekInfo();

  const BlockFileId& id() const { return id_; }
  const std::string& path() const { return path_; }

  // The next block's payload, valid until the next call. Empty at the end of the file; only then is
  // the file known to be whole.
  absl::StatusOr<absl::string_view> NextBlock();
  // REQUIRES: NextBlock has returned the end.
  const BlockFileInfo& info() const { return info_; }

 private:
  BlockFileReader(std::string path, std::unique_ptr<ReadableFile> file, uint64_t file_bytes)
      : path_(std::move(path)), file_(std::move(file)), file_bytes_(file_bytes) {}
  static absl::StatusOr<std::unique_ptr<BlockFileReader>> OpenAny(Env& env,
                                                                  const std::string& path);
  absl::Status ReadHeader();
  absl::Status CheckId(const BlockFileId& expected) const;
  absl::Status ReadFooter(const char* length_field);
  absl::Status ReadAt(uint64_t offset, char* out, size_t size, absl::string_view what);
  // Reads exactly `size` bytes at offset_.
  absl::Status Read(char* out, size_t size, absl::string_view what);
  absl::Status Damaged(absl::string_view what) const;

  const std::string path_;
  const std::unique_ptr<ReadableFile> file_;
  const uint64_t file_bytes_;
  BlockFileId id_;
  uint32_t id_crc_ = 0;
  uint64_t offset_ = 0;
  uint64_t blocks_ = 0;
  uint64_t payload_bytes_ = 0;
  uint32_t file_crc_ = 0;
  bool ended_ = false;
  std::string buffer_;
  BlockFileInfo info_;
};

// Reads and verifies the whole file.
// CANCELLED: `should_continue`, called before each block, has returned false.
absl::StatusOr<BlockFileInfo> VerifyBlockFile(
    Env& env, const std::string& path, const BlockFileId& expected,
    absl::FunctionRef<bool()> should_continue = [] { return true; });

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_BLOCK_FILE_H_
