#include "server/storage/log_writer.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/failpoint.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

uint32_t Crc32cOf(const ByteView& bytes) {
  uint32_t crc = 0;
  for (const ByteView::Fragment& fragment : bytes.fragments()) crc = Crc32c(crc, fragment.data(), fragment.size());
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
  if (file_ == nullptr || file_->size() >= options_.segment_bytes) PAWL_RETURN_IF_ERROR(OpenSegment());
  PAWL_RETURN_IF_ERROR(WriteRecords(records));
  for (const QueuedRecord& record : records) {
    if (record.type == RecordType::kDrop) {
      reached_.erase(record.partition);
    } else {
      reached_[record.partition] = record.index;
    }
  }
  return absl::OkStatus();
}

absl::Status LogWriter::WriteRecords(absl::Span<QueuedRecord> records) {
  headers_.resize(records.size() * kRecordHeaderBytes);
  fragments_.clear();
  char* header = headers_.data();
  uint64_t offset = file_->size();
  bool drops = false;
  for (QueuedRecord& record : records) {
    if (!record.payload_crc.has_value()) record.payload_crc = Crc32cOf(record.payload);
    record.offset = offset;
    drops = drops || record.type == RecordType::kDrop;
    EncodeRecordHeader(options_.job_id, segment_, offset,
                       {record.type, record.partition, record.index, static_cast<uint32_t>(record.payload.size()),
                        *record.payload_crc, static_cast<uint32_t>(settled_)},
                       header);
    fragments_.emplace_back(header, kRecordHeaderBytes);
    header += kRecordHeaderBytes;
    fragments_.insert(fragments_.end(), record.payload.fragments().begin(), record.payload.fragments().end());
    offset += kRecordHeaderBytes + record.payload.size();
  }
  if (PAWL_FAILPOINT("log.write")) return absl::DataLossError("failpoint log.write");
  PAWL_RETURN_IF_ERROR(Append(fragments_));
  PAWL_FAILPOINT("log.written");
  const auto sync = [&] {
    absl::Status status = options_.sync ? file_->Sync() : absl::OkStatus();
    if (!status.ok()) file_ = nullptr;  // The records may be gone; they are written anew elsewhere.
    return status;
  };
  PAWL_RETURN_IF_ERROR(sync());
  // A drop counts from the moment that it is known to be settled: before that its partition's owner must not have been told
  // (it could begin anew, with a snapshot that a later reading of the drop would void).
  if (drops) {
    const uint64_t acknowledged = std::exchange(settled_, offset);
    absl::Status status = AppendMark();
    if (status.ok()) status = sync();
    if (!status.ok()) {
      settled_ = acknowledged;
      file_ = nullptr;
      return status;
    }
  }
  PAWL_FAILPOINT("log.synced");
  settled_ = offset;
  marked_ = drops;
  return absl::OkStatus();
}

void LogWriter::MarkSettled() {
  if (marked_ || file_ == nullptr) return;
  marked_ = true;
  AppendMark().IgnoreError();
}

absl::Status LogWriter::AppendMark() {
  std::array<char, kRecordHeaderBytes> header;
  EncodeRecordHeader(options_.job_id, segment_, file_->size(),
                     {RecordType::kSettled, 0, 0, 0, 0, static_cast<uint32_t>(settled_)}, header.data());
  const WritableFile::Fragment fragment(header.data(), header.size());
  return Append(absl::MakeConstSpan(&fragment, 1));
}

absl::Status LogWriter::Append(absl::Span<const WritableFile::Fragment> fragments) {
  absl::Status status = file_->Append(fragments);
  if (status.ok()) return status;
  // A full disk is waited for; any other error may come back at the same place.
  if (!absl::IsResourceExhausted(status) || !file_->Truncate(file_->size()).ok()) file_ = nullptr;
  return status;
}

absl::Status LogWriter::OpenSegment() {
  // A new number for every try: what a failed one has left is in nobody's way.
  const uint64_t segment = next_segment_++;
  const std::string path = JoinPath(options_.log_folder, SegmentFileName(segment));
  const std::string temporary = absl::StrCat(path, ".tmp");
  PAWL_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, env_.Create(temporary));
  absl::Status status = FillSegment(*file, segment);
  if (!status.ok()) {
    env_.Delete(temporary).IgnoreError();
    return status;
  }
  PAWL_RETURN_IF_ERROR(env_.Rename(temporary, path));
  status = env_.SyncFolder(options_.log_folder);
  if (!status.ok()) {
    env_.Delete(path).IgnoreError();
    return status;
  }
  file_ = std::move(file);
  segment_ = segment;
  settled_ = file_->size();
  marked_ = true;
  return absl::OkStatus();
}

absl::Status LogWriter::FillSegment(WritableFile& file, uint64_t segment) const {
  const std::string header =
      EncodeSegmentHeader({options_.job_id, segment, segment_, segment_ == 0 ? 0 : settled_});
  const std::string reached = EncodeReached({reached_.begin(), reached_.end()});
  std::array<char, kRecordHeaderBytes> record;
  EncodeRecordHeader(options_.job_id, segment, kSegmentHeaderBytes,
                     {RecordType::kReached, 0, 0, static_cast<uint32_t>(reached.size()),
                      Crc32c(0, reached.data(), reached.size()), kSegmentHeaderBytes},
                     record.data());
  const std::array<WritableFile::Fragment, 3> fragments = {
      WritableFile::Fragment(header.data(), header.size()), WritableFile::Fragment(record.data(), record.size()),
      WritableFile::Fragment(reached.data(), reached.size())};
  PAWL_RETURN_IF_ERROR(file.Append(fragments));
  return file.Sync();
}

}  // namespace pawl
