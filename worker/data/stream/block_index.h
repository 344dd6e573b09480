// The index of one data file, which divides it into blocks of samples.
#ifndef PAWL_WORKER_DATA_STREAM_BLOCK_INDEX_H_
#define PAWL_WORKER_DATA_STREAM_BLOCK_INDEX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "worker/data/batch.h"
#include "worker/data/readers/byte_source.h"

namespace pawl {

// Size and time of a file, by which a change is noticed.
struct FileVersion {
  uint64_t bytes = 0;
  int64_t modified_ns = 0;

  friend bool operator==(const FileVersion&, const FileVersion&) = default;
};

// NOT_FOUND or another system error, naming the file.
absl::StatusOr<FileVersion> VersionOf(const std::string& path);

// See proto for the members' meaning.
struct DataBlock {
  uint64_t offset = 0;
  uint64_t lines_before = 0;
  uint32_t bytes = 0;
  uint32_t crc = 0;
  uint32_t samples = 0;
  uint32_t bad_samples = 0;
  uint32_t restart = 0;
};

struct BlockIndex {
  struct Restart {
    RestartPoint point;  // without its dictionary
    uint64_t dictionary_at = 0;
    uint32_t dictionary_bytes = 0;
  };

  FileVersion version;
  Compression compression = Compression::kNone;
  uint64_t settings = 0;
  std::string head;
  std::vector<DataBlock> blocks;
  std::vector<Restart> restarts;
  LabelSummary labels;
  uint64_t most_entries = 0;
  std::vector<std::string> bad_examples;

  uint64_t samples() const;
  uint64_t bad_samples() const;
  // A hash of what training depends on: the content of the file and the places of its blocks.
  uint64_t Identity() const;
};

// The default of data.block_bytes.
inline constexpr uint64_t kDefaultBlockBytes = 1 << 20;
// Decompressed bytes between two restart points, in blocks. A point of a gzip file takes up to 32
// KiB in the index, and shuffling moves all blocks of a point together.
inline constexpr uint64_t kRestartBlocks = 8;

// A hash of the settings that determine a file's samples and blocks.
uint64_t IndexSettings(const Data& spec);

// Reads the whole file, parses every sample, and makes its index. Malformed samples are
// counted, not refused. Other errors are those of the reader, and INVALID_ARGUMENT for a file
// without samples. The dictionaries of the restart points are appended to *dictionaries.
// REQUIRES: the spec is valid.
absl::StatusOr<BlockIndex> MakeBlockIndex(const Data& spec, const std::string& path,
                                          std::string* dictionaries);

// The bytes of an index's file; those of 40 million blocks. A protobuf message cannot be longer.
inline constexpr uint64_t kMaxIndexBytes = (uint64_t{2} << 30) - 1;

// An index as bytes of its file, and back. INVALID_ARGUMENT beyond kMaxIndexBytes, or if `bytes`
// are not those of an index. *dictionaries_begin: where the dictionaries begin in the file.
absl::StatusOr<std::string> EncodeBlockIndex(const BlockIndex& index,
                                             absl::string_view dictionaries);
absl::StatusOr<BlockIndex> DecodeBlockIndex(absl::string_view bytes, uint64_t* dictionaries_begin);

// The point with its dictionary, which is read from the file of the index.
absl::StatusOr<RestartPoint> LoadRestart(const BlockIndex::Restart& restart,
                                         const std::string& index_path,
                                         uint64_t dictionaries_begin);

}  // namespace pawl

#endif  // PAWL_WORKER_DATA_STREAM_BLOCK_INDEX_H_
