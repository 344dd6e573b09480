// The bytes of FileStore's log; state_log_format.md describes them.
#ifndef PAWL_SCHEDULER_STORE_STATE_LOG_H_
#define PAWL_SCHEDULER_STORE_STATE_LOG_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/store/state_store.h"

namespace pawl {

// What a log begins with: a name and the version of the format.
inline constexpr char kStateLogMagic[8] = {'P', 'A', 'W', 'L', 'S', 'T', 'A', '1'};
inline constexpr size_t kStateLogHeaderBytes = sizeof(kStateLogMagic);
inline constexpr size_t kStateRecordHeaderBytes = 20;
inline constexpr size_t kMaxStateRecordBytes = kStateRecordHeaderBytes + kMaxStateBytes;

// Appends the record of one state to `log`. REQUIRES: state.size() <= kMaxStateBytes.
void AppendStateRecord(uint64_t revision, absl::string_view state, std::string& log);

struct StateLog {
  // The last record.
  StoredState newest;
  // Where the last record ends. What comes after is one record at most, whose write was
  // interrupted.
  size_t end = 0;
};

// Reads a whole log. DATA_LOSS, naming the offset, if it is anything but a header, records of
// growing revisions, at least one, and a tail that is no more than one interrupted write.
absl::StatusOr<StateLog> ParseStateLog(absl::string_view log);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_STORE_STATE_LOG_H_
