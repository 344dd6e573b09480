#include "server/storage/wal/log_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"
#include "client_lib/base/status_macros.h"

namespace pawl {
namespace {

absl::Status Damaged(absl::string_view path, uint64_t offset, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, " is damaged at offset ", offset, ": ", what));
}

absl::StatusOr<SegmentHeader> CheckHeader(const std::string& path, uint64_t job_id,
                                          uint64_t segment, absl::string_view bytes) {
  // A segment gets its name only when its header is synced, so a wrong header is never torn.
  if (bytes.size() < kSegmentHeaderBytes)
    return Damaged(path, 0, "the file ends within the segment's header");
  const std::optional<SegmentHeader> header = DecodeSegmentHeader(bytes.data());
  if (!header.has_value())
    return Damaged(path, 0, "the segment's header is wrong in magic, version or checksum");
  if (header->version > kLogVersion) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has version ", header->version,
                                                   " of its format; this program reads 1 ", "to ",
                                                   kLogVersion, ": use a newer one"));
  }
  if (header->job_id != job_id) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " belongs to job ", header->job_id, ", not to job ", job_id,
                     "; name another data directory, or empty this one"));
  }
  if (header->segment != segment) {
    return Damaged(path, 0, absl::StrCat("it is segment ", header->segment, " under another name"));
  }
  return *header;
}

// A segment's bytes in memory.
class BytesInMemory {
 public:
  explicit BytesInMemory(absl::string_view bytes) : bytes_(bytes) {}

  uint64_t size() const { return bytes_.size(); }
  absl::StatusOr<const char*> Read(uint64_t offset, size_t) const { return bytes_.data() + offset; }
  absl::StatusOr<uint32_t> Crc(uint64_t offset, size_t size) const {
    return Crc32c(0, bytes_.data() + offset, size);
  }

 private:
  const absl::string_view bytes_;
};

// The first `size` bytes of a file, which is read front to back in pieces.
class BytesInFile {
 public:
  BytesInFile(const ReadableFile& file, uint64_t size, size_t piece_bytes)
      : file_(file), size_(size), buffer_(piece_bytes, '\0') {}

  uint64_t size() const { return size_; }
  // REQUIRES: `size` is at most `piece_bytes`, and the bytes exist.
  absl::StatusOr<const char*> Read(uint64_t offset, size_t size) {
    if (offset < begin_ || offset + size > begin_ + filled_) {
      begin_ = offset;
      filled_ = std::min<uint64_t>(buffer_.size(), size_ - offset);
      PAWL_ASSIGN_OR_RETURN(const size_t count,
                            file_.Read(offset, absl::MakeSpan(buffer_.data(), filled_)));
      // The file was truncated meanwhile: nothing there is a record.
      std::fill(buffer_.begin() + count, buffer_.end(), '\0');
    }
    return buffer_.data() + (offset - begin_);
  }
  absl::StatusOr<uint32_t> Crc(uint64_t offset, size_t size) {
    uint32_t crc = 0;
    while (size > 0) {
      // What the buffer has, or else the next piece.
      const bool has = offset >= begin_ && offset < begin_ + filled_;
      const size_t count =
          std::min<uint64_t>(size, has ? begin_ + filled_ - offset : buffer_.size());
      PAWL_ASSIGN_OR_RETURN(const char* const bytes, Read(offset, count));
      crc = Crc32c(crc, bytes, count);
      offset += count;
      size -= count;
    }
    return crc;
  }

 private:
  const ReadableFile& file_;
  const uint64_t size_;
  std::string buffer_;
  uint64_t begin_ = 0;
  size_t filled_ = 0;
};

struct ScannedRecords {
  // The end of the last whole record.
  uint64_t end = kSegmentHeaderBytes;
  uint64_t settled = kSegmentHeaderBytes;
};

