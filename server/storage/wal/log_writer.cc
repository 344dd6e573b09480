#include "server/storage/wal/log_writer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

// Up to this size a payload is copied behind its header: a call that writes many small records then
// has one fragment instead of thousands.
constexpr size_t kMaxCopiedBytes = 512;

// How many bytes of a payload are copied.
size_t CopiedBytes(const ByteView& payload) {
  return payload.size() <= kMaxCopiedBytes ? payload.size() : 0;
}

uint32_t Crc32cOf(const ByteView& bytes) {
  uint32_t crc = 0;
  for (const ByteView::Fragment& fragment : bytes.fragments())
    crc = Crc32c(crc, fragment.data(), fragment.size());
  return crc;
}

}  // namespace

LogWriter::LogWriter(Env& env, Options options, End end)
    : env_(env),
      options_(std::move(options)),
      segment_(end.segment),
      settled_(end.settled),
      next_segment_(end.next_segment),
      reached_(std::move(end.reached)) {}

absl::Status LogWriter::WriteGroup(absl::Span<QueuedRecord> records) {
  if (PAWL_FAILPOINT("log.write")) return absl::DataLossError("failpoint log.write");
  const bool has_reset = std::any_of(records.begin(), records.end(),
                                     [](const QueuedRecord& record) { return record.IsReset(); });
  const bool is_full = ended_ || file_->size() >= options_.segment_bytes;
  PAWL_RETURN_IF_ERROR(is_full || has_reset ? WriteSegment(records) : WriteRecords(records));
  PAWL_FAILPOINT("log.synced");
  for (const QueuedRecord& record : records) {
    if (record.IsReset() && record.index == 0) {
      reached_.erase(record.partition);
    } else {
      reached_[record.partition] = record.index;
    }
  }
  return absl::OkStatus();
}

uint64_t LogWriter::Encode(absl::Span<QueuedRecord> records, uint64_t segment, uint64_t offset,
                           uint64_t settled) {
  size_t copied_bytes = 0;
  for (const QueuedRecord& record : records)
    copied_bytes += kRecordHeaderBytes + CopiedBytes(record.payload);
  // Only grows: what it holds is written over.
  if (copied_.size() < copied_bytes) copied_.resize(copied_bytes);
  const char* begin = copied_.data();
  char* end = copied_.data();
  const auto flush = [&] {
    if (end > begin) fragments_.emplace_back(begin, end - begin);
    begin = end;
  };
  for (QueuedRecord& record : records) {
    if (!record.payload_crc.has_value()) record.payload_crc = Crc32cOf(record.payload);
    record.offset = offset;
    EncodeRecordHeader(options_.job_id, segment, offset,
                       {record.type, record.partition, record.index, record.term,
                        static_cast<uint32_t>(record.payload.size()), *record.payload_crc,
                        static_cast<uint32_t>(settled)},
                       end);
    end += kRecordHeaderBytes;
    if (CopiedBytes(record.payload) > 0) {
      record.payload.CopyTo(end);
      end += record.payload.size();
    } else {
      flush();
      fragments_.insert(fragments_.end(), record.payload.fragments().begin(),
                        record.payload.fragments().end());
    }
    offset += kRecordHeaderBytes + record.payload.size();
  }
  flush();
  return offset;
}

std::array<char, kRecordHeaderBytes> LogWriter::EncodeMark(uint64_t segment,
                                                           uint64_t offset) const {
  std::array<char, kRecordHeaderBytes> mark;
  EncodeRecordHeader(options_.job_id, segment, offset,
                     {RecordType::kSettled, 0, 0, 0, 0, 0, static_cast<uint32_t>(offset)},
                     mark.data());
  return mark;
}

absl::Status LogWriter::WriteRecords(absl::Span<QueuedRecord> records) {
  fragments_.clear();
  const uint64_t end = Encode(records, segment_, file_->size(), settled_);
  PAWL_RETURN_IF_ERROR(Append(fragments_));
  PAWL_FAILPOINT("log.written");
  absl::Status status = options_.sync ? file_->Sync() : absl::OkStatus();
  if (status.ok() && PAWL_FAILPOINT("log.sync")) status = absl::DataLossError("failpoint log.sync");
  if (!status.ok()) {
    ended_ = true;  // The records may be lost; they are written again elsewhere.
    failed_sync_ = segment_;
    return status;
  }
  settled_ = end;
  marked_ = false;
  return absl::OkStatus();
}

