#include "server/storage/wal/log_format.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/crc32c.h"

namespace pawl {
namespace {

constexpr absl::string_view kSegmentMagic = "PAWLWAL\n";
constexpr absl::string_view kRecordMagicV1 = "PWR\xb1";
constexpr absl::string_view kRecordMagic = "PWR\xb2";
constexpr size_t kRecordHeaderBytesV1 = 36;
// Magic and checksum.
constexpr size_t kChecked = 8;
constexpr size_t kReachedEntryBytes = 12;
constexpr absl::string_view kSegmentSuffix = ".log";
constexpr size_t kSegmentDigits = 10;

// Covers the job's id, in version 1 also the place (which version 2 has in the header), and what
// follows the checksum. So a record is valid nowhere else: not as a payload that contains a copy of
// a log, not in another segment, not in another job.
uint32_t RecordHeaderCrc(uint32_t version, uint64_t job_id, uint64_t segment, uint64_t offset,
                         const char* header) {
  char place[24];
  const char* end = PutNumber(place, job_id);
  if (version == 1) end = PutNumber(PutNumber(place + 8, segment), offset);
  return Crc32c(Crc32c(0, place, end - place), header + kChecked,
                RecordHeaderBytes(version) - kChecked);
}

}  // namespace

std::string EncodeSegmentHeader(const SegmentHeader& header) {
  std::string bytes(kSegmentHeaderBytes, '\0');
  std::memcpy(bytes.data(), kSegmentMagic.data(), kSegmentMagic.size());
  char* out = bytes.data() + kSegmentMagic.size();
  out = PutNumber(out, kLogVersion);
  out = PutNumber(out, header.job_id);
  out = PutNumber(out, header.segment);
  out = PutNumber(out, header.previous_segment);
  out = PutNumber(out, header.previous_bytes);
  PutNumber(out, Crc32c(0, bytes.data(), kSegmentHeaderBytes - 4));
  return bytes;
}

std::optional<SegmentHeader> DecodeSegmentHeader(const char* in) {
  const char* const begin = in;
  if (absl::string_view(in, kSegmentMagic.size()) != kSegmentMagic) return std::nullopt;
  in += kSegmentMagic.size();
  SegmentHeader header;
  header.version = TakeNumber<uint32_t>(in);
  if (header.version < 1) return std::nullopt;
  header.job_id = TakeNumber<uint64_t>(in);
  header.segment = TakeNumber<uint64_t>(in);
  header.previous_segment = TakeNumber<uint64_t>(in);
  header.previous_bytes = TakeNumber<uint64_t>(in);
  if (TakeNumber<uint32_t>(in) != Crc32c(0, begin, kSegmentHeaderBytes - 4)) return std::nullopt;
  return header;
}

void EncodeRecordHeader(uint64_t job_id, uint64_t segment, uint64_t offset,
                        const RecordHeader& header, char* out) {
  std::memcpy(out, kRecordMagic.data(), kRecordMagic.size());
  char* next = out + kChecked;
  next = PutNumber(next, header.payload_bytes);
  next = PutNumber(next, header.payload_crc);
  next = PutNumber(next, header.settled);
  next = PutNumber(next, static_cast<uint32_t>(header.type));
  next = PutNumber(next, header.partition);
  next = PutNumber(next, static_cast<uint32_t>(offset));
  next = PutNumber(next, header.index);
  next = PutNumber(next, header.term);
  PutNumber(next, segment);
  PutNumber(out + 4, RecordHeaderCrc(kLogVersion, job_id, segment, offset, out));
}

size_t RecordHeaderBytes(uint32_t version) {
  return version == 1 ? kRecordHeaderBytesV1 : kRecordHeaderBytes;
}

absl::string_view RecordMagic(uint32_t version) {
  return version == 1 ? kRecordMagicV1 : kRecordMagic;
}

std::optional<RecordHeader> DecodeRecordHeader(uint32_t version, uint64_t job_id, uint64_t segment,
                                               uint64_t offset, const char* in) {
  const absl::string_view magic = RecordMagic(version);
  if (absl::string_view(in, magic.size()) != magic) return std::nullopt;
  const char* const begin = in;
  in += magic.size();
  if (TakeNumber<uint32_t>(in) != RecordHeaderCrc(version, job_id, segment, offset, begin))
    return std::nullopt;
  RecordHeader header;
  header.payload_bytes = TakeNumber<uint32_t>(in);
  header.payload_crc = TakeNumber<uint32_t>(in);
  header.settled = TakeNumber<uint32_t>(in);
  const auto type = TakeNumber<uint32_t>(in);
  header.partition = TakeNumber<uint32_t>(in);
  if (version > 1 && TakeNumber<uint32_t>(in) != offset) return std::nullopt;
  header.index = TakeNumber<uint64_t>(in);
  if (version > 1) {
    header.term = TakeNumber<uint64_t>(in);
    if (TakeNumber<uint64_t>(in) != segment) return std::nullopt;
  }
  if (type < 1 || type > (version == 1 ? 4 : 5) || header.payload_bytes > kMaxRecordPayloadBytes ||
      header.settled > offset) {
    return std::nullopt;
  }
  header.type = static_cast<RecordType>(type);
  return header;
}

std::string EncodeReached(const ReachedIndices& reached) {
  std::string payload(reached.size() * kReachedEntryBytes, '\0');
  char* out = payload.data();
  for (const auto& [partition, index] : reached) out = PutNumber(PutNumber(out, partition), index);
  return payload;
}

std::optional<ReachedIndices> DecodeReached(absl::string_view payload) {
  if (payload.size() % kReachedEntryBytes != 0) return std::nullopt;
  ReachedIndices reached(payload.size() / kReachedEntryBytes);
  const char* in = payload.data();
  for (auto& [partition, index] : reached) {
    partition = TakeNumber<uint32_t>(in);
    index = TakeNumber<uint64_t>(in);
  }
  return reached;
}

std::string EncodeResetMark(std::optional<uint64_t> mark) {
  if (!mark.has_value()) return "";
  std::string payload(sizeof(*mark), '\0');
  PutNumber(payload.data(), *mark);
  return payload;
}

std::optional<LogReset> DecodeReset(RecordType type, uint64_t index, absl::string_view payload) {
  if (type == RecordType::kDrop) return LogReset();
  if (type != RecordType::kTruncate || (!payload.empty() && payload.size() != sizeof(uint64_t)))
    return std::nullopt;
  LogReset reset{index, std::nullopt};
  const char* in = payload.data();
  if (!payload.empty()) reset.mark = TakeNumber<uint64_t>(in);
  return reset;
}

std::string SegmentFileName(uint64_t segment) {
  return absl::StrFormat("%010d%s", segment, kSegmentSuffix);
}

std::optional<uint64_t> ParseSegmentFileName(absl::string_view name) {
  uint64_t segment = 0;
  if (name.size() != kSegmentDigits + kSegmentSuffix.size() ||
      !absl::EndsWith(name, kSegmentSuffix) ||
      name.substr(0, kSegmentDigits).find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(name.substr(0, kSegmentDigits), &segment)) {
    return std::nullopt;
  }
  return segment;
}

}  // namespace pawl