// Calls visit(header, offset of the record) for each record up to the first incomplete one.
// DATA_LOSS: a record's `settled` is impossible.
template <typename Bytes, typename Visit>
absl::StatusOr<ScannedRecords> ScanRecords(const std::string& path, const SegmentHeader& segment,
                                           Bytes& bytes, Visit visit) {
  const size_t header_bytes = RecordHeaderBytes(segment.version);
  ScannedRecords scanned;
  std::vector<uint64_t> offsets;
  while (bytes.size() >= scanned.end + header_bytes) {
    const uint64_t offset = scanned.end;
    PAWL_ASSIGN_OR_RETURN(const char* const encoded, bytes.Read(offset, header_bytes));
    const std::optional<RecordHeader> header =
        DecodeRecordHeader(segment.version, segment.job_id, segment.segment, offset, encoded);
    if (!header.has_value()) break;
    const uint64_t payload = offset + header_bytes;
    if (bytes.size() - payload < header->payload_bytes) break;
    PAWL_ASSIGN_OR_RETURN(const uint32_t crc, bytes.Crc(payload, header->payload_bytes));
    if (header->payload_crc != crc) break;
    // Whole groups are acknowledged, one after the other.
    if (header->settled != scanned.settled && header->settled != offset &&
        (header->settled < scanned.settled ||
         !std::binary_search(offsets.begin(), offsets.end(), header->settled))) {
      return Damaged(path, offset,
                     absl::StrCat("the record says that everything before ", header->settled,
                                  " is acknowledged, but no group of records ends there"));
    }
    offsets.push_back(offset);
    visit(*header, offset);
    scanned.settled = header->settled;
    scanned.end = payload + header->payload_bytes;
  }
  return scanned;
}

// Reads the header and then the records up to the first incomplete one, or to `limit`.
absl::StatusOr<LogSegment> ReadRecords(Env& env, const std::string& log_folder, uint64_t job_id,
                                       uint64_t segment, uint64_t limit) {
  LogSegment result;
  result.path = JoinPath(log_folder, SegmentFileName(segment));
  PAWL_ASSIGN_OR_RETURN(std::string contents,
                        ReadWholeFile(env, result.path, kMaxSegmentFileBytes));
  PAWL_ASSIGN_OR_RETURN(result.header, CheckHeader(result.path, job_id, segment, contents));
  result.bytes = std::make_shared<const std::string>(std::move(contents));
  const absl::string_view bytes = absl::string_view(*result.bytes).substr(0, limit);
  const size_t header_bytes = RecordHeaderBytes(result.header.version);
  BytesInMemory in_memory(bytes);
  PAWL_ASSIGN_OR_RETURN(
      const ScannedRecords scanned,
      ScanRecords(
          result.path, result.header, in_memory, [&](const RecordHeader& header, uint64_t offset) {
            result.records.push_back({header.type, header.partition, header.index, header.term,
                                      offset,
                                      bytes.substr(offset + header_bytes, header.payload_bytes)});
          }));
  result.end = scanned.end;
  result.settled = scanned.settled;
  return result;
}

absl::Status EndsBeforeItsBytes(const std::string& path, uint64_t end, uint64_t file_bytes,
                                uint64_t bytes) {
  return Damaged(path, end,
                 file_bytes < bytes
                     ? absl::StrCat("the file has ", file_bytes, " bytes, but had ", bytes)
                     : absl::StrCat("no whole record begins here, but records up to ", bytes,
                                    " were acknowledged"));
}