void LogWriter::MarkSettled() {
  if (marked_ || ended_) return;
  marked_ = true;
  AppendMark().IgnoreError();
}

absl::Status LogWriter::AppendMark() {
  const std::array<char, kRecordHeaderBytes> mark = EncodeMark(segment_, file_->size());
  const WritableFile::Fragment fragment(mark.data(), mark.size());
  return Append(absl::MakeConstSpan(&fragment, 1));
}

absl::Status LogWriter::Append(absl::Span<const WritableFile::Fragment> fragments) {
  absl::Status status = file_->Append(fragments);
  if (status.ok()) return status;
  // A full disk is waited for; any other error may recur at the same place.
  if (!absl::IsResourceExhausted(status) || !file_->Truncate(file_->size()).ok()) ended_ = true;
  return status;
}

absl::Status LogWriter::WriteSegment(absl::Span<QueuedRecord> records) {
  // With options_.sync everything settled is already synced.
  if (!options_.sync && file_ != nullptr) {
    if (absl::Status status = file_->Sync(); !status.ok()) {
      // Another sync of the file would prove nothing. Its records can still be read; if a power
      // loss takes them, recovery finds that previous_bytes are missing.
      file_ = nullptr;
      ended_ = true;
      failed_sync_ = segment_;
      return status;
    }
  }
  // What a failed try has left would seem to belong to the log once its predecessor is deleted.
  if (!abandoned_.empty()) {
    const absl::Status deleted = env_.Delete(abandoned_);
    if (!deleted.ok() && !absl::IsNotFound(deleted)) return deleted;
    abandoned_.clear();
  }
  // Every try gets a new number, so temporary files of failed tries do not matter.
  const uint64_t segment = next_segment_++;
  const std::string header =
      EncodeSegmentHeader({options_.job_id, segment, segment_, segment_ == 0 ? 0 : settled_});
  const std::string reached = EncodeReached({reached_.begin(), reached_.end()});
  std::array<char, kRecordHeaderBytes> reached_header;
  EncodeRecordHeader(options_.job_id, segment, kSegmentHeaderBytes,
                     {RecordType::kReached, 0, 0, 0, static_cast<uint32_t>(reached.size()),
                      Crc32c(0, reached.data(), reached.size()), kSegmentHeaderBytes},
                     reached_header.data());
  fragments_.clear();
  fragments_.emplace_back(header.data(), header.size());
  fragments_.emplace_back(reached_header.data(), reached_header.size());
  fragments_.emplace_back(reached.data(), reached.size());
  const uint64_t end =
      Encode(records, segment, kSegmentHeaderBytes + kRecordHeaderBytes + reached.size(),
             kSegmentHeaderBytes);
  const std::array<char, kRecordHeaderBytes> mark = EncodeMark(segment, end);
  fragments_.emplace_back(mark.data(), mark.size());

  const std::string path = JoinPath(options_.log_folder, SegmentFileName(segment));
  const std::string temporary = absl::StrCat(path, ".tmp");
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, env_.Create(temporary));
  absl::Status status = file->Append(fragments_);
  if (status.ok()) status = file->Sync();
  if (!status.ok()) {
    env_.Delete(temporary).IgnoreError();
    return status;
  }
  ended_ = true;
  abandoned_ = path;
  status = PAWL_FAILPOINT("log.segment_rename")
               ? absl::DataLossError("failpoint log.segment_rename")
               : env_.Rename(temporary, path);
  if (!status.ok()) {
    env_.Delete(temporary).IgnoreError();
    return status;
  }
  PAWL_FAILPOINT("log.segment_renamed");
  PAWL_RETURN_IF_ERROR(env_.SyncFolder(options_.log_folder));
  abandoned_.clear();
  file_ = std::move(file);
  ended_ = false;
  segment_ = segment;
  settled_ = end;
  marked_ = true;
  return absl::OkStatus();
}

}  // namespace pawl
