// The log writer appends groups of records to the log's segments.
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
  // Keeps the payload's memory alive.
  std::shared_ptr<const void> owner;
  // Set by the writer: computed once, however often the record is written.
  std::optional<uint32_t> payload_crc;
  uint64_t offset = 0;

  bool IsReset() const { return type == RecordType::kDrop || type == RecordType::kTruncate; }
};

// Not thread-safe: belongs to the log's thread. A group is settled, and may be acknowledged, when
// WriteGroup has succeeded. After an error the same group must be written again before any other.
//
// Invariants:
// 1. Bytes of a segment before settled() are never written again.
// 2. A segment whose sync failed, or whose end cannot be truncated, is never appended to again; the
//    next segment's header says how many of its bytes count.
// 3. A segment gets its final name only when its header, its first group and everything settled in
//    earlier segments are durable, in LOG mode too.
// 4. A reset is in the first group of a segment. So what a settled reset does to snapshots never
//    outlives the reset, and a reset that is readable in a synced folder is durable.
// 5. A segment is never appended to once a successor may have its final name: that one's header
//    declares later bytes void.
class LogWriter {
 public:
  struct Options {
    std::string log_folder;
    uint64_t job_id = 0;
    // FSYNC: every group is synced before it is settled. Otherwise (LOG) only the first group of a
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
    // By partition: the last index of its records before `settled`.
    absl::btree_map<uint32_t, uint64_t> reached;
  };

  LogWriter(Env& env, Options options, End end);

  absl::Status WriteGroup(absl::Span<QueuedRecord> records);
  // The next group goes into a new segment.
  void EndSegment() { ended_ = true; }
  // Records in the file that all of it is settled, so that damage to the last group is not taken
  // for a torn tail. A failure loses nothing. Not synced.
  void MarkSettled();

  // The last segment whose sync failed: some of its settled bytes may be nowhere but in the
  // system's cache. 0: none.
  uint64_t failed_sync() const { return failed_sync_; }

  // The end of the settled part. Never decreases.
  LogPosition settled() const { return {segment_, settled_}; }

 private:
  // Appends to the open segment.
  absl::Status WriteRecords(absl::Span<QueuedRecord> records);
  // Writes a new segment, which exists with all records or not at all. So records that an earlier
  // segment's end may hold, and that the new header declares void there, are never missing.
  absl::Status WriteSegment(absl::Span<QueuedRecord> records);
  // Appends the records to fragments_, encoded for `offset` of `segment`; returns the offset after
  // them.
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
  // The file of segment_; null if that is durable and of an earlier incarnation.
  std::unique_ptr<WritableFile> file_;
  // Nothing more is appended to file_.
  bool ended_ = true;
  // The segment, if any, that a failed try may have left under its final name.
  std::string abandoned_;
  uint64_t failed_sync_ = 0;
  bool marked_ = true;
  // Buffers of the last group, reused for their memory: headers and small payloads, and everything
  // in the order of the file.
  std::string copied_;
  std::vector<WritableFile::Fragment> fragments_;
};

}  // namespace pawl

#endif  // PAWL_SERVER_STORAGE_WAL_LOG_WRITER_H_
