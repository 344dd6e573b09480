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
  const uint32_t version = result.header.version;
  const size_t header_bytes = RecordHeaderBytes(version);
  uint64_t offset = kSegmentHeaderBytes;
  result.settled = kSegmentHeaderBytes;
  while (bytes.size() >= offset + header_bytes) {
    const std::optional<RecordHeader> header =
        DecodeRecordHeader(version, job_id, segment, offset, bytes.data() + offset);
    if (!header.has_value()) break;
    const uint64_t payload = offset + header_bytes;
    if (bytes.size() - payload < header->payload_bytes ||
        header->payload_crc != Crc32c(0, bytes.data() + payload, header->payload_bytes)) {
      break;
    }
    // Whole groups are acknowledged, one after the other.
    if (header->settled != result.settled && header->settled != offset) {
      const auto begins_before = [](const LogRecord& record, uint64_t at) {
        return record.offset < at;
      };
      const auto at = std::lower_bound(result.records.begin(), result.records.end(),
                                       header->settled, begins_before);
      if (header->settled < result.settled || at == result.records.end() ||
          at->offset != header->settled) {
        return Damaged(result.path, offset,
                       absl::StrCat("the record says that everything before ", header->settled,
                                    " is acknowledged, but no group of records ends there"));
      }
    }
    result.records.push_back({header->type, header->partition, header->index, header->term, offset,
                              bytes.substr(payload, header->payload_bytes)});
    result.settled = header->settled;
    offset = payload + header->payload_bytes;
  }
  result.end = offset;
  return result;
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
  if (result.end != bytes) {
    return Damaged(
        result.path, result.end,
        result.bytes->size() < bytes
            ? absl::StrCat("the file has ", result.bytes->size(), " bytes, but had ", bytes)
            : absl::StrCat("no whole record begins here, but records up to ", bytes,
                           " were acknowledged"));
  }
  result.settled = bytes;
  return result;
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
