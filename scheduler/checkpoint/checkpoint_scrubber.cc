#include "scheduler/checkpoint/checkpoint_scrubber.h"

#include <utility>

#include "absl/status/statusor.h"
#include "spdlog/spdlog.h"

namespace pawl {
namespace {

// The longest pause for one file, so that no rate overflows the clock.
constexpr std::chrono::hours kMaxPause{24 * 365};

MonotonicDuration PauseFor(uint64_t bytes, uint64_t bytes_per_s) {
  const std::chrono::duration<double> seconds(static_cast<double>(bytes) /
                                              static_cast<double>(bytes_per_s));
  if (seconds >= kMaxPause) return kMaxPause;
  return std::chrono::duration_cast<MonotonicDuration>(seconds);
}

}  // namespace

CheckpointScrubber::CheckpointScrubber(Env& env, CheckpointScrubberOptions options, Events events)
    : env_(env),
      options_(std::move(options)),
      events_(std::move(events)),
      store_(env, options_.dir) {
  thread_.Start([this] { Run(); });
}

void CheckpointScrubber::Throttle() {
  const MonotonicDuration pause =
      PauseFor(std::exchange(unthrottled_bytes_, 0), options_.bytes_per_s);
  if (options_.throttle != nullptr) {
    options_.throttle(pause);
  } else {
    Sleep(pause);
  }
}

bool CheckpointScrubber::AwaitPermission() {
  Throttle();
  while (!IsStopping()) {
    if (events_.may_read()) return true;
    Sleep(options_.pause);
  }
  return false;
}

void CheckpointScrubber::Run() {
  do {
    if (AwaitPermission()) Pass();
  } while (Sleep(options_.pause));
}

void CheckpointScrubber::Pass() {
  damaged_.clear();
  error_ = absl::OkStatus();
  const absl::StatusOr<std::vector<CheckpointId>> ids = store_.ListIds(options_.job_name);
  if (!ids.ok()) NoteError(ids.status());
  for (size_t i = 0; ids.ok() && i < ids->size() && damaged_.size() < kMaxDamagedFiles; ++i)
    ScrubOne((*ids)[i]);
  // Files that could not be read keep their former state.
  if (error_.ok() || reported_.size() >= kMaxDamagedFiles) reported_ = damaged_;
  if (!error_.ok() && error_ != last_error_) {
    spdlog::warn("cannot read all checkpoints in {}: {}", options_.dir, error_.ToString());
  }
  last_error_ = error_;
}

void CheckpointScrubber::ScrubOne(const CheckpointId& id) {
  if (!AwaitPermission()) return;
  const std::string name = CheckpointStore::NameOf(id.job_name, id.step, id.is_final);
  const std::string path = store_.ManifestPath(name);
  absl::StatusOr<CheckpointManifest> manifest;
  const absl::Status status = Check(path, env_.FileSize(path).value_or(0), [&] {
    manifest = store_.ReadManifest(name);
    return manifest.status();
  });
  // A checkpoint without a manifest is incomplete or deleted.
  if (absl::IsNotFound(status)) return;
  if (absl::IsDataLoss(status)) return Report(id, path, status);
  if (!status.ok()) return NoteError(status);
  for (const CheckpointPart& part : manifest->parts()) {
    if (!AwaitPermission() || damaged_.size() >= kMaxDamagedFiles) return;
    const std::string part_path = store_.PartPath(*manifest, part.partition());
    const absl::Status read = Check(part_path, part.bytes(), [&] {
      return store_.VerifyPart(*manifest, part, [this] { return !IsStopping(); });
    });
    if (absl::IsDataLoss(read)) {
      // Checked last: a deleted or revoked checkpoint loses its manifest first.
      if (!IsStillNamed(name, part)) return;
      Report(id, part_path, read);
    } else if (!read.ok()) {
      NoteError(read);
    }
  }
}

absl::Status CheckpointScrubber::Check(const std::string& path, uint64_t bytes,
                                       absl::FunctionRef<absl::Status()> read) {
  const auto read_disk = [&] {
    unthrottled_bytes_ += bytes;
    env_.DropCached(path);
    absl::Status status = read();
    env_.DropCached(path);
    return status;
  };
  absl::Status status = read_disk();
  if (!absl::IsDataLoss(status)) return status;
  if (!AwaitPermission()) return absl::CancelledError("the scrubber is stopping");
  return read_disk();
}

bool CheckpointScrubber::IsStillNamed(const std::string& name, const CheckpointPart& part) const {
  const absl::StatusOr<CheckpointManifest> manifest = store_.ReadManifest(name);
  if (!manifest.ok()) return absl::IsDataLoss(manifest.status());
  const int partition = static_cast<int>(part.partition());
  return partition < manifest->parts_size() &&
         manifest->parts(partition).SerializeAsString() == part.SerializeAsString();
}

void CheckpointScrubber::Report(const CheckpointId& id, const std::string& path,
                                const absl::Status& damage) {
  damaged_.insert(path);
  if (reported_.insert(path).second) events_.damaged(id, damage);
}

void CheckpointScrubber::NoteError(const absl::Status& error) {
  if (error_.ok() && !IsStopping()) error_ = error;
}

}  // namespace pawl
