#include "scheduler/store/state_log.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "client_lib/base/bytes.h"
#include "client_lib/base/crc32c.h"

namespace pawl {
namespace {

template <typename Unsigned>
Unsigned NumberAt(absl::string_view bytes, size_t offset) {
  const char* at = bytes.data() + offset;
  return TakeNumber<Unsigned>(at);
}

struct Record {
  uint64_t revision = 0;
  absl::string_view state;
};

constexpr size_t kCheckedHeaderBytes = kStateRecordHeaderBytes - sizeof(uint32_t);

// The record at the start of `bytes`; nullopt if it is incomplete or damaged.
std::optional<Record> RecordAt(absl::string_view bytes) {
  if (bytes.size() < kStateRecordHeaderBytes) return std::nullopt;
  if (Crc32c(0, bytes.data(), kCheckedHeaderBytes) !=
      NumberAt<uint32_t>(bytes, kCheckedHeaderBytes)) {
    return std::nullopt;
  }
  const uint32_t size = NumberAt<uint32_t>(bytes, 0);
  if (size > kMaxStateBytes || bytes.size() - kStateRecordHeaderBytes < size) return std::nullopt;
  const absl::string_view state = bytes.substr(kStateRecordHeaderBytes, size);
  if (Crc32c(0, state.data(), state.size()) != NumberAt<uint32_t>(bytes, 4)) return std::nullopt;
  return Record{NumberAt<uint64_t>(bytes, 8), state};
}

}  // namespace

void AppendStateRecord(uint64_t revision, absl::string_view state, std::string& log) {
  const size_t begin = log.size();
  log.reserve(begin + kStateRecordHeaderBytes + state.size());
  AppendNumber(log, static_cast<uint32_t>(state.size()));
  AppendNumber(log, Crc32c(0, state.data(), state.size()));
  AppendNumber(log, revision);
  AppendNumber(log, Crc32c(0, log.data() + begin, kCheckedHeaderBytes));
  log.append(state.data(), state.size());
}

absl::StatusOr<StateLog> ParseStateLog(absl::string_view log) {
  const absl::string_view magic(kStateLogMagic, sizeof(kStateLogMagic));
  if (log.substr(0, magic.size()) != magic) {
    return absl::DataLossError(
        absl::StrCat("offset 0: this is not a state log, which begins with \"", magic, "\""));
  }
  Record newest;
  size_t end = magic.size();
  while (end < log.size()) {
    const std::optional<Record> record = RecordAt(log.substr(end));
    if (!record.has_value()) break;
    if (record->revision <= newest.revision) {
      return absl::DataLossError(absl::StrCat("offset ", end, ": revision ", record->revision,
                                              " follows revision ", newest.revision));
    }
    newest = *record;
    end += kStateRecordHeaderBytes + record->state.size();
  }
  if (newest.revision == 0) {
    // A log is created with its first record.
    return absl::DataLossError(
        absl::StrCat("offset ", end, ": the first record is damaged or missing"));
  }
  // Writes do not overlap. So an interrupted write is the last one, and no record follows it.
  if (log.size() - end > kMaxStateRecordBytes) {
    return absl::DataLossError(
        absl::StrCat("offset ", end, ": ", log.size() - end,
                     " bytes without a record, more than one interrupted write leaves"));
  }
  for (size_t offset = end + 1; offset < log.size(); ++offset) {
    if (RecordAt(log.substr(offset)).has_value()) {
      return absl::DataLossError(absl::StrCat(
          "offset ", end, ": a damaged record; an intact one follows at offset ", offset));
    }
  }
  StateLog parsed;
  parsed.newest = {newest.revision, std::string(newest.state)};
  parsed.end = end;
  return parsed;
}

}  // namespace pawl
