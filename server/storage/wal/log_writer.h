// Writes groups of records into the log's segments.
#ifndef PAWL_SERVER_STORAGE_WAL_LOG_WRITER_H_
#define PAWL_SERVER_STORAGE_WAL_LOG_WRITER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/env.h"
#include "server/storage/wal/log_format.h"

namespace pawl {

struct QueuedRecord {
  RecordType type = RecordType::kData;
  uint32_t partition = 0;
  uint64_t index = 0;
  uint64_t term = 0;
  ByteView payload;
  // Keeps the payload's memory.
  std::shared_ptr<const void> owner;
  // Filled in by the writer: computed once, however often the record is written.
  std::optional<uint32_t> payload_crc;
  uint64_t offset = 0;

  bool IsCut() const { return type == RecordType::kDrop || type == RecordType::kTruncate; }
};

// Not thread-safe: belongs to the log's thread. A group is settled, that is, may be acknowledged,
// when WriteGroup has succeeded; after an error the same group is to be written again before any
// other.
//
// Invariants:
//   1. Bytes of a segment before settled() are never written again.
//   2. A segment whose sync has failed, or whose end cannot be cut, is never appended to again; the
//   next segment's
//      header says how many of its bytes count.
//   3. A segment has its final name only when its header and its first group are durable, and with
//   them
//      all that is settled in the segments before it, in LOG mode too.
//   4. A cut is in the first group of a segment. So what is done to snapshots for a settled cut
//   never
//      outlives the cut, and a cut that can be read in a synced folder is durable.
class LogWriter {
 public:
  struct Options {
    std::string log_folder;
    uint64_t job_id = 0;
    // FSYNC: every group is synced before it is settled. Otherwise (LOG) only the first of a
    // segment.
    bool sync = true;
    // A segment that has reached this size gets a successor.
    uint64_t segment_bytes = 64u << 20;
  };
  // Where an earlier incarnation of the log ended.
  struct End {
    uint64_t segment = 0;  // 0: there was none.
    uint64_t settled = 0;
    uint64_t next_segment = 1;
    // By partition, what its records before `settled` reach.
    absl::btree_map<uint32_t, uint64_t> reached;
  };

  LogWriter(Env& env, Options options, End end);

  absl::Status WriteGroup(absl::Span<QueuedRecord> records);
  // The next group goes into a new segment.
  void EndSegment() { ended_ = true; }
  // Notes in the file that all of it is settled, so that damage to the last group is told from a
  // torn tail. Nothing is lost if this fails. Not synced.
  void MarkSettled();

  // The end of what is settled. Never goes back.
  LogPosition settled() const { return {segment_, settled_}; }

 private:
  // At the end of the segment that is open.
  absl::Status WriteRecords(absl::Span<QueuedRecord> records);
  // Into a new segment, which is there with all of them or not at all. So records that an earlier
  // segment's end may hold, and that the new segment's header declares void there, are never
  // missing.
  absl::Status WriteSegment(absl::Span<QueuedRecord> records);
  // Appends the records to fragments_, as they are to lie from `offset` of `segment` on; returns
  // the offset behind them.
  uint64_t Encode(absl::Span<QueuedRecord> records, uint64_t segment, uint64_t offset,
                  uint64_t settled);
  std::array<char, kRecordHeaderBytes> EncodeMark(uint64_t segment, uint64_t offset) const;
  absl::Status Append(absl::Span<const WritableFile::Fragment> fragments);
  absl::Status AppendMark();

  Env& env_;
  const Options options_;
  uint64_t segment_;
  uint64_t settled_;
  uint64_t next_segment_;
  absl::btree_map<uint32_t, uint64_t> reached_;
  // Of segment_; null if that is of an earlier incarnation, and durable.
  std::unique_ptr<WritableFile> file_;
  // Nothing is appended to file_ any more.
  bool ended_ = true;
  bool marked_ = true;
  // Of the last group, kept for their memory.
  std::string headers_;
  std::vector<WritableFile::Fragment> fragments_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_WAL_LOG_WRITER_H_
