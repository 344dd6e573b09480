// The encoding of FileStore's log (state_log_format.md).
#ifndef PAWL_SCHEDULER_STORE_STATE_LOG_H_
#define PAWL_SCHEDULER_STORE_STATE_LOG_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/store/state_store.h"

namespace pawl {

// The first bytes of a log: a name and the version of the format.
inline constexpr char kStateLogMagic[8] = {'P', 'A', 'W', 'L', 'S', 'T', 'A', '1'};
inline constexpr size_t kStateLogHeaderBytes = sizeof(kStateLogMagic);
inline constexpr size_t kStateRecordHeaderBytes = 20;
inline constexpr size_t kMaxStateRecordBytes = kStateRecordHeaderBytes + kMaxStateBytes;

// Appends the record of one state to `log`. REQUIRES: state.size() <= kMaxStateBytes.
void AppendStateRecord(uint64_t revision, absl::string_view state, std::string& log);

struct StateLog {
  // The last record.
  StoredState newest;
  // The end of the last record. At most one record with an interrupted write follows.
  size_t end = 0;
};

// Parses a whole log: a header, at least one record, with growing revisions, and a tail of at most
// one interrupted write. DATA_LOSS: it is anything else; the message names the offset.
absl::StatusOr<StateLog> ParseStateLog(absl::string_view log);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_STATE_LOG_H_
