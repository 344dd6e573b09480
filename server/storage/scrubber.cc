#include "server/storage/scrubber.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "server/storage/wal/log_format.h"
#include "server/storage/wal/log_reader.h"

namespace pawl {

Scrubber::Scrubber(SnapshotStore& snapshots, const WriteAheadLog& log, ScrubberOptions options,
                   Events events)
    : snapshots_(snapshots), log_(log), options_(std::move(options)), events_(std::move(events)) {
  thread_.Start([this] { Run(); });
}

absl::Status Scrubber::Check(const std::string& path, uint64_t bytes, bool is_on_disk,
                             const std::function<absl::Status()>& check,
                             const std::function<bool()>& is_needed) {
  const std::chrono::duration<double> pause(static_cast<double>(bytes) /
                                            static_cast<double>(options_.bytes_per_s));
  const auto check_disk = [&] {
    if (is_on_disk) snapshots_.env().DropCached(path);
    absl::Status result = check();
    if (is_on_disk) snapshots_.env().DropCached(path);
    return result;
  };
  absl::Status status = check_disk();
  // Read again: the file may have been replaced while it was read.
  if (absl::IsDataLoss(status)) status = check_disk();
  if (absl::IsNotFound(status) && is_needed()) status = absl::DataLossError(status.message());
  thread_.Sleep(std::chrono::duration_cast<std::chrono::nanoseconds>(pause));
  return absl::IsDataLoss(status) ? status : absl::OkStatus();
}

// The log does not notice a missing file itself: appends to one without a name succeed, and syncs
// too.
void Scrubber::ReportMissingSegments() {
  for (const SegmentUse& use : log_.Segments()) {
    const std::string path = JoinPath(options_.log_folder, SegmentFileName(use.segment));
    const absl::Status status = snapshots_.env().FileSize(path).status();
    const auto is_needed = [&] {
      return absl::c_any_of(log_.Segments(), [&](const SegmentUse& present) {
        return present.segment == use.segment && !present.is_being_deleted;
      });
    };
    if (absl::IsNotFound(status) && is_needed())
      events_.segment_damaged(use.segment, absl::DataLossError(status.message()));
  }
}

void Scrubber::Run() {
  Env& env = snapshots_.env();
  const uint64_t job_id = snapshots_.job_id();
  do {
    for (const SnapshotStore::Snapshot& snapshot : snapshots_.List()) {
      const absl::StatusOr<uint64_t> bytes = env.FileSize(snapshot.path);
      const absl::Status status = Check(
          snapshot.path, bytes.value_or(0), /*is_on_disk=*/true,
          [&] { return snapshots_.Verify(snapshot, [this] { return !thread_.IsStopping(); }); },
          [&] {
            return absl::c_any_of(snapshots_.List(),
                                  [&](const auto& listed) { return listed.path == snapshot.path; });
          });
      if (!status.ok()) events_.snapshot_damaged(snapshot, status);
      ReportMissingSegments();
      if (thread_.IsStopping()) return;
    }
    const std::vector<SegmentUse> segments = log_.Segments();
    for (const SegmentUse& use : segments) {
      const std::string path = JoinPath(options_.log_folder, SegmentFileName(use.segment));
      // The last one is being written.
      const bool is_on_disk = !use.sync_failed && use.segment != segments.back().segment;
      const absl::Status status = Check(
          path, use.bytes, is_on_disk,
          [&] {
            return VerifyClosedSegment(env, options_.log_folder, job_id, use.segment, use.bytes);
          },
          [] { return false; });
      if (!status.ok()) events_.segment_damaged(use.segment, status);
      ReportMissingSegments();
      if (thread_.IsStopping()) return;
    }
  } while (thread_.Sleep(options_.pause));
}

}  // namespace pawl
