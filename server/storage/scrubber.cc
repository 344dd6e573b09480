#include "server/storage/scrubber.h"

#include <utility>
#include <vector>

#include "server/storage/wal/log_reader.h"

namespace pawl {

Scrubber::Scrubber(SnapshotStore& snapshots, const WriteAheadLog& log, ScrubberOptions options,
                   Events events)
    : snapshots_(snapshots), log_(log), options_(std::move(options)), events_(std::move(events)) {
  thread_ = std::thread([this] { Run(); });
}

Scrubber::~Scrubber() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

bool Scrubber::Sleep(std::chrono::nanoseconds duration) {
  const auto until = std::chrono::steady_clock::now() + duration;
  MutexLock lock(mu_);
  while (!stopping_ && changed_.WaitUntil(mu_, until)) {
  }
  return !stopping_;
}

absl::Status Scrubber::Check(const std::string& path, uint64_t bytes, bool is_on_disk,
                             const std::function<absl::Status()>& check) {
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
  Sleep(std::chrono::duration_cast<std::chrono::nanoseconds>(pause));
  return absl::IsDataLoss(status) ? status : absl::OkStatus();
}

void Scrubber::Run() {
  Env& env = snapshots_.env();
  const uint64_t job_id = snapshots_.job_id();
  do {
    for (const SnapshotStore::Snapshot& snapshot : snapshots_.List()) {
      const absl::StatusOr<uint64_t> bytes = env.FileSize(snapshot.path);
      const absl::Status status = Check(snapshot.path, bytes.value_or(0), /*is_on_disk=*/true,
                                        [&] { return snapshots_.Verify(snapshot); });
      if (!status.ok()) events_.snapshot_damaged(snapshot, status);
      if (!Sleep(std::chrono::nanoseconds::zero())) return;
    }
    const std::vector<SegmentUse> segments = log_.Segments();
    for (const SegmentUse& use : segments) {
      const std::string path = JoinPath(options_.log_folder, SegmentFileName(use.segment));
      // The last one is being written.
      const bool is_on_disk = !use.sync_failed && use.segment != segments.back().segment;
      const absl::Status status = Check(path, use.bytes, is_on_disk, [&] {
        return VerifyClosedSegment(env, options_.log_folder, job_id, use.segment, use.bytes);
      });
      if (!status.ok()) events_.segment_damaged(use.segment, status);
      if (!Sleep(std::chrono::nanoseconds::zero())) return;
    }
  } while (Sleep(options_.pause));
}

}  // namespace pawl
