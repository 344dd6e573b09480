#include "server/storage/scrubber.h"

#include <utility>

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

absl::Status Scrubber::Check(uint64_t bytes, const std::function<absl::Status()>& check) {
  const std::chrono::duration<double> pause(static_cast<double>(bytes) /
                                            static_cast<double>(options_.bytes_per_s));
  absl::Status status = check();
  // Read again: the file may have been replaced while it was read.
  if (absl::IsDataLoss(status)) status = check();
  Sleep(std::chrono::duration_cast<std::chrono::nanoseconds>(pause));
  return absl::IsDataLoss(status) ? status : absl::OkStatus();
}

void Scrubber::Run() {
  Env& env = snapshots_.env();
  const uint64_t job_id = snapshots_.job_id();
  do {
    for (const SnapshotStore::Snapshot& snapshot : snapshots_.List()) {
      const absl::StatusOr<uint64_t> bytes = env.FileSize(snapshot.path);
      const absl::Status status =
          Check(bytes.value_or(0), [&] { return snapshots_.Verify(snapshot); });
      if (!status.ok()) events_.snapshot_damaged(snapshot, status);
      if (!Sleep(std::chrono::nanoseconds::zero())) return;
    }
    for (const SegmentUse& use : log_.Segments()) {
      const absl::Status status = Check(use.bytes, [&] {
        return VerifyClosedSegment(env, options_.log_folder, job_id, use.segment, use.bytes);
      });
      if (!status.ok()) events_.segment_damaged(use.segment, status);
      if (!Sleep(std::chrono::nanoseconds::zero())) return;
    }
  } while (Sleep(options_.pause));
}

}  // namespace pawl
