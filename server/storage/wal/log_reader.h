// Reads one segment of the write-ahead log, and tells a torn tail from damage.
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
  // Where it begins.
  uint64_t offset = 0;
  // Lies in LogSegment::bytes.
  absl::string_view payload;
};

// A segment as it was found; all of it is checked.
struct LogSegment {
  std::string path;
  SegmentHeader header;
  // The file's contents: owns the payloads.
  std::shared_ptr<const std::string> bytes;
  std::vector<LogRecord> records;
  // The end of the last whole record.
  uint64_t end = 0;
  // Everything before it was acknowledged: a record says so, or the next segment's header.
  uint64_t settled = 0;
  // Bytes of a torn tail, behind `end`. Only in the last segment.
  uint64_t torn_bytes = 0;
};

// The header alone. NOT_FOUND; DATA_LOSS, naming the file and the offset; FAILED_PRECONDITION if it
// is another job's.
absl::StatusOr<SegmentHeader> ReadSegmentHeader(Env& env, const std::string& log_folder,
                                                uint64_t job_id, uint64_t segment);

// Reads a segment that is followed by another one, of which `bytes` count
// (SegmentHeader::previous_bytes). They must be whole: DATA_LOSS, naming the file and the offset.
absl::StatusOr<LogSegment> ReadClosedSegment(Env& env, const std::string& log_folder,
                                             uint64_t job_id, uint64_t segment, uint64_t bytes);

// The inputs of a partition that count, in their order: those that no cut in the segment makes
// void, up to `last_index` (SegmentUse).
std::vector<LogRecord> LiveRecords(const LogSegment& segment, uint32_t partition,
                                   uint64_t last_index);

// Reads the last segment. What cannot be read at its end is a torn tail, unless a later record
// proves that it was once acknowledged: then it is DATA_LOSS, naming the file and the offset.
absl::StatusOr<LogSegment> ReadLastSegment(Env& env, const std::string& log_folder, uint64_t job_id,
                                           uint64_t segment);

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_WAL_LOG_READER_H_
