// The bytes of the write-ahead log; log_format.md explains them.
#ifndef PAWL_SERVER_STORAGE_WAL_LOG_FORMAT_H_
#define PAWL_SERVER_STORAGE_WAL_LOG_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace pawl {

// The version that is written. Segments of version 1 are read too.
inline constexpr uint32_t kLogVersion = 2;
inline constexpr size_t kSegmentHeaderBytes = 48;
inline constexpr size_t kRecordHeaderBytes = 56;
// A record is one partition's part of a gRPC message, and messages have at most 64 MiB.
inline constexpr size_t kMaxRecordPayloadBytes = 64u << 20;
// Offsets within a segment have 32 bits, and a reader holds a whole segment in memory.
inline constexpr uint64_t kMaxSegmentFileBytes = 1u << 30;

enum class RecordType : uint32_t {
  // An input of a partition.
  kData = 1,
  // A kTruncate at index 0. Older writers wrote it.
  kDrop = 2,
  // The first record of a segment: the last index of each partition in earlier segments.
  kReached = 3,
  // Everything before it in the segment is acknowledged. Written when nothing else is.
  kSettled = 4,
  // Resets the partition's log: truncates it after the record's index, or replaces it by a snapshot
  // of that index (LogReset).
  kTruncate = 5,
};

// A place in the log: later places are greater.
struct LogPosition {
  uint64_t segment = 0;
  uint64_t offset = 0;

  // As one number, for the mark of a snapshot. REQUIRES: segment < 2^32; offset < 2^32 follows from
  // kMaxSegmentFileBytes.
  uint64_t Pack() const { return segment << 32 | offset; }
};

struct SegmentHeader {
  uint64_t job_id = 0;
  uint64_t segment = 0;
  // The previous segment, or 0, and how many of its bytes count; later bytes are void.
  uint64_t previous_segment = 0;
  uint64_t previous_bytes = 0;
  uint32_t version = kLogVersion;
};

struct RecordHeader {
  RecordType type = RecordType::kData;
  uint32_t partition = 0;
  uint64_t index = 0;
  // The term of the primary that made the change; 0 in version 1.
  uint64_t term = 0;
  uint32_t payload_bytes = 0;
  uint32_t payload_crc = 0;
  // Every byte of the segment before this offset was acknowledged when this record was written.
  uint32_t settled = 0;
};

// A reset of a partition's log, by a kDrop or kTruncate record. It voids the earlier records after
// `index` and the earlier snapshots of a greater index; or, if a snapshot replaces the log,
// everything earlier but that snapshot.
struct LogReset {
  uint64_t index = 0;
  // The mark in the header of the snapshot that replaces the log; nullopt: a truncation.
  std::optional<uint64_t> mark;

  bool Voids(uint64_t other_index) const { return mark.has_value() || other_index > index; }
};

std::string EncodeSegmentHeader(const SegmentHeader& header);
// Nullopt if magic or checksum is wrong. The version may be newer than kLogVersion. REQUIRES:
// kSegmentHeaderBytes at `in`.
std::optional<SegmentHeader> DecodeSegmentHeader(const char* in);

// Encodes the header of a record at `offset` of `segment`. REQUIRES: kRecordHeaderBytes at `out`.
void EncodeRecordHeader(uint64_t job_id, uint64_t segment, uint64_t offset,
                        const RecordHeader& header, char* out);
// The size and the magic of a record header in segments of that version. REQUIRES: a version that
// DecodeSegmentHeader accepts.
size_t RecordHeaderBytes(uint32_t version);
absl::string_view RecordMagic(uint32_t version);
// Nullopt unless the bytes are the header of a record at this very place. REQUIRES:
// RecordHeaderBytes at `in`.
std::optional<RecordHeader> DecodeRecordHeader(uint32_t version, uint64_t job_id, uint64_t segment,
                                               uint64_t offset, const char* in);

// The payload of a kReached record: pairs of partition and index.
using ReachedIndices = std::vector<std::pair<uint32_t, uint64_t>>;
std::string EncodeReached(const ReachedIndices& reached);
std::optional<ReachedIndices> DecodeReached(absl::string_view payload);

// The payload of a kTruncate record.
std::string EncodeResetMark(std::optional<uint64_t> mark);
// Nullopt if the record is not a reset, or its payload is wrong.
std::optional<LogReset> DecodeReset(RecordType type, uint64_t index, absl::string_view payload);

// "0000000012.log" for 12, and back; nullopt for any other name.
std::string SegmentFileName(uint64_t segment);
std::optional<uint64_t> ParseSegmentFileName(absl::string_view name);

// The log's folder within the data directory.
inline constexpr char kLogFolder[] = "log";

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_WAL_LOG_FORMAT_H_
