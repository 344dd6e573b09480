// Reads one segment of the write-ahead log, and distinguishes a torn tail from damage.
#ifndef PAWL_SERVER_STORAGE_WAL_LOG_READER_H_
#define PAWL_SERVER_STORAGE_WAL_LOG_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client_lib/base/env.h"
#include "server/storage/wal/log_format.h"

namespace pawl {

struct LogRecord {
  RecordType type = RecordType::kData;
  uint32_t partition = 0;
  uint64_t index = 0;
  uint64_t term = 0;
  // Where the record begins.
  uint64_t offset = 0;
  // Points into LogSegment::bytes.
  absl::string_view payload;
};

// A segment as it was found, verified.
struct LogSegment {
  std::string path;
  SegmentHeader header;
  // The file's contents, which own the payloads.
  std::shared_ptr<const std::string> bytes;
  std::vector<LogRecord> records;
  // The end of the last whole record.
  uint64_t end = 0;
  // Everything before it was acknowledged, according to a record or the next segment's header.
  uint64_t settled = 0;
  // The bytes of a torn tail after `end`; only in the last segment.
  uint64_t torn_bytes = 0;
};

// Reads the header only. NOT_FOUND. DATA_LOSS names the file and the offset. FAILED_PRECONDITION:
// the segment is another job's. INVALID_ARGUMENT: its version is newer than this program.
absl::StatusOr<SegmentHeader> ReadSegmentHeader(Env& env, const std::string& log_folder,
                                                uint64_t job_id, uint64_t segment);

// Reads a segment that has a successor, which says that `bytes` of it count
// (SegmentHeader::previous_bytes). They must be whole records: DATA_LOSS names the file and the
// offset.
absl::StatusOr<LogSegment> ReadClosedSegment(Env& env, const std::string& log_folder,
                                             uint64_t job_id, uint64_t segment, uint64_t bytes);

// The same checks, without the contents: holds only a piece of the file in memory.
inline constexpr size_t kVerifyPieceBytes = size_t{256} << 10;
absl::Status VerifyClosedSegment(Env& env, const std::string& log_folder, uint64_t job_id,
                                 uint64_t segment, uint64_t bytes,
                                 size_t piece_bytes = kVerifyPieceBytes);

// The valid inputs of a partition, in order: those that no reset in the segment voids, up to
// `last_index` (SegmentUse).
std::vector<LogRecord> LiveRecords(const LogSegment& segment, uint32_t partition,
                                   uint64_t last_index);

// Reads the last segment. Unreadable bytes at its end are a torn tail, unless a later record proves
// that they were acknowledged: then DATA_LOSS names the file and the offset.
absl::StatusOr<LogSegment> ReadLastSegment(Env& env, const std::string& log_folder, uint64_t job_id,
                                           uint64_t segment);

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_WAL_LOG_READER_H_