// The first record after `from` that was written when the byte at `from` had been acknowledged. A
// whole header suffices: it is valid only at its own place.
std::optional<uint64_t> FindProofOfDamage(absl::string_view bytes, const SegmentHeader& of,
                                          uint64_t from) {
  const absl::string_view magic = RecordMagic(of.version);
  size_t at = from;
  while ((at = bytes.find(magic, at)) != absl::string_view::npos &&
         bytes.size() - at >= RecordHeaderBytes(of.version)) {
    const std::optional<RecordHeader> header =
        DecodeRecordHeader(of.version, of.job_id, of.segment, at, bytes.data() + at);
    if (header.has_value() && header->settled > from) return at;
    ++at;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<SegmentHeader> ReadSegmentHeader(Env& env, const std::string& log_folder,
                                                uint64_t job_id, uint64_t segment) {
  const std::string path = JoinPath(log_folder, SegmentFileName(segment));
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, env.OpenForRead(path));
  char bytes[kSegmentHeaderBytes];
  PAWL_ASSIGN_OR_RETURN(const size_t count, file->Read(0, absl::MakeSpan(bytes)));
  return CheckHeader(path, job_id, segment, absl::string_view(bytes, count));
}

absl::StatusOr<LogSegment> ReadClosedSegment(Env& env, const std::string& log_folder,
                                             uint64_t job_id, uint64_t segment, uint64_t bytes) {
  PAWL_ASSIGN_OR_RETURN(LogSegment result, ReadRecords(env, log_folder, job_id, segment, bytes));
  if (result.end != bytes)
    return EndsBeforeItsBytes(result.path, result.end, result.bytes->size(), bytes);
  result.settled = bytes;
  return result;
}

absl::Status VerifyClosedSegment(Env& env, const std::string& log_folder, uint64_t job_id,
                                 uint64_t segment, uint64_t bytes, size_t piece_bytes) {
  const std::string path = JoinPath(log_folder, SegmentFileName(segment));
  PAWL_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, env.OpenForRead(path));
  PAWL_ASSIGN_OR_RETURN(const uint64_t file_bytes, file->Size());
  BytesInFile in_file(*file, std::min(file_bytes, bytes), piece_bytes);
  const size_t header_bytes = std::min<uint64_t>(in_file.size(), kSegmentHeaderBytes);
  PAWL_ASSIGN_OR_RETURN(const char* const encoded, in_file.Read(0, header_bytes));
  PAWL_ASSIGN_OR_RETURN(
      const SegmentHeader header,
      CheckHeader(path, job_id, segment, absl::string_view(encoded, header_bytes)));
  PAWL_ASSIGN_OR_RETURN(const ScannedRecords scanned,
                        ScanRecords(path, header, in_file, [](const RecordHeader&, uint64_t) {}));
  if (scanned.end == bytes) return absl::OkStatus();
  return EndsBeforeItsBytes(path, scanned.end, file_bytes, bytes);
}

std::vector<LogRecord> LiveRecords(const LogSegment& segment, uint32_t partition,
                                   uint64_t last_index) {
  std::vector<LogRecord> live;
  const auto reset_at = [&](const LogReset& reset) {
    while (!live.empty() && reset.Voids(live.back().index)) live.pop_back();
  };
  for (const LogRecord& record : segment.records) {
    if (record.partition != partition) continue;
    if (record.type == RecordType::kData) {
      live.push_back(record);
    } else if (const std::optional<LogReset> reset =
                   DecodeReset(record.type, record.index, record.payload)) {
      reset_at(*reset);
    }
  }
  reset_at({last_index, std::nullopt});
  return live;
}

absl::StatusOr<LogSegment> ReadLastSegment(Env& env, const std::string& log_folder, uint64_t job_id,
                                           uint64_t segment) {
  PAWL_ASSIGN_OR_RETURN(LogSegment result,
                        ReadRecords(env, log_folder, job_id, segment, std::string::npos));
  result.torn_bytes = result.bytes->size() - result.end;
  if (result.torn_bytes == 0) return result;
  if (const std::optional<uint64_t> proof =
          FindProofOfDamage(*result.bytes, result.header, result.end)) {
    return Damaged(result.path, result.end,
                   absl::StrCat("no whole record begins here, but the one at ", *proof,
                                " was written after this place was acknowledged"));
  }
  return result;
}

}  // namespace pawl
