#include "scheduler/store/state_log.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "client_lib/base/crc32c.h"

namespace pawl {
namespace {

// Integers are little-endian.
template <typename Integer>
void AppendInteger(Integer value, std::string& to) {
  for (size_t i = 0; i < sizeof(Integer); ++i) to.push_back(static_cast<char>(value >> (8 * i)));
}

template <typename Integer>
Integer IntegerAt(absl::string_view bytes, size_t offset) {
  Integer value = 0;
  for (size_t i = 0; i < sizeof(Integer); ++i) {
    value |= static_cast<Integer>(static_cast<unsigned char>(bytes[offset + i])) << (8 * i);
  }
  return value;
}

struct Record {
  uint64_t revision = 0;
  absl::string_view state;
};

constexpr size_t kCheckedHeaderBytes = kStateRecordHeaderBytes - sizeof(uint32_t);

// The record that begins `bytes`; none if there is no whole and undamaged one.
std::optional<Record> RecordAt(absl::string_view bytes) {
  if (bytes.size() < kStateRecordHeaderBytes) return std::nullopt;
  if (Crc32c(0, bytes.data(), kCheckedHeaderBytes) != IntegerAt<uint32_t>(bytes, kCheckedHeaderBytes)) {
    return std::nullopt;
  }
  const uint32_t size = IntegerAt<uint32_t>(bytes, 0);
  if (size > kMaxStateBytes || bytes.size() - kStateRecordHeaderBytes < size) return std::nullopt;
  const absl::string_view state = bytes.substr(kStateRecordHeaderBytes, size);
  if (Crc32c(0, state.data(), state.size()) != IntegerAt<uint32_t>(bytes, 4)) return std::nullopt;
  return Record{IntegerAt<uint64_t>(bytes, 8), state};
}

}  // namespace

void AppendStateRecord(uint64_t revision, absl::string_view state, std::string& log) {
  const size_t begin = log.size();
  log.reserve(begin + kStateRecordHeaderBytes + state.size());
  AppendInteger(static_cast<uint32_t>(state.size()), log);
  AppendInteger(Crc32c(0, state.data(), state.size()), log);
  AppendInteger(revision, log);
  AppendInteger(Crc32c(0, log.data() + begin, kCheckedHeaderBytes), log);
  log.append(state.data(), state.size());
}

absl::StatusOr<StateLog> ParseStateLog(absl::string_view log) {
  const absl::string_view magic(kStateLogMagic, sizeof(kStateLogMagic));
  if (log.substr(0, magic.size()) != magic) {
    return absl::DataLossError(absl::StrCat("offset 0: this is not a state log, which begins with \"", magic, "\""));
  }
  Record newest;
  size_t end = magic.size();
  while (end < log.size()) {
    const std::optional<Record> record = RecordAt(log.substr(end));
    if (!record.has_value()) break;
    if (record->revision <= newest.revision) {
      return absl::DataLossError(
          absl::StrCat("offset ", end, ": revision ", record->revision, " follows revision ", newest.revision));
    }
    newest = *record;
    end += kStateRecordHeaderBytes + record->state.size();
  }
  if (newest.revision == 0) {
    // A log is put in place with its first record.
    return absl::DataLossError(absl::StrCat("offset ", end, ": the first record is damaged or missing"));
  }
  // One write at a time is under way, so an interrupted one is at the end, and no record was written after it.
  if (log.size() - end > kMaxStateRecordBytes) {
    return absl::DataLossError(absl::StrCat("offset ", end, ": ", log.size() - end,
                                            " bytes that are no record, and more than one interrupted write leaves"));
  }
  for (size_t offset = end + 1; offset < log.size(); ++offset) {
    if (RecordAt(log.substr(offset)).has_value()) {
      return absl::DataLossError(absl::StrCat("offset ", end, ": a damaged record; a good one follows at offset ", offset));
    }
  }
  StateLog parsed;
  parsed.newest = {newest.revision, std::string(newest.state)};
  parsed.end = end;
  return parsed;
}

}  // namespace pawl
